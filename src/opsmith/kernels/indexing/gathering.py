"""Reads at places that index tensors give: gather, index, index_select, embedding, take.

``out[p] = x[p' + sum over k of index_k[p] * stride_k]``, where ``p'`` are the dimensions of the result that are also
dimensions of x. A tile loads an index once a row where it varies along rows only, as in an embedding, whose
columns are then contiguous reads. Traffic: the result is written once; as much of x is read, and the indices.

An index out of range, for which eager stops the device, reads as zero.

Suffixes: ``_A`` rows, ``_B`` columns, ``_S`` batch of a tile (see transposed_tiles.py), ``_I`` one entry per index
tensor.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits
from ..common.indexing import (
    Geometry,
    Ints,
    Layout,
    expanded_strides,
    index_type,
    merge_dims,
    normalized_dims,
    output_layout,
)
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import launch, layout_of, pdl_prologue, require_served
from ..common.transposed_tiles import (
    Cut,
    Side,
    TransposedTile,
    cut_dims,
    offset_in,
    programs,
    sides,
    sizes_of,
    tile_for,
    tile_indices,
)
from ..copies.rearrangements import copied
from .masking import nonzero


class Index(NamedTuple):
    """An index tensor: its strides in the result's dimensions, and the size and stride of the dimension it indexes."""

    tensor: torch.Tensor
    strides: Ints
    size: int
    stride: int


class Varies(enum.IntEnum):
    """Along which sides of a tile an index tensor varies."""

    ROWS = 0
    COLUMNS = 1
    BOTH = 2


_ROWS, _COLUMNS, _BOTH = (tl.constexpr(int(side)) for side in Varies)

# ---------------------------------------------------------------- the kernel


@triton.jit
def place_of(index: tl.tensor, size: tl.tensor, stride: tl.tensor, WRAP: tl.constexpr, INDEX: tl.constexpr) -> tl.tuple:
    """Offset that an index stands for, and whether it is in range; negative ones count from the end if WRAP."""
    i = index.to(INDEX)
    if WRAP:
        i = tl.where(i < 0, i + size, i)
    return i * stride, (i >= 0) & (i < size)


@triton.jit
def indexed_places(
    s: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    sides: tl.tuple,
    indices_I: tl.tuple,
    index_sides_I: tl.tuple,
    sizes_I: tl.tuple,
    strides_I: tl.tuple,
    VARIES_I: tl.constexpr,
    WRAP: tl.constexpr,
    INDEX: tl.constexpr,
) -> tl.tuple:
    """Offsets of a tile: by its own dimensions, ``sides``, and by all index tensors; and where all are in range."""
    here_A, here_B = a < rows, b < columns
    there_A, there_B = here_A, here_B
    place_A = offset_in(s, sides[0]) + offset_in(a, sides[1])
    place_B = offset_in(b, sides[2])
    for k in tl.static_range(len(indices_I)):
        index_S = indices_I[k] + offset_in(s, index_sides_I[k][0])
        if VARIES_I[k] == _ROWS:
            i_A = tl.load(index_S + offset_in(a, index_sides_I[k][1]), mask=here_A, other=0)
            offset_A, valid_A = place_of(i_A, sizes_I[k], strides_I[k], WRAP, INDEX)
            place_A += offset_A
            there_A = there_A & valid_A
        elif VARIES_I[k] == _COLUMNS:
            i_B = tl.load(index_S + offset_in(b, index_sides_I[k][2]), mask=here_B, other=0)
            offset_B, valid_B = place_of(i_B, sizes_I[k], strides_I[k], WRAP, INDEX)
            place_B += offset_B
            there_B = there_B & valid_B
    place_AB = place_A[:, None] + place_B[None, :]
    there_AB = there_A[:, None] & there_B[None, :]
    for k in tl.static_range(len(indices_I)):
        if VARIES_I[k] == _BOTH:
            index_S = indices_I[k] + offset_in(s, index_sides_I[k][0])
            index_AB = index_S + (
                offset_in(a, index_sides_I[k][1])[:, None] + offset_in(b, index_sides_I[k][2])[None, :]
            )
            i_AB = load_along_columns(index_AB, here_A[:, None] & here_B[None, :])
            offset_AB, valid_AB = place_of(i_AB, sizes_I[k], strides_I[k], WRAP, INDEX)
            place_AB += offset_AB
            there_AB = there_AB & valid_AB
    return place_AB, there_AB


@triton.jit
def gather_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    indices_I: tl.tuple,
    out_sides: tl.tuple,
    x_sides: tl.tuple,
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
    """``out[s, a, b] = x[s, a, b, indices[s, a, b]]`` for one tile."""
    pdl_prologue()
    s, a, b = tile_indices(rows, columns, INDEX, HEIGHT, WIDTH)
    place_AB, there_AB = indexed_places(
        s, a, b, rows, columns, x_sides, indices_I, index_sides_I, sizes_I, strides_I, VARIES_I, WRAP, INDEX
    )
    x_AB = load_along_columns(x_ptr + place_AB, there_AB)
    out = out_ptr + offset_in(s, out_sides[0])
    out_AB = out + (offset_in(a, out_sides[1])[:, None] + offset_in(b, out_sides[2])[None, :])
    store_along_columns(out_AB, x_AB, (a < rows)[:, None] & (b < columns)[None, :])


class Walk(NamedTuple):
    """How a kernel with index tensors walks the dimensions that it reads or writes in order.

    Attributes:
        tile: rows and columns of a program.
        programs: the number of programs.
        rows: of all tiles; ``columns`` likewise.
        sides_O: a side for each operand of the walk: what is walked in order, what is indexed.
        arguments: the index tensors as :func:`indexed_places` takes them.
        varies: along which sides of a tile each index tensor varies.
        offset_type: of the offsets.
    """

    tile: TransposedTile
    programs: int
    rows: int
    columns: int
    sides_O: tuple[tuple[Side, Side, Side], ...]
    arguments: tuple[tuple[object, ...], ...]
    varies: Ints
    offset_type: tl.dtype


def walk_indexed(
    ordered: torch.Tensor, indexed: torch.Tensor, strides: Ints, indices: Sequence[Index], *more: torch.Tensor
) -> Walk:
    """Plan a walk over ``ordered`` with a place in ``indexed`` for each element.

    Args:
        ordered: read or written in its own order.
        indexed: read or written where the index tensors say.
        strides: of ``indexed`` in the dimensions of ``ordered``; zero in those that only indices give.
        indices: their offsets are added.
        more: further tensors of the shape of ``ordered``; their sides follow those of the first two.
    """
    return walk_places(layout_of(ordered), ordered.element_size(), indexed, strides, indices, *more)


def walk_places(
    ordered: Layout, itemsize: int, indexed: torch.Tensor, strides: Ints, indices: Sequence[Index], *more: torch.Tensor
) -> Walk:
    """As :func:`walk_indexed`, of elements of so many bytes that lie, or are taken to lie, as ``ordered`` says."""
    shape, own = ordered
    # Where elements of ``ordered`` share memory, the order in which they are placed decides.
    order = sorted(range(len(shape)), key=lambda dim: own[dim] or strides[dim] or math.inf)
    operands = [own, strides, *(tensor.stride() for tensor in more), *(index.strides for index in indices)]
    geometry = merge_dims(shape, operands, order)
    cut = cut_dims(geometry)
    sizes = sizes_of(geometry, cut)
    near = [geometry.strides_ID[1][d] for d in (cut.rows[:1] or (0,))]
    transposed = bool(cut.rows) and 0 < near[0] < (geometry.strides_ID[1][0] or near[0])
    tile = tile_for(sizes, itemsize, indexed.device, transposed=transposed)
    given = range(2 + len(more), len(operands))
    arguments = (
        tuple(index.tensor for index in indices),
        tuple(sides(geometry, cut, operand) for operand in given),
        tuple(index.size for index in indices),
        tuple(index.stride for index in indices),
    )
    varies = tuple(int(_varies(geometry, cut, operand)) for operand in given)
    reach = Geometry(tuple(indexed.shape), (indexed.stride(),))
    sides_O = tuple(sides(geometry, cut, operand) for operand in range(2 + len(more)))
    return Walk(
        tile, programs(sizes, tile), sizes[1], sizes[2], sides_O, arguments, varies, index_type(geometry, reach)
    )


def _varies(geometry: Geometry, cut: Cut, operand: int) -> Varies:
    strides = geometry.strides_ID[operand]
    if not any(strides[d] for d in cut.columns):
        return Varies.ROWS
    return Varies.BOTH if any(strides[d] for d in cut.rows) else Varies.COLUMNS


def read_indexed(
    out: torch.Tensor, x: torch.Tensor, strides: Ints, indices: Sequence[Index], *, wrap: bool = False
) -> None:
    """Write to ``out`` the elements of ``x`` that its own dimensions, by ``strides``, and the indices give."""
    if out.numel() == 0:
        return
    walk = walk_indexed(out, x, strides, indices)
    launch(
        gather_kernel,
        (walk.programs,),
        out.device,
        out,
        x,
        walk.arguments[0],
        *walk.sides_O,
        *walk.arguments[1:],
        walk.rows,
        walk.columns,
        VARIES_I=walk.varies,
        WRAP=wrap,
        INDEX=walk.offset_type,
        HEIGHT=walk.tile.height,
        WIDTH=walk.tile.width,
    )


# ---------------------------------------------------------------- the ops


def gather(self: torch.Tensor, dim: int, index: torch.Tensor, *, sparse_grad: bool = False) -> torch.Tensor:  # noqa: ARG001 - Of backward.
    """``out[i, j] = self[index[i, j], j]`` along dimension 0, and so on.

    Raises:
        IndexError: ``dim`` out of range.
        ValueError: an index that has another number of dimensions or is larger than ``self`` elsewhere than in ``dim``.
        TypeError: an index that is neither int64 nor int32.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    out = torch.empty(index.shape, dtype=self.dtype, device=self.device)
    if index.numel() == 0:  # Of any type.
        return out
    require_index(index, self, dtypes=(torch.int64, torch.int32))
    check_along(self, index, axis)
    x, places = (as_bits(self), index) if self.ndim else (as_bits(self).view(1), index.view(-1))
    strides = tuple(0 if d == axis else stride for d, stride in enumerate(x.stride()))
    read_indexed(
        out.view(x.dtype).view(places.shape),
        x,
        strides,
        [Index(places, places.stride(), x.shape[axis], x.stride(axis))],
    )
    return out


def index_select(self: torch.Tensor, dim: int, index: torch.Tensor) -> torch.Tensor:
    """The slices of ``self`` along ``dim`` that ``index`` names.

    Raises:
        IndexError: ``dim`` out of range, or an index of more than one dimension.
        TypeError: an index that is neither int64 nor int32.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    require_index(index, self, dtypes=(torch.int64, torch.int32))
    if index.ndim > 1:
        raise IndexError("the index of index_select must be a vector")
    x = as_bits(self) if self.ndim else as_bits(self).view(1)
    shape = [index.numel() if d == axis else size for d, size in enumerate(x.shape)]
    out = torch.empty(shape, dtype=self.dtype, device=self.device)
    _select(out.view(x.dtype), x, axis, index.view(-1))
    return out if self.ndim else out.view(())


def _select(out: torch.Tensor, x: torch.Tensor, axis: int, index: torch.Tensor) -> None:
    strides = tuple(0 if d == axis else stride for d, stride in enumerate(x.stride()))
    places = tuple(index.stride(0) if d == axis else 0 for d in range(x.ndim))
    read_indexed(out, x, strides, [Index(index, places, x.shape[axis], x.stride(axis))])


def embedding(
    weight: torch.Tensor,
    indices: torch.Tensor,
    padding_idx: int = -1,  # noqa: ARG001 - Of backward, as the two below.
    scale_grad_by_freq: bool = False,  # noqa: ARG001
    sparse: bool = False,  # noqa: ARG001
) -> torch.Tensor:
    """The rows of ``weight`` that ``indices`` names.

    Raises:
        ValueError: ``weight`` is no matrix.
        TypeError: indices that are neither int64 nor int32.
    """
    if weight.ndim != 2:
        raise ValueError(f"the weight of an embedding must be a matrix, not of {weight.ndim} dimensions")
    require_index(indices, weight, dtypes=(torch.int64, torch.int32))
    x = as_bits(weight)
    out = torch.empty((*indices.shape, x.shape[1]), dtype=weight.dtype, device=weight.device)
    strides = (0,) * indices.ndim + (x.stride(1),)
    places = Index(indices, (*indices.stride(), 0), x.shape[0], x.stride(0))
    read_indexed(out.view(x.dtype), x, strides, [places])
    return out


def take(self: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """The elements of ``self`` that ``index`` names, as if it were flat; negative ones count from the end.

    Raises:
        IndexError: an element of an empty tensor is asked for.
        TypeError: an index that is not int64.
    """
    require_index(index, self)
    if self.numel() == 0 and index.numel():
        raise IndexError("an empty tensor has no elements to take")
    x = as_bits(self) if self.is_contiguous() else copied(as_bits(self))
    out = torch.empty(index.shape, dtype=self.dtype, device=self.device)
    read_indexed(out.view(x.dtype), x, (0,) * index.ndim, [Index(index, index.stride(), x.numel(), 1)], wrap=True)
    return out


def index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> torch.Tensor:
    """``self[indices]``: index tensors, of which those on the CPU are moved, broadcast; None keeps a dimension.

    Raises:
        IndexError: more indices than dimensions, an index that is no integer tensor, or indices that do not broadcast.
        NotImplementedError: a tensor that is not served.
    """
    plan = plan_index(self, indices)
    x = as_bits(self)
    out = torch.empty_strided(*plan.layout, dtype=self.dtype, device=self.device)
    read_indexed(out.view(x.dtype), x, plan.strides, plan.indices, wrap=True)
    return out


class IndexPlan(NamedTuple):
    """``self[indices]``: its shape and eager's strides, the strides of ``self`` in it, and the indices in it."""

    layout: tuple[Ints, Ints]
    strides: Ints
    indices: list[Index]


def plan_index(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> IndexPlan:
    """Lay out ``self[indices]``: the indexed dimensions come where the first one was, or first if they are scattered.

    Raises:
        IndexError: as :func:`index`.
        NotImplementedError: a tensor that is not served.
    """
    require_served(self, dtypes=[self.dtype])
    there = [one if one is None or one.device.type != "cpu" else one.to(self.device) for one in indices]
    expanded_indices = _without_masks(self, there)
    given = {d: tensor for d, tensor in enumerate(expanded_indices) if tensor is not None}
    if len(expanded_indices) > self.ndim or not given:
        raise IndexError(f"{len(indices)} indices do not fit a tensor of {self.ndim} dimensions")
    for tensor in given.values():
        require_index(tensor, self, dtypes=(torch.int64, torch.int32), error=IndexError)
    try:
        common = tuple(torch.broadcast_shapes(*(tensor.shape for tensor in given.values())))
    except RuntimeError as exc:
        raise IndexError("the indices do not broadcast together") from exc
    dims = sorted(given)
    first = dims[0] if dims == list(range(dims[0], dims[-1] + 1)) else 0
    kept = [d for d in range(self.ndim) if d not in given]
    before, after = [d for d in kept if d < first], [d for d in kept if d >= first]
    if first == 0 and dims[0] != 0:
        before, after = [], kept
    if 0 in (self.shape[d] for d in dims) and 0 not in common:
        raise IndexError("an empty dimension has no elements to index")

    def placed(middle: Sequence[int], own: Sequence[int], fill: int | None = None) -> Ints:
        outer = [[own[d] if fill is None else fill for d in side] for side in (before, after)]
        return (*outer[0], *middle, *outer[1])

    shape = placed(common, self.shape)
    strides = placed((0,) * len(common), self.stride())
    expanded = [
        Index(tensor, placed(expanded_strides(layout_of(tensor), common), (), 0), self.shape[d], self.stride(d))
        for d, tensor in given.items()
    ]
    operands = ((shape, strides), *((shape, one.strides) for one in expanded))
    return IndexPlan(output_layout(operands), strides, expanded)


def _without_masks(self: torch.Tensor, indices: Sequence[torch.Tensor | None]) -> list[torch.Tensor | None]:
    """The indices with each mask in the form of the coordinates where it is true.

    Raises:
        IndexError: a mask of another shape than the dimensions that it indexes.
    """
    given: list[torch.Tensor | None] = []
    for one in indices:
        if one is None or one.dtype not in (torch.bool, torch.uint8):
            given.append(one)
            continue
        if one.shape != self.shape[len(given) : len(given) + one.ndim]:
            raise IndexError(f"a mask of shape {list(one.shape)} does not fit {list(self.shape)}")
        given.extend(nonzero(one).unbind(1))
    return given


# ---------------------------------------------------------------- checks


def require_index(
    index: torch.Tensor,
    self: torch.Tensor,
    dtypes: Sequence[torch.dtype] = (torch.int64,),
    error: type[Exception] = TypeError,
) -> None:
    """Decline what is not served and refuse indices of other types.

    Raises:
        TypeError: or ``error``: the type of the index.
        NotImplementedError: tensors of several devices, or ones that are not served.
    """
    require_served(self, index, dtypes=[self.dtype, index.dtype])
    if index.dtype not in dtypes:
        raise error(f"indices must be {' or '.join(map(str, dtypes))}, not {index.dtype}")
    if index.device != self.device:
        raise NotImplementedError("indices on another device are not served")


def check_along(self: torch.Tensor, index: torch.Tensor, axis: int) -> None:
    """Refuse an index of gather or scatter that is larger than ``self`` in another dimension.

    Raises:
        ValueError: that, or another number of dimensions.
    """
    if max(self.ndim, 1) != max(index.ndim, 1):
        raise ValueError(f"an index of {index.ndim} dimensions does not fit a tensor of {self.ndim}")
    for d, (size, own) in enumerate(zip(index.shape, self.shape, strict=False)):
        if d != axis and size > own:
            raise ValueError(f"an index of size {size} does not fit dimension {d} of size {own}")
