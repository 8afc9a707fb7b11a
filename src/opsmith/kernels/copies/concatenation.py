"""Concatenation along a dimension.

Seen from that dimension, the result is a matrix ``out_RC`` of which every input fills some columns: all of them are
written by one launch, which finds out for each tile whose columns it covers. ``2 * numel * itemsize`` bytes.
Where inputs have no such rows, one launch finds each element's place by the dimensions, if what is behind the joined
one is contiguous in every input; else each has a launch of its own.

Suffixes: ``_R`` rows, ``_C`` columns, ``_I`` one entry per input, ``_D`` one per dimension before the joined one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits
from ..common.indexing import Geometry, Ints, contiguous_strides, dense_strides, merge_dims, normalized_dims
from ..common.launch import launch, layout_of, pdl_prologue, pick_device, require_served
from ..common.promotion import promoted
from ..common.transposed_tiles import tile_for
from .rearrangements import copied, copy_into, fill

#: How many inputs a launch takes. The number is part of a compilation, so that few numbers are used.
INPUTS = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)

#: Slices of fewer contiguous elements are left to copies, which may be transposed.
_SHORTEST_SLICE = 16


@triton.jit(do_not_specialize=["row_strides_I", "ends_I", "last_programs_I"])
def join_kernel(
    out_ptr: tl.tensor,
    inputs_I: tl.tuple,
    row_strides_I: tl.tuple,
    ends_I: tl.tuple,
    last_programs_I: tl.tuple,
    out_stride: tl.tensor,
    rows: tl.tensor,
    ALIGNED: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Copy one tile of the input that this program falls to.

    Input i has the programs before ``last_programs_I[i]`` and the columns before ``ends_I[i]``, from where its
    predecessor ends. ALIGNED divides every number of columns and every stride.
    """
    pdl_prologue()
    program = tl.program_id(0)
    x_ptr, row_stride, start, end, first = inputs_I[0], row_strides_I[0], 0, ends_I[0], 0
    for i in tl.static_range(1, len(inputs_I)):
        mine = program >= last_programs_I[i - 1]
        x_ptr = tl.where(mine, inputs_I[i], x_ptr)
        row_stride = tl.where(mine, row_strides_I[i], row_stride)
        start = tl.where(mine, ends_I[i - 1], start)
        end = tl.where(mine, ends_I[i], end)
        first = tl.where(mine, last_programs_I[i - 1], first)
    start, row_stride = tl.multiple_of(start, ALIGNED), tl.multiple_of(row_stride, ALIGNED)
    columns = tl.multiple_of(end - start, ALIGNED)
    across = tl.cdiv(columns, WIDTH)
    tile = program - first
    c = (tile % across).to(INDEX) * WIDTH + tl.arange(0, WIDTH)
    r = (tile // across).to(INDEX) * HEIGHT + tl.arange(0, HEIGHT)
    inside = (r < rows)[:, None] & (c < columns)[None, :]
    x_RC = tl.load(x_ptr + (r * row_stride)[:, None] + c[None, :], mask=inside)
    tl.store(out_ptr + start + (r * out_stride)[:, None] + c[None, :], x_RC, mask=inside)


@triton.jit(do_not_specialize=["depth_strides_I", "ends_I", "last_programs_I"])
def join_slices_kernel(
    out_ptr: tl.tensor,
    inputs_I: tl.tuple,
    depth_strides_I: tl.tuple,
    outer_strides_DI: tl.tuple,
    outer_shape_D: tl.tuple,
    ends_I: tl.tuple,
    last_programs_I: tl.tuple,
    depth: tl.tensor,
    outer: tl.tensor,
    C: tl.tensor,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[o, start + m, c] = x[o, m, c]`` for one tile of the input x that this program falls to.

    Input i has the programs before ``last_programs_I[i]`` and ends at ``ends_I[i]`` of the result's ``depth``.
    """
    pdl_prologue()
    program = tl.program_id(0)
    x_ptr, depth_stride, start, end, first = inputs_I[0], depth_strides_I[0], 0, ends_I[0], 0
    for i in tl.static_range(1, len(inputs_I)):
        mine = program >= last_programs_I[i - 1]
        x_ptr = tl.where(mine, inputs_I[i], x_ptr)
        depth_stride = tl.where(mine, depth_strides_I[i], depth_stride)
        start = tl.where(mine, ends_I[i - 1], start)
        end = tl.where(mine, ends_I[i], end)
        first = tl.where(mine, last_programs_I[i - 1], first)
    across = tl.cdiv(C, WIDTH)
    tile = program - first
    c = (tile % across).to(INDEX) * WIDTH + tl.arange(0, WIDTH)
    r = (tile // across).to(INDEX) * HEIGHT + tl.arange(0, HEIGHT)
    size = end - start
    o, m = r // size, r % size
    inside = (o < outer)[:, None] & (c < C)[None, :]
    x_R = m * depth_stride
    left = o
    for d in tl.static_range(len(outer_shape_D)):
        outer_stride = outer_strides_DI[d][0]
        for i in tl.static_range(1, len(inputs_I)):
            outer_stride = tl.where(program >= last_programs_I[i - 1], outer_strides_DI[d][i], outer_stride)
        x_R += (left % outer_shape_D[d]) * outer_stride
        left = left // outer_shape_D[d]
    x_RC = tl.load(x_ptr + x_R[:, None] + c[None, :], mask=inside)
    tl.store(out_ptr + ((o * depth + start + m) * C)[:, None] + c[None, :], x_RC, mask=inside)


class Columns(NamedTuple):
    """An input as columns of the result: where they begin, how many, and the input's stride between rows."""

    source: torch.Tensor
    start: int
    width: int
    row_stride: int


def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Join ``tensors`` along ``dim`` in their promoted type. Empty 1-d tensors fit everything, as in eager.

    Inputs of one type move as bits, so complex64 and float8 are served.

    Raises:
        ValueError: no tensors, or shapes that do not fit.
        IndexError: ``dim`` out of range.
    """
    if not tensors or any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError("cat needs at least one tensor, and none without dimensions")
    shaped = [tensor for tensor in tensors if tuple(tensor.shape) != (0,)] or list(tensors)
    (axis,) = normalized_dims(dim, shaped[0].ndim)
    shape = _joined_shape(shaped, axis)
    result = tensors[0].dtype if len({tensor.dtype for tensor in tensors}) == 1 else promoted(tensors)
    strides = _joined_strides(tensors, shape)
    out = torch.empty_strided(shape, strides, dtype=result, device=pick_device(tensors))
    if len({tensor.dtype for tensor in tensors}) > 1:
        require_served(*tensors)
        starts = itertools.accumulate((tensor.shape[axis] for tensor in shaped), initial=0)
        for tensor, start in zip(shaped, starts, strict=False):
            copy_into(out.narrow(axis, start, tensor.shape[axis]), tensor)
        return out
    # With the result's dimensions in the order of its memory, its columns are contiguous.
    order = sorted(range(out.ndim), key=lambda d: -strides[d])
    _join(as_bits(out).permute(order), [as_bits(tensor).permute(order) for tensor in shaped], order.index(axis))
    return out


def stack(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Join ``tensors`` of one shape along a new dimension.

    Raises:
        ValueError: no tensors, or several shapes.
        IndexError: ``dim`` out of range.
    """
    if not tensors or any(tensor.shape != tensors[0].shape for tensor in tensors):
        raise ValueError("stack needs at least one tensor, and all of one shape")
    (axis,) = normalized_dims(dim, tensors[0].ndim + 1)
    return cat([tensor.unsqueeze(axis) for tensor in tensors], axis)


def chunk_cat(tensors: Sequence[torch.Tensor], dim: int, num_chunks: int) -> torch.Tensor:
    """Cut each tensor into ``num_chunks`` along ``dim``, flatten the chunks and join those of one number in a row.

    The last chunks are filled up with zeros.

    Raises:
        ValueError: no tensors, no chunks, several types, or sizes before ``dim`` that differ.
        IndexError: ``dim`` out of range.
    """
    if not tensors or num_chunks < 1 or len({tensor.dtype for tensor in tensors}) > 1:
        raise ValueError("_chunk_cat needs tensors of one type and at least one chunk")
    (axis,) = normalized_dims(dim, tensors[0].ndim)
    outer = tuple(tensors[0].shape[:axis])
    if any(tensor.ndim <= axis or tuple(tensor.shape[:axis]) != outer for tensor in tensors):
        raise ValueError(f"the tensors must agree in the dimensions before {axis}")
    if any(0 in tensor.shape for tensor in tensors):
        raise ValueError("_chunk_cat takes no empty tensors")
    depths = [-(-tensor.shape[axis] // num_chunks) for tensor in tensors]
    inner = [math.prod(tensor.shape[axis + 1 :]) for tensor in tensors]
    widths = [depth * size for depth, size in zip(depths, inner, strict=True)]
    shape = (*outer, num_chunks, sum(widths))
    out = torch.empty(shape, dtype=tensors[0].dtype, device=tensors[0].device)
    _fill_chunks(as_bits(out), [as_bits(tensor) for tensor in tensors], widths, axis)
    return out


def _fill_chunks(out: torch.Tensor, tensors: Sequence[torch.Tensor], widths: Sequence[int], axis: int) -> None:
    if any(width * out.shape[axis] != math.prod(t.shape[axis:]) for width, t in zip(widths, tensors, strict=True)):
        fill(out, 0)
    starts = itertools.accumulate(widths, initial=0)
    for tensor, start, width in zip(tensors, starts, widths, strict=False):
        flat = (tensor if tensor.is_contiguous() else copied(tensor)).flatten(axis)
        whole = flat.shape[-1] // width
        columns = out.narrow(-1, start, width)
        copy_into(columns.narrow(-2, 0, whole), flat.narrow(-1, 0, whole * width).unflatten(-1, (whole, width)))
        if rest := flat.shape[-1] - whole * width:
            copy_into(columns.select(-2, whole).narrow(-1, 0, rest), flat.narrow(-1, whole * width, rest))


def _grown(tensor: torch.Tensor, ndim: int) -> torch.Tensor:
    """With dimensions of size 1 in front, up to ``ndim`` of them."""
    for _ in range(ndim - tensor.ndim):
        tensor = tensor.unsqueeze(0)
    return tensor


def block_diag(tensors: Sequence[torch.Tensor]) -> torch.Tensor:
    """A matrix of zeros with the given matrices along its diagonal; numbers and vectors are rows.

    Raises:
        ValueError: a tensor of more than two dimensions.
    """
    if any(tensor.ndim > 2 for tensor in tensors):
        raise ValueError("block_diag takes tensors of at most two dimensions")
    blocks = [_grown(tensor, 2) for tensor in tensors]
    shape = [sum(block.shape[d] for block in blocks) for d in range(2)]
    out = torch.empty(shape, dtype=promoted(tensors), device=pick_device(tensors))
    fill(as_bits(out), 0)
    row = column = 0
    for block in blocks:
        height, width = block.shape
        copy_into(out.narrow(0, row, height).narrow(1, column, width), block)
        row, column = row + height, column + width
    return out


# ---------------------------------------------------------------- the result's form


def _joined_shape(tensors: Sequence[torch.Tensor], axis: int) -> Ints:
    first = tensors[0].shape
    for tensor in tensors:
        fits = tensor.ndim == len(first) and all(
            d == axis or own == other for d, (own, other) in enumerate(zip(tensor.shape, first, strict=True))
        )
        if not fits:
            raise ValueError(f"shapes {list(first)} and {list(tensor.shape)} do not join along dimension {axis}")
    joined = list(first)
    joined[axis] = sum(tensor.shape[axis] for tensor in tensors)
    return tuple(joined)


def _joined_strides(tensors: Sequence[torch.Tensor], shape: Ints) -> Ints:
    """Channels-last strides where every input has them, else row-major."""
    for order in ((1, 3, 2, 0), (1, 4, 3, 2, 0)):
        if len(order) == len(shape) and all(_is_dense_in(tensor, order) for tensor in tensors):
            return dense_strides(shape, order)
    return contiguous_strides(shape)


def _is_dense_in(tensor: torch.Tensor, order: Ints) -> bool:
    return tensor.ndim == len(order) and tensor.stride() == dense_strides(tuple(tensor.shape), order)


# ---------------------------------------------------------------- writing it


def _join(out: torch.Tensor, tensors: Sequence[torch.Tensor], axis: int) -> None:
    """Write ``tensors`` into the contiguous ``out`` along ``axis``."""
    inner = math.prod(out.shape[axis + 1 :])
    if _are_slices(tensors, axis, inner):
        _launch_join_slices(out, tuple(tensor for tensor in tensors if tensor.numel()), axis)
        return
    start, joined = 0, []
    for tensor in tensors:
        size = tensor.shape[axis]
        if tensor.numel():
            columns = _as_columns(tensor, axis, start * inner)
            if columns is None:
                copy_into(out.narrow(axis, start, size), tensor)
            else:
                joined.append(columns)
        start += size
    row_length = out.shape[axis] * inner
    for chunk in _chunks(joined):
        _launch_join(out, chunk, row_length)


def _as_columns(tensor: torch.Tensor, axis: int, start: int) -> Columns | None:
    """The tensor as columns from ``start``, if its own rows are contiguous and equally far from each other."""
    shape, strides = layout_of(tensor)
    inner = merge_dims(shape, [strides], range(tensor.ndim - 1, axis - 1, -1))
    outer = merge_dims(shape, [strides], range(axis - 1, -1, -1))
    count = inner.numel()
    if len(inner.shape_D) > 1 or len(outer.shape_D) > 1 or (count > 1 and inner.strides_ID[0] != (1,)):
        return None
    return Columns(tensor, start, count, outer.strides_ID[0][0])


def _are_slices(tensors: Sequence[torch.Tensor], axis: int, inner: int) -> bool:
    """Whether several tensors are no columns, and all are contiguous from behind ``axis`` on."""
    filled = [tensor for tensor in tensors if tensor.numel()]
    if len(filled) > INPUTS[-1] or inner < _SHORTEST_SLICE:
        return False
    others = sum(_as_columns(tensor, axis, 0) is None for tensor in filled)
    return others > 1 and all(_slice_of(tensor, axis).strides_ID == ((1,),) for tensor in filled)


def _slice_of(tensor: torch.Tensor, axis: int) -> Geometry:
    shape, strides = layout_of(tensor)
    return merge_dims(shape, [strides], range(tensor.ndim - 1, axis, -1))


def _launch_join_slices(out: torch.Tensor, tensors: tuple[torch.Tensor, ...], axis: int) -> None:
    sizes = [tensor.shape[axis] for tensor in tensors]
    outer = merge_dims(tuple(out.shape), [tensor.stride() for tensor in tensors], range(axis - 1, -1, -1))
    inner, rows = math.prod(out.shape[axis + 1 :]), outer.numel()
    mean = -(-rows * sum(sizes) // len(sizes))
    tile = tile_for((len(sizes), mean, inner), out.dtype.itemsize, out.device, transposed=False)
    across = triton.cdiv(inner, tile.width)
    last_programs = list(itertools.accumulate(triton.cdiv(rows * size, tile.height) * across for size in sizes))
    ends = list(itertools.accumulate(sizes))
    # Inputs without programs fill up the number.
    missing = next(number for number in INPUTS if number >= len(sizes)) - len(sizes)
    inputs = tensors + tensors[-1:] * missing
    reaches = [Geometry(tuple(tensor.shape), (tensor.stride(),)).reach() for tensor in tensors]
    fits = max(out.numel(), *reaches) < (1 << 31) - (1 << 20)
    launch(
        join_slices_kernel,
        (last_programs[-1],),
        out.device,
        out,
        inputs,
        tuple(tensor.stride(axis) for tensor in inputs),
        tuple(strides_I + strides_I[-1:] * missing for strides_I in zip(*outer.strides_ID, strict=True)),
        outer.shape_D,
        tuple(ends + ends[-1:] * missing),
        tuple(last_programs + last_programs[-1:] * missing),
        out.shape[axis],
        rows,
        inner,
        INDEX=tl.int32 if fits else tl.int64,
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )


def _chunks(columns: Sequence[Columns]) -> Iterable[Sequence[Columns]]:
    """Neighbours in the result, as many as a launch takes."""
    chunk: list[Columns] = []
    for one in columns:
        adjacent = chunk and chunk[-1].start + chunk[-1].width == one.start
        if chunk and (not adjacent or len(chunk) == INPUTS[-1]):
            yield chunk
            chunk = []
        chunk.append(one)
    if chunk:
        yield chunk


def _launch_join(out: torch.Tensor, columns: Sequence[Columns], row_length: int) -> None:
    rows = out.numel() // row_length
    origin = columns[0].start
    # Columns of the mean width, so that narrow inputs waste few lanes and wide ones take several tiles.
    mean = -(-sum(one.width for one in columns) // len(columns))
    tile = tile_for((len(columns), rows, mean), out.dtype.itemsize, out.device, transposed=False)
    tiles = [triton.cdiv(rows, tile.height) * triton.cdiv(one.width, tile.width) for one in columns]
    last_programs = list(itertools.accumulate(tiles))
    ends = [one.start + one.width - origin for one in columns]
    # Inputs without columns fill up the number.
    missing = next(number for number in INPUTS if number >= len(columns)) - len(columns)
    numbers = [row_length, origin, *ends, *(one.row_stride for one in columns)]
    fits = max(numbers[-1] * rows, out.numel(), *(one.row_stride * rows for one in columns)) < (1 << 31) - (1 << 20)
    launch(
        join_kernel,
        (last_programs[-1],),
        out.device,
        out.flatten().narrow(0, origin, out.numel() - origin),
        tuple(one.source for one in columns) + (columns[-1].source,) * missing,
        tuple(one.row_stride for one in columns) + (columns[-1].row_stride,) * missing,
        tuple(ends + ends[-1:] * missing),
        tuple(last_programs + last_programs[-1:] * missing),
        row_length,
        rows,
        ALIGNED=math.gcd(16, *numbers),
        INDEX=tl.int32 if fits else tl.int64,
        HEIGHT=tile.height,
        WIDTH=tile.width,
    )
