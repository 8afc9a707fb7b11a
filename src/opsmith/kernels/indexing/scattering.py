"""Writes at places that index tensors give: scatter, index_put, index_add, index_copy, index_fill and their like.

The mirror image of gathering.py: ``out[p' + sum over k of index_k[p] * stride_k] = source[p]``, or combined with what
is there already. The result starts as a copy of ``self``, unless the op works in place; then one launch writes.

Places that are named several times are combined by atomic operations, in no fixed order, as in eager. These exist
for some types only, so others go through a workspace ``work`` of the shape of ``self``: half types add up in float32
and are rounded once; maxima and minima are taken of integers in the order of the floats, which a NaN tops. Where sums
or products name few elements, only those go through the workspace: three launches of the size of ``source``.

Where an index names whole slices, as one that is expanded along the columns does, what is only to be known of a place,
whether it is named and how often, is noted once a slice, and read while the whole of ``self`` is passed over. A number
that is written, and what a reduction begins with, then cost ``self + result`` bytes however often slices are named.

An index out of range, for which eager stops the device, writes nothing.

Suffixes: ``_A`` rows, ``_B`` columns of a tile (see transposed_tiles.py), ``_I`` one entry per index tensor.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits, map_into, same
from ..common.indexing import Ints, Layout, converted, normalized_dims, number
from ..common.lanes import add_along_columns, lanes_first, load_along_columns, store_along_columns
from ..common.launch import ELEMENT_TYPE, compute_type, launch, number_bits, pdl_prologue, require_served
from ..common.ordering import float_of_bits, ordered_bits
from ..common.transposed_tiles import offset_in, tile_indices
from ..copies.rearrangements import copied, copy_into, fill, is_dense, meets
from .gathering import Index, check_along, indexed_places, plan_index, require_index, walk_indexed, walk_places


class Combine(enum.IntEnum):
    """What becomes of an element that is there already."""

    REPLACE = 0
    ADD = 1
    MULTIPLY = 2
    MAXIMUM = 3
    MINIMUM = 4


_ADD, _MULTIPLY, _MAXIMUM, _MINIMUM = (tl.constexpr(int(how)) for how in Combine if how)

# ---------------------------------------------------------------- the kernel


@triton.jit
def greatest_nan_bits(x: tl.tensor) -> tl.tensor:
    """For maxima."""
    return ordered_bits(x, True)


@triton.jit
def least_nan_bits(x: tl.tensor) -> tl.tensor:
    """For minima."""
    return ordered_bits(x, False)


@triton.jit
def unless_named(x: tl.tensor, named: tl.tensor, other: tl.tensor) -> tl.tensor:
    """``x``, or ``other`` where the place is named."""
    return tl.where(named != 0, other, x)


@triton.jit
def greatest_nan_bits_unless_named(x: tl.tensor, named: tl.tensor, other: tl.tensor) -> tl.tensor:
    """For maxima."""
    return tl.where(named != 0, other, ordered_bits(x, True))


@triton.jit
def least_nan_bits_unless_named(x: tl.tensor, named: tl.tensor, other: tl.tensor) -> tl.tensor:
    """For minima."""
    return tl.where(named != 0, other, ordered_bits(x, False))


@triton.jit
def divide(total: tl.tensor, count: tl.tensor) -> tl.tensor:
    """``total / count``; the total of nothing stays."""
    return total / tl.where(count == 0, tl.full(count.shape, 1, count.dtype), count)


@triton.jit
def divide_down(total: tl.tensor, count: tl.tensor) -> tl.tensor:
    """As :func:`divide`, for integers: rounded down."""
    divisor = tl.where(count == 0, tl.full(count.shape, 1, count.dtype), count)
    quotient = total // divisor
    return tl.where((total % divisor != 0) & (total < 0), quotient - 1, quotient)


@triton.jit
def multiply_at(ptr_AB: tl.tensor, factor_AB: tl.tensor, mask_AB: tl.tensor) -> None:
    """``*ptr *= factor``, atomically: try to replace what was seen until nobody else has been there in between.

    The memory is seen as integers, because a NaN is not equal to itself. A lane that is done, or masked, replaces a
    value by itself.
    """
    seen_AB = tl.load(ptr_AB, mask=mask_AB, other=0)
    waiting_AB = mask_AB
    while tl.max(tl.max(waiting_AB.to(tl.int32), axis=1), axis=0) > 0:
        product_AB = (seen_AB.to(factor_AB.dtype, bitcast=True) * factor_AB).to(seen_AB.dtype, bitcast=True)
        found_AB = tl.atomic_cas(ptr_AB, seen_AB, tl.where(waiting_AB, product_AB, seen_AB), sem="relaxed")
        waiting_AB = waiting_AB & (found_AB != seen_AB)
        seen_AB = tl.where(waiting_AB, found_AB, seen_AB)


@triton.jit
def scatter_kernel(
    work_ptr: tl.tensor,
    source: tl.tensor,
    scale: tl.tensor,
    indices_I: tl.tuple,
    source_sides: tl.tuple,
    work_sides: tl.tuple,
    index_sides_I: tl.tuple,
    sizes_I: tl.tuple,
    strides_I: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    COMBINE: tl.constexpr,
    NUMBER: tl.constexpr,
    SCALED: tl.constexpr,
    COMPUTE: tl.constexpr,
    VARIES_I: tl.constexpr,
    WRAP: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Combine one tile of ``source``, a tensor or a number, with the elements of ``work`` that the indices name."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    place_AB, there_AB = indexed_places(
        s, a, b, rows, columns, work_sides, indices_I, index_sides_I, sizes_I, strides_I, VARIES_I, WRAP, INDEX
    )
    if NUMBER is not None:
        value_AB = tl.zeros([HEIGHT, WIDTH], COMPUTE) + converted(number(source, COMPUTE), NUMBER).to(COMPUTE)
    else:
        source_AB = offset_in(a, source_sides[1])[:, None] + offset_in(b, source_sides[2])[None, :]
        value_AB = load_along_columns(source + offset_in(s, source_sides[0]) + source_AB, there_AB)
    if SCALED:
        value_AB = value_AB.to(COMPUTE) * number(scale, COMPUTE)
    ptr_AB = work_ptr + place_AB
    WORK: tl.constexpr = work_ptr.dtype.element_ty
    if COMBINE == _ADD:
        add_along_columns(ptr_AB, converted(value_AB, WORK), there_AB)
    elif COMBINE == _MULTIPLY:
        # Every lane replaces something.
        factor_AB = value_AB.to(COMPUTE)
        if not COMPUTE.is_floating():
            factor_AB = factor_AB.to(WORK)
        multiply_at(work_ptr + tl.where(there_AB, place_AB, 0), factor_AB, there_AB)
    elif COMBINE == _MAXIMUM:
        key_AB = value_AB.to(COMPUTE)
        if COMPUTE.is_floating():
            key_AB = ordered_bits(key_AB, True)
        tl.atomic_max(lanes_first(ptr_AB), lanes_first(key_AB.to(WORK)), mask=lanes_first(there_AB), sem="relaxed")
    elif COMBINE == _MINIMUM:
        key_AB = value_AB.to(COMPUTE)
        if COMPUTE.is_floating():
            key_AB = ordered_bits(key_AB, False)
        tl.atomic_min(lanes_first(ptr_AB), lanes_first(key_AB.to(WORK)), mask=lanes_first(there_AB), sem="relaxed")
    else:
        store_along_columns(ptr_AB, converted(value_AB, WORK), there_AB)


@triton.jit
def copy_named_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    indices_I: tl.tuple,
    sides: tl.tuple,
    index_sides_I: tl.tuple,
    sizes_I: tl.tuple,
    strides_I: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    VARIES_I: tl.constexpr,
    WRAP: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out = x`` in the elements that the indices name, of two tensors laid out alike; those named twice are alike."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    place_AB, there_AB = indexed_places(
        s, a, b, rows, columns, sides, indices_I, index_sides_I, sizes_I, strides_I, VARIES_I, WRAP, INDEX
    )
    x_AB = load_along_columns(x_ptr + place_AB, there_AB)
    store_along_columns(out_ptr + place_AB, converted(x_AB, out_ptr.dtype.element_ty), there_AB)


class Places(NamedTuple):
    """Where a write goes: strides of the target in the source's dimensions, zero where indices give the place.

    ``axis`` is the dimension of the target that the only index is of, None where that is not told.
    """

    shape: Ints
    strides: Ints
    indices: list[Index]
    wrap: bool = False
    axis: int | None = None


def write_indexed(
    work: torch.Tensor,
    source: torch.Tensor | float,
    places: Places,
    how: Combine = Combine.REPLACE,
    *,
    dtype: torch.dtype | None = None,
    scale: float = 1,
) -> None:
    """Combine ``source``, of ``places.shape``, with the elements of ``work`` at ``places``.

    Args:
        work: with elements that do not share memory; for products, maxima and minima of floats as their bits.
        source: a tensor or a number.
        places: where its elements go.
        how: what becomes of what is there.
        dtype: of the op's values, where it is not that of ``work``; a number is rounded to it.
        scale: a factor of each element.
    """
    if 0 in places.shape:
        return
    if isinstance(source, torch.Tensor):
        walk = walk_indexed(source, work, places.strides, places.indices)
    else:
        walk = walk_places(*_order_of_number(work, places), work, places.strides, places.indices)
    dtype = dtype or work.dtype
    element = compute_type(dtype)
    launch(
        scatter_kernel,
        (walk.programs,),
        work.device,
        work,
        source if isinstance(source, torch.Tensor) else number_bits(source, element),
        number_bits(scale, element),
        walk.arguments[0],
        *walk.sides_O,
        *walk.arguments[1:],
        walk.rows,
        walk.columns,
        COMBINE=int(how),
        NUMBER=None if isinstance(source, torch.Tensor) else ELEMENT_TYPE[dtype],
        SCALED=scale != 1,
        COMPUTE=element,
        VARIES_I=walk.varies,
        WRAP=places.wrap,
        INDEX=walk.offset_type,
        HEIGHT=walk.tile.height,
        WIDTH=walk.tile.width,
    )


def _order_of_number(work: torch.Tensor, places: Places) -> tuple[Layout, int]:
    """The layout that a number is walked in, and the bytes of an element: what is most to be accessed in order.

    That is the index if each of its elements is read once. Else it is ``work``, as if the index counted up: lanes that
    followed an index of rows would write one element of each, where neighbours in a row share a transaction.
    """
    along = places.indices[0]
    if all(step or size == 1 for step, size in zip(along.strides, places.shape, strict=True)):
        return (places.shape, along.strides), along.tensor.element_size()
    pairs = zip(places.strides, along.strides, strict=True)
    return (places.shape, tuple(own or along.stride * step for own, step in pairs)), work.element_size()


def copy_named(out: torch.Tensor, x: torch.Tensor, places: Places, source: torch.Tensor) -> None:
    """Copy the elements at ``places``, in the order of ``source``, to ``out``, which has the strides of ``x``."""
    if 0 in places.shape:
        return
    walk = walk_indexed(source, out, places.strides, places.indices)
    launch(
        copy_named_kernel,
        (walk.programs,),
        out.device,
        out,
        x,
        walk.arguments[0],
        walk.sides_O[1],
        *walk.arguments[1:],
        walk.rows,
        walk.columns,
        VARIES_I=walk.varies,
        WRAP=places.wrap,
        INDEX=walk.offset_type,
        HEIGHT=walk.tile.height,
        WIDTH=walk.tile.width,
    )


# ---------------------------------------------------------------- combining through a workspace

#: A workspace of which less than one in so many elements is named has only those filled and copied back.
SPARSE = 8

#: Small types add up, and are multiplied, in the type that has atomic operations.
_WORK = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.bool: torch.int32,
    torch.uint8: torch.int32,
    torch.int8: torch.int32,
    torch.int16: torch.int32,
}
_KEY = {torch.float32: torch.int32, torch.float64: torch.int64}


def combine(
    target: torch.Tensor,
    start: torch.Tensor | None,
    source: torch.Tensor | float,
    places: Places,
    how: Combine,
    *,
    scale: float = 1,
    afresh: bool = False,
    counts: torch.Tensor | None = None,
) -> None:
    """Write to ``target`` the elements of ``start``, combined with ``source`` at ``places``.

    Args:
        target: dense strides of its own; it may be ``start`` itself.
        start: of the shape of ``target``, or None for zeros.
        source: a tensor of the same type or a number.
        places: strides are ``target``'s.
        how: not REPLACE.
        scale: a factor of each element of ``source``.
        afresh: the elements of ``start`` at ``places`` have no part in it.
        counts: what the sums are divided by, for means; zeros are ones.
    """
    value = _WORK.get(target.dtype, target.dtype)
    keyed = how in (Combine.MAXIMUM, Combine.MINIMUM) and value.is_floating_point
    work = target
    if keyed or value != target.dtype:
        work = torch.empty_strided(
            target.shape, target.stride(), dtype=_KEY[value] if keyed else value, device=target.device
        )
    few = isinstance(source, torch.Tensor) and SPARSE * math.prod(places.shape) <= target.numel()
    if few and start is not None and work is not target and not (keyed or afresh or counts is not None):
        assert isinstance(source, torch.Tensor)
        if target is not start:
            copy_into(target, start)
        copy_named(work, target, places, source)
        bits = _as_integers(work) if how is Combine.MULTIPLY else work
        write_indexed(bits, source, places, how, dtype=target.dtype, scale=scale)
        copy_named(target, work, places, source)
        return
    if start is None:
        fill(work, 0)
    else:
        _begin(work, start, places, how, keyed=keyed, afresh=afresh, counts=counts)
    bits = _as_integers(work) if how is Combine.MULTIPLY else work
    write_indexed(bits, source, places, how, dtype=target.dtype, scale=scale)
    if keyed:
        map_into(target, float_of_bits, [work], [work.dtype])
    elif counts is not None:
        function = divide if work.dtype.is_floating_point else divide_down
        map_into(target, function, [work, counts], [work.dtype, work.dtype])
    elif work is not target:
        map_into(target, same, [work], [work.dtype])


def _begin(
    work: torch.Tensor,
    start: torch.Tensor,
    places: Places,
    how: Combine,
    *,
    keyed: bool,
    afresh: bool,
    counts: torch.Tensor | None,
) -> None:
    """Write to ``work`` the elements of ``start``; if ``afresh``, at ``places`` what changes nothing."""
    greatest = how is Combine.MAXIMUM
    identity = _identity(how, work.dtype)
    named = (marked(work, places) if counts is None else counts) if afresh else None
    if named is not None:
        function = unless_named
        if keyed:
            function = greatest_nan_bits_unless_named if greatest else least_nan_bits_unless_named
        map_into(work, function, [start, named], [start.dtype, named.dtype], [identity])
        return
    if keyed:
        map_into(work, greatest_nan_bits if greatest else least_nan_bits, [start], [start.dtype])
    elif work is not start:
        copy_into(work, start)
    if afresh:
        write_indexed(work, identity, places)


def _identity(how: Combine, dtype: torch.dtype) -> int:
    """What changes nothing; a limit of the integers for maxima and minima, which are taken of integers."""
    if how is Combine.MULTIPLY:
        return 1
    if how is Combine.ADD:
        return 0
    return torch.iinfo(dtype).min if how is Combine.MAXIMUM else torch.iinfo(dtype).max


def count_at(target: torch.Tensor, places: Places, start: int = 0) -> torch.Tensor:
    """How often each element of ``target`` is named, more by ``start``: counted once a slice where slices are named."""
    slices = _slice_places(target, places)
    if slices is not None:
        return _noted(target, places, slices, torch.int32, Combine.ADD, start)
    counts = torch.empty_strided(target.shape, target.stride(), dtype=torch.int32, device=target.device)
    fill(counts, start)
    write_indexed(counts, 1, places, Combine.ADD)
    return counts


#: Elements of the fewest places that are marked: to write those of float32 takes about as long as a launch.
MANY = 1 << 20
#: Elements of the smallest slice whose mark is much less to write than the slice.
LONG_SLICE = 8


def marked(target: torch.Tensor, places: Places) -> torch.Tensor | None:
    """Which elements of ``target`` are named, by slices; None where it is as fast to write each time one is named.

    That is where the places are fewer than the elements, all of which are passed over when marks are read.
    """
    slices = _slice_places(target, places)
    if slices is None or math.prod(places.shape) < max(MANY, target.numel()):
        return None
    if target.numel() < LONG_SLICE * places.indices[0].size:
        return None
    return _noted(target, places, slices, torch.uint8, Combine.REPLACE, 0)


def _slice_places(target: torch.Tensor, places: Places) -> Places | None:
    """Where whole slices of ``target`` are named, the places in a vector of one element for each slice; else None."""
    if places.axis is None:
        return None
    (along,) = places.indices
    named = [d for d, step in enumerate(places.strides) if not step]
    within = [d for d, step in enumerate(places.strides) if step]
    is_whole = math.prod(places.shape[d] for d in within) * along.size == target.numel()
    if not is_whole or any(along.strides[d] and places.shape[d] > 1 for d in within):
        return None
    index = Index(along.tensor, tuple(along.strides[d] for d in named), along.size, 1)
    return Places(tuple(places.shape[d] for d in named), (0,) * len(named), [index], places.wrap)


def _noted(
    target: torch.Tensor, places: Places, slices: Places, dtype: torch.dtype, how: Combine, start: int
) -> torch.Tensor:
    """``start`` for each slice, combined with 1 each time it is named; expanded to the shape of ``target``."""
    notes = torch.empty(places.indices[0].size, dtype=dtype, device=target.device)
    fill(notes, start)
    write_indexed(notes, 1, slices, how)
    return notes.view([-1 if d == places.axis else 1 for d in range(target.ndim)]).expand(target.shape)


def _as_integers(work: torch.Tensor) -> torch.Tensor:
    """The memory as integers of its element size."""
    return work.view(_KEY[work.dtype]) if work.dtype.is_floating_point else work


# ---------------------------------------------------------------- scatter


def scatter_src(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """``self`` with ``out[index[i, j], j] = src[i, j]`` along dimension 0, and so on."""
    out = torch.empty_like(self)
    return _replaced(out, self, src, _along(out, dim, index, src))


def scatter_src_(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """As :func:`scatter_src`, in place."""
    return _replace(self, src, _along(self, dim, index, src))


def scatter_value(self: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> torch.Tensor:
    """``self`` with ``out[index[i, j], j] = value`` along dimension 0, and so on."""
    out = torch.empty_like(self)
    return _replaced(out, self, value, _along(out, dim, index))


def scatter_value_(self: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> torch.Tensor:
    """As :func:`scatter_value`, in place."""
    return _replace(self, value, _along(self, dim, index))


_SCATTER_REDUCE = {"add": Combine.ADD, "multiply": Combine.MULTIPLY}


def scatter_reduce_src(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, *, reduce: str
) -> torch.Tensor:
    """As :func:`scatter_src`, where what is named several times is added up or multiplied."""
    out = torch.empty_like(self)
    return _combined(out, self, src, _along(out, dim, index, src), _scatter_reduction(reduce))


def scatter_reduce_value(
    self: torch.Tensor, dim: int, index: torch.Tensor, value: float, *, reduce: str
) -> torch.Tensor:
    """As :func:`scatter_value`, where what is named several times is added up or multiplied."""
    out = torch.empty_like(self)
    return _combined(out, self, value, _along(out, dim, index), _scatter_reduction(reduce))


def _scatter_reduction(reduce: str) -> Combine:
    if reduce not in _SCATTER_REDUCE:
        raise ValueError(f"reduce must be 'add' or 'multiply', not {reduce!r}")
    return _SCATTER_REDUCE[reduce]


def scatter_add(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """``self`` with ``out[index[i, j], j] += src[i, j]`` along dimension 0, and so on."""
    out = torch.empty_like(self)
    return _combined(out, self, src, _along(out, dim, index, src), Combine.ADD)


def scatter_add_(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """As :func:`scatter_add`, in place."""
    places = _along(self, dim, index, src)
    _require_writable(self, src)
    combine(self, self, _fitted(src, places), places, Combine.ADD)
    return self


def scatter_reduce_two(
    self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor, reduce: str, *, include_self: bool = True
) -> torch.Tensor:
    """``self`` with the sum, product, mean, maximum or minimum of all ``src[i, j]`` at ``out[index[i, j], j]``.

    ``include_self``: the element of ``self`` is one of them; where nothing is named it stays in any case.
    """
    out = torch.empty_like(self)
    return _reduced(out, self, src, _along(out, dim, index, src), reduce, include_self=include_self)


def _along(self: torch.Tensor, dim: int, index: torch.Tensor, src: torch.Tensor | None = None) -> Places:
    """The places that ``index`` gives along one dimension.

    Raises:
        IndexError: ``dim`` out of range.
        ValueError: shapes that do not fit.
        TypeError: an index that is neither int64 nor int32, or two types.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    shape = tuple(index.shape) if self.ndim else (index.numel(),)
    if index.numel() == 0:  # Of any type.
        return Places(shape, (), [])
    require_index(index, self, dtypes=(torch.int64, torch.int32))
    check_along(self, index, axis)
    if src is not None:
        if src.dtype != self.dtype:
            raise TypeError(f"a source of {src.dtype} does not fit {self.dtype}")
        if max(src.ndim, 1) != max(index.ndim, 1) or any(
            size > own for size, own in zip(index.shape, src.shape, strict=False)
        ):
            raise ValueError(f"an index of shape {list(index.shape)} does not fit a source of {list(src.shape)}")
    if not self.ndim:
        return Places(shape, (0,), [Index(index, index.stride() or (0,), 1, 0)])
    own = index.stride() or (0,)
    strides = tuple(0 if d == axis else stride for d, stride in enumerate(self.stride()))
    return Places(shape, strides, [Index(index, own, self.shape[axis], self.stride(axis))], axis=axis)


def _fitted(source: torch.Tensor | float, places: Places) -> torch.Tensor | float:
    """As much of a source as there are places."""
    if not isinstance(source, torch.Tensor):
        return source
    return source.as_strided(places.shape, source.stride() or (0,) * len(places.shape))


# ---------------------------------------------------------------- index_put


def index_put(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """``self`` with ``out[indices] = values``, which broadcast; or ``+=``.

    Raises:
        IndexError: indices that do not fit.
        RuntimeError: values that do not broadcast.
        TypeError: two types.
        NotImplementedError: tensors that are not served.
    """
    out = torch.empty_like(self)
    places, source = _put_places(self, out, indices, values)
    if accumulate:
        combine(out, self, source, places, Combine.ADD)
    else:
        copy_into(out, self)
        write_indexed(as_bits(out), as_bits(source), places)
    return out


def index_put_(
    self: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor, accumulate: bool = False
) -> torch.Tensor:
    """As :func:`index_put`, in place."""
    places, source = _put_places(self, self, indices, values)
    _require_writable(self, values)
    if accumulate:
        combine(self, self, source, places, Combine.ADD)
    else:
        write_indexed(as_bits(self), as_bits(source), places)
    return self


def index_put_impl_(
    self: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
    unsafe: bool = False,  # noqa: ARG001 - Says that the indices were checked.
) -> torch.Tensor:
    """As :func:`index_put_`."""
    return index_put_(self, indices, values, accumulate)


def _put_places(
    self: torch.Tensor, out: torch.Tensor, indices: Sequence[torch.Tensor | None], values: torch.Tensor
) -> tuple[Places, torch.Tensor]:
    """The places in ``out``, and ``values`` broadcast to them."""
    if values.dtype != self.dtype:
        raise TypeError(f"values of {values.dtype} do not fit {self.dtype}")
    if values.device.type == "cpu" and not values.ndim:
        values = values.to(self.device)
    if values.device != self.device:
        raise NotImplementedError("values on another device are not served")
    plan = plan_index(out, indices)
    shape = plan.layout[0]
    source = values.expand(shape)
    return Places(shape, plan.strides, plan.indices, wrap=True), source


def put(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """``self`` with ``out[index] = source`` as if it were flat, or ``+=``; negative indices count from the end.

    Raises:
        ValueError: as many indices as elements are needed.
        TypeError: an index that is not int64, or two types.
        IndexError: there are indices and nothing to index.
    """
    out = torch.empty_like(self)
    return _put(out, self, index, source, accumulate)


def put_(self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool = False) -> torch.Tensor:
    """As :func:`put`, in place."""
    _require_writable(self, source)
    return _put(self, self, index, source, accumulate)


def _put(
    out: torch.Tensor, self: torch.Tensor, index: torch.Tensor, source: torch.Tensor, accumulate: bool
) -> torch.Tensor:
    require_index(index, self)
    if source.dtype != self.dtype:
        raise TypeError(f"a source of {source.dtype} does not fit {self.dtype}")
    if source.numel() != index.numel():
        raise ValueError(f"{index.numel()} indices do not fit {source.numel()} elements")
    if self.numel() == 0 and index.numel():
        raise IndexError("an empty tensor has no elements to put to")
    index, source = (x if x.is_contiguous() else copied(x) for x in (index, source))
    # Places are counted in row-major order.
    work = out if out.is_contiguous() else torch.empty(out.shape, dtype=out.dtype, device=out.device)
    places = Places((index.numel(),), (0,), [Index(index.view(-1), (1,), self.numel(), 1)], wrap=True)
    if accumulate:
        combine(work, self, source.view(-1), places, Combine.ADD)
    else:
        if work is not self:
            copy_into(work, self)
        write_indexed(as_bits(work), as_bits(source.view(-1)), places)
    if work is not out:
        copy_into(out, work)
    return out


# ---------------------------------------------------------------- slices that an index names


def index_add(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """``self`` with ``out[index[i]] += alpha * source[i]`` along a dimension."""
    out = torch.empty_like(self)
    return _combined(out, self, source, _slices(out, dim, index, source), Combine.ADD, scale=alpha)


def index_add_(
    self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor, *, alpha: float = 1
) -> torch.Tensor:
    """As :func:`index_add`, in place."""
    places = _slices(self, dim, index, source)
    _require_writable(self, source)
    combine(self, self, _fitted(source, places), places, Combine.ADD, scale=alpha)
    return self


def index_copy(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """``self`` with ``out[index[i]] = source[i]`` along a dimension."""
    out = torch.empty_like(self)
    return _replaced(out, self, source, _slices(out, dim, index, source))


def index_copy_(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor) -> torch.Tensor:
    """As :func:`index_copy`, in place."""
    return _replace(self, source, _slices(self, dim, index, source))


def index_fill(self: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> torch.Tensor:
    """``self`` with ``value`` in the slices along a dimension that ``index`` names."""
    out = torch.empty_like(self)
    return _replaced(out, self, value, _slices(out, dim, index)._replace(wrap=True))


def index_fill_(self: torch.Tensor, dim: int, index: torch.Tensor, value: float) -> torch.Tensor:
    """As :func:`index_fill`, in place."""
    return _replace(self, value, _slices(self, dim, index)._replace(wrap=True))


def index_fill_tensor(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`index_fill` with a tensor of one element."""
    out = torch.empty_like(self)
    places = _slices(out, dim, index)._replace(wrap=True)
    return _replaced(out, self, _one_value(self, value, places), places)


def index_fill_tensor_(self: torch.Tensor, dim: int, index: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`index_fill_tensor`, in place."""
    places = _slices(self, dim, index)._replace(wrap=True)
    return _replace(self, _one_value(self, value, places), places)


def _one_value(self: torch.Tensor, value: torch.Tensor, places: Places) -> torch.Tensor:
    if value.ndim:
        raise ValueError("index_fill takes one value, a tensor without dimensions")
    if value.device.type == "cpu":
        value = value.to(self.device)
    if value.dtype != self.dtype:
        raise NotImplementedError("a value of another type is not served")
    return value.expand(places.shape)


def index_reduce(
    self: torch.Tensor,
    dim: int,
    index: torch.Tensor,
    source: torch.Tensor,
    reduce: str,
    *,
    include_self: bool = True,
) -> torch.Tensor:
    """``self`` with the product, mean, maximum or minimum of all ``source[i]`` at ``out[index[i]]``."""
    if reduce == "sum":
        raise ValueError("index_reduce takes 'prod', 'mean', 'amax' or 'amin'; index_add adds up")
    out = torch.empty_like(self)
    return _reduced(out, self, source, _slices(out, dim, index, source), reduce, include_self=include_self)


def _slices(self: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor | None = None) -> Places:
    """The places of slices along a dimension.

    Raises:
        IndexError: ``dim`` out of range, or an index of several dimensions.
        ValueError: a source that does not fit.
        TypeError: an index that is neither int64 nor int32, or two types.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    require_index(index, self, dtypes=(torch.int64, torch.int32))
    if index.ndim > 1:
        raise IndexError("the index must be a vector")
    shape = tuple(index.numel() if d == axis else size for d, size in enumerate(self.shape)) or (index.numel(),)
    if source is not None:
        if source.dtype != self.dtype:
            raise TypeError(f"a source of {source.dtype} does not fit {self.dtype}")
        if (tuple(source.shape) or (1,)) != shape:
            raise ValueError(f"a source of shape {list(source.shape)} does not fit {list(shape)}")
    step = index.stride(0) if index.ndim else 0
    if not self.ndim:
        return Places(shape, (0,), [Index(index, (step,), 1, 0)])
    strides = tuple(0 if d == axis else stride for d, stride in enumerate(self.stride()))
    given = tuple(step if d == axis else 0 for d in range(self.ndim))
    return Places(shape, strides, [Index(index, given, self.shape[axis], self.stride(axis))], axis=axis)


# ---------------------------------------------------------------- what they share


def _require_writable(self: torch.Tensor, source: torch.Tensor | float) -> None:
    """Refuse to write to elements that share memory, or that are read as well.

    Raises:
        RuntimeError: they do.
        NotImplementedError: they may; eager mode leaves that to its caller.
    """
    if any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride(), strict=True)):
        raise RuntimeError("elements of self share memory: clone it before writing to it")
    if isinstance(source, torch.Tensor) and meets(self, source):
        if is_dense(self) and is_dense(source):
            raise RuntimeError("self and the source share memory: clone one of them")
        raise NotImplementedError("tensors with gaps that may share memory are not served")


def _replaced(out: torch.Tensor, self: torch.Tensor, source: torch.Tensor | float, places: Places) -> torch.Tensor:
    """``out``, a copy of ``self`` with ``source`` at ``places``."""
    if not _write_marked(out, self, source, places):
        copy_into(out, self)
        _write(out, source, places)
    return out


def _replace(self: torch.Tensor, source: torch.Tensor | float, places: Places) -> torch.Tensor:
    _require_writable(self, source)
    if not _write_marked(self, self, source, places):
        _write(self, source, places)
    return self


def _write_marked(out: torch.Tensor, self: torch.Tensor, source: torch.Tensor | float, places: Places) -> bool:
    """Write ``out`` in one pass over ``self``, if ``source`` is a number and slices are marked."""
    if isinstance(source, torch.Tensor):
        return False
    require_served(self)
    named = marked(out, places)
    if named is None:
        return False
    map_into(out, unless_named, [self, named], [self.dtype, named.dtype], [source])
    return True


def _write(out: torch.Tensor, source: torch.Tensor | float, places: Places) -> None:
    fitted = _fitted(source, places)
    if isinstance(fitted, torch.Tensor):
        write_indexed(as_bits(out), as_bits(fitted), places)
    else:
        require_served(out)
        write_indexed(out, fitted, places)


def _combined(
    out: torch.Tensor,
    self: torch.Tensor,
    source: torch.Tensor | float,
    places: Places,
    how: Combine,
    *,
    scale: float = 1,
) -> torch.Tensor:
    """``out``, a copy of ``self`` combined with ``source`` at ``places``."""
    require_served(self)
    combine(out, self, _fitted(source, places), places, how, scale=scale)
    return out


_REDUCTIONS = {
    "sum": Combine.ADD,
    "mean": Combine.ADD,
    "prod": Combine.MULTIPLY,
    "amax": Combine.MAXIMUM,
    "amin": Combine.MINIMUM,
}


def _reduced(
    out: torch.Tensor, self: torch.Tensor, source: torch.Tensor, places: Places, reduce: str, *, include_self: bool
) -> torch.Tensor:
    """``out``, a copy of ``self`` reduced with ``source`` at ``places``.

    Raises:
        ValueError: an unknown reduction.
    """
    if reduce not in _REDUCTIONS:
        raise ValueError(f"reduce must be one of {', '.join(_REDUCTIONS)}, not {reduce!r}")
    require_served(self)
    counts = None
    if reduce == "mean":
        counts = count_at(out, places, start=int(include_self))
    combine(out, self, _fitted(source, places), places, _REDUCTIONS[reduce], afresh=not include_self, counts=counts)
    return out
