"""Gradients of softmax and of its logarithm.

With y the output, ``dx = y * (dy - sum(dy * y))`` for softmax and ``dx = dy - exp(y) * sum(dy)`` for its logarithm,
sums over a row. A row that fits a tile is read once, ``(2 reads + 1 write) * numel * itemsize`` bytes; a longer one
is read for the sum, and again, from the cache, for dx. Rows are cut as in :mod:`.softmax`.

Suffixes: ``_M`` rows, ``_T`` columns of a tile; ``_L`` and ``_I`` as in :mod:`.unaligned_rows`.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims
from ..common.lanes import load_first_in_lane, store_first_in_lane
from ..common.launch import compute_dtype, compute_type, launch, loop_bound, pdl_prologue, require_served
from ..common.matrix import column_offsets, matrix_of, row_offsets, tile_columns, tile_rows
from ..norms.standardization import whole_rows
from .softmax import long_row_tiles
from .unaligned_rows import (
    RowCut,
    aligned,
    aligned_body,
    are_contiguous,
    are_unaligned,
    cut_rows,
    part_of_row,
    short_row_columns,
    short_rows,
)

# ---------------------------------------------------------------- in a kernel


@triton.jit
def summand(dy: tl.tensor, y: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    """What is summed over a row."""
    return dy if LOG else dy * y


@triton.jit
def gradient(dy: tl.tensor, y: tl.tensor, total: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    """Dx from the row's sum."""
    if LOG:
        dx = dy - tl.exp(y) * total
    else:
        dx = y * (dy - total)
    return dx


@triton.jit
def contiguous_sum(
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    dy_E: tl.tensor,
    y_E: tl.tensor,
    rest: tl.tensor,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tensor:
    """The sum over a contiguous row: its edges, and from the pointers on whole tiles and a rest."""
    t = tl.arange(0, BLOCK)
    sum_T = tl.zeros([BLOCK], COMPUTE)
    for step in range(steps):
        dy_T = tl.load(dy_ptr + step * BLOCK + t, eviction_policy="evict_last").to(COMPUTE)
        y_T = dy_T
        if not LOG:
            y_T = tl.load(y_ptr + step * BLOCK + t, eviction_policy="evict_last").to(COMPUTE)
        sum_T += summand(dy_T, y_T, LOG)
    dy_T = tl.load(dy_ptr + steps * BLOCK + t, mask=t < rest, other=0).to(COMPUTE)
    y_T = dy_T
    if not LOG:
        y_T = tl.load(y_ptr + steps * BLOCK + t, mask=t < rest, other=0).to(COMPUTE)
    return tl.sum(sum_T + summand(dy_T, y_T, LOG), axis=0) + tl.sum(summand(dy_E, y_E, LOG), axis=0)


# ---------------------------------------------------------------- the kernels


@triton.jit
def gradient_rows_kernel(
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole rows at once. ``strides`` are those of dy, y and dx."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
    dy_MT = row_offsets(m, shape, strides[0])[:, None] + column_offsets(j, k, shape, strides[0])[None, :]
    dy_MT = tl.load(dy_ptr + dy_MT, mask=inside, other=0).to(COMPUTE)
    y_MT = row_offsets(m, shape, strides[1])[:, None] + column_offsets(j, k, shape, strides[1])[None, :]
    y_MT = tl.load(y_ptr + y_MT, mask=inside, other=0).to(COMPUTE)
    sum_M = tl.sum(summand(dy_MT, y_MT, LOG), axis=1)
    dx_MT = converted(gradient(dy_MT, y_MT, sum_M[:, None], LOG), dx_ptr.dtype.element_ty)
    at_MT = row_offsets(m, shape, strides[2])[:, None] + column_offsets(j, k, shape, strides[2])[None, :]
    tl.store(dx_ptr + at_MT, dx_MT, mask=inside)


@triton.jit
def gradient_short_rows_kernel(
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    rows: tl.tensor,
    length: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_L: tl.constexpr,
) -> None:
    """Several whole contiguous rows at once: see :func:`~.unaligned_rows.short_rows`."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    t_IL = short_row_columns(BLOCK_I, BLOCK_L)
    inside = (m < rows)[None, :, None] & (t_IL < length)[:, None, :]
    dy_IML = (dy_ptr + row_offsets(m, shape, strides[0]))[None, :, None] + t_IL[:, None, :]
    y_IML = (y_ptr + row_offsets(m, shape, strides[1]))[None, :, None] + t_IL[:, None, :]
    dx_IML = (dx_ptr + row_offsets(m, shape, strides[2]))[None, :, None] + t_IL[:, None, :]
    dy_IML = load_first_in_lane(dy_IML, inside).to(COMPUTE)
    y_IML = load_first_in_lane(y_IML, inside).to(COMPUTE)
    sum_M = tl.sum(tl.sum(summand(dy_IML, y_IML, LOG), axis=0), axis=1)
    x_IML = gradient(dy_IML, y_IML, sum_M[None, :, None], LOG)
    store_first_in_lane(dx_IML, converted(x_IML, dx_ptr.dtype.element_ty), inside)


@triton.jit
def gradient_unaligned_rows_kernel(
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    length: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    SAME_ALIGNMENT: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A whole contiguous row at once: its edges and its body."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    dy_row = row_offsets(m, shape, strides[0])
    y_row = row_offsets(m, shape, strides[1])
    dx_row = row_offsets(m, shape, strides[2])
    head, body, e, is_edge_E = aligned_body(dy_row, length, VECTOR)
    t = tl.arange(0, BLOCK)
    is_body_T = t < body
    dy_T = tl.load(dy_ptr + aligned(dy_row + head, VECTOR) + t, mask=is_body_T, other=0).to(COMPUTE)
    y_T = tl.load(y_ptr + aligned(y_row + head, VECTOR if SAME_ALIGNMENT else 1) + t, mask=is_body_T, other=0).to(
        COMPUTE
    )
    dy_E = tl.load(dy_ptr + dy_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    y_E = tl.load(y_ptr + y_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    total = tl.sum(summand(dy_T, y_T, LOG), axis=0) + tl.sum(summand(dy_E, y_E, LOG), axis=0)
    dx_T = converted(gradient(dy_T, y_T, total, LOG), dx_ptr.dtype.element_ty)
    dx_E = converted(gradient(dy_E, y_E, total, LOG), dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + aligned(dx_row + head, VECTOR if SAME_ALIGNMENT else 1) + t, dx_T, mask=is_body_T)
    tl.store(dx_ptr + dx_row + e, dx_E, mask=is_edge_E)


@triton.jit
def gradient_contiguous_rows_kernel(
    dx_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    length: tl.tensor,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    SAME_ALIGNMENT: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """One row, or a part of one with sums in ``partial_SM``: see :func:`.softmax.softmax_contiguous_rows_kernel`."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    first, size = part_of_row(length)
    dy_row = row_offsets(m, shape, strides[0]) + first
    y_row = row_offsets(m, shape, strides[1]) + first
    dx_row = row_offsets(m, shape, strides[2]) + first
    head, body, e, is_edge_E = aligned_body(dy_row, size, VECTOR)
    dy_E = tl.load(dy_ptr + dy_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    y_E = tl.load(y_ptr + y_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    dx_E = dx_ptr + dx_row + e
    dy_ptr += aligned(dy_row + head, VECTOR)
    y_ptr += aligned(y_row + head, VECTOR if SAME_ALIGNMENT else 1)
    dx_ptr += aligned(dx_row + head, VECTOR if SAME_ALIGNMENT else 1)
    t = tl.arange(0, BLOCK)
    rest = body - steps * BLOCK
    if partial_ptr is None:
        total = contiguous_sum(dy_ptr, y_ptr, dy_E, y_E, rest, steps, LOG, COMPUTE, BLOCK)
    else:
        total = merged_sum(partial_ptr, m, tl.num_programs(0), tl.num_programs(1), BLOCK_S)
    dy_T = tl.load(dy_ptr + steps * BLOCK + t, mask=t < rest, other=0).to(COMPUTE)
    y_T = tl.load(y_ptr + steps * BLOCK + t, mask=t < rest, other=0).to(COMPUTE)
    dx_T = converted(gradient(dy_T, y_T, total, LOG), dx_ptr.dtype.element_ty)
    tl.store(dx_ptr + steps * BLOCK + t, dx_T, mask=t < rest)
    tl.store(dx_E, converted(gradient(dy_E, y_E, total, LOG), dx_ptr.dtype.element_ty), mask=is_edge_E)
    for step in range(steps):
        dy_T = tl.load(dy_ptr + step * BLOCK + t, eviction_policy="evict_first").to(COMPUTE)
        y_T = tl.load(y_ptr + step * BLOCK + t, eviction_policy="evict_first").to(COMPUTE)
        dx_T = converted(gradient(dy_T, y_T, total, LOG), dx_ptr.dtype.element_ty)
        tl.store(dx_ptr + step * BLOCK + t, dx_T, eviction_policy="evict_first")


@triton.jit
def contiguous_sums_kernel(
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    length: tl.tensor,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    SAME_ALIGNMENT: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The sum of each part of contiguous rows, as ``partial_SM``."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    first, size = part_of_row(length)
    dy_row = row_offsets(m, shape, strides[0]) + first
    y_row = row_offsets(m, shape, strides[1]) + first
    head, body, e, is_edge_E = aligned_body(dy_row, size, VECTOR)
    dy_E = tl.load(dy_ptr + dy_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    y_E = dy_E
    if not LOG:
        y_E = tl.load(y_ptr + y_row + e, mask=is_edge_E, other=0).to(COMPUTE)
    dy_ptr += aligned(dy_row + head, VECTOR)
    y_ptr += aligned(y_row + head, VECTOR if SAME_ALIGNMENT else 1)
    total = contiguous_sum(dy_ptr, y_ptr, dy_E, y_E, body - steps * BLOCK, steps, LOG, COMPUTE, BLOCK)
    tl.store(partial_ptr + tl.program_id(1).to(INDEX) * tl.num_programs(0) + m, total)


@triton.jit
def merged_sum(
    partial_ptr: tl.tensor, m: tl.tensor, M: tl.tensor, splits: tl.tensor, BLOCK_S: tl.constexpr
) -> tl.tensor:
    """The sum of row m, from those of its splits in ``partial_SM``."""
    s = tl.arange(0, BLOCK_S).to(m.dtype)
    return tl.sum(tl.load(partial_ptr + s * M + m, mask=s < splits, other=0), axis=0)


@triton.jit
def gradient_sums_kernel(
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """The sums of each split, as ``partial_SM``."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    sum_M = row_sum(
        dy_ptr, y_ptr, m, shape, strides, sizes, split * steps, steps, LOG, COMPUTE, BLOCK_M, BLOCK_J, BLOCK_K
    )
    tl.store(partial_ptr + split.to(INDEX) * sizes[0] + m, sum_M, mask=m < sizes[0])


@triton.jit
def row_sum(
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    m: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    first: tl.tensor,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tl.tensor:
    """The sums of the tiles ``first`` to ``first + steps``; the logarithm's gradient needs no y for them."""
    sum_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(first + step, sizes, m.dtype, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        dy_MT = row_offsets(m, shape, strides[0])[:, None] + column_offsets(j, k, shape, strides[0])[None, :]
        dy_MT = tl.load(dy_ptr + dy_MT, mask=inside, other=0).to(COMPUTE)
        y_MT = dy_MT
        if not LOG:
            y_MT = row_offsets(m, shape, strides[1])[:, None] + column_offsets(j, k, shape, strides[1])[None, :]
            y_MT = tl.load(y_ptr + y_MT, mask=inside, other=0).to(COMPUTE)
        sum_MT += summand(dy_MT, y_MT, LOG)
    return tl.sum(sum_MT, axis=1)


@triton.jit
def gradient_tiled_rows_kernel(
    dx_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    splits: tl.tensor,
    steps: tl.tensor,
    LOG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """BLOCK_M long rows, or one split of them, in ``steps`` tiles; ``partial_SM`` holds the sums of splits."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    if partial_ptr is None:
        sum_M = row_sum(dy_ptr, y_ptr, m, shape, strides, sizes, 0, steps, LOG, COMPUTE, BLOCK_M, BLOCK_J, BLOCK_K)
    elif BLOCK_M == 1:
        # Of a single row as a number: a tensor would have to be brought to the layout of the tiles.
        sum_M = merged_sum(partial_ptr, tl.sum(m, axis=0), sizes[0], splits, BLOCK_S) + tl.zeros([1], COMPUTE)
    else:
        s = tl.arange(0, BLOCK_S).to(INDEX)
        is_split_MS = (m < sizes[0])[:, None] & (s < splits)[None, :]
        sum_M = tl.sum(tl.load(partial_ptr + s[None, :] * sizes[0] + m[:, None], mask=is_split_MS, other=0), axis=1)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        dy_MT = row_offsets(m, shape, strides[0])[:, None] + column_offsets(j, k, shape, strides[0])[None, :]
        dy_MT = tl.load(dy_ptr + dy_MT, mask=inside, other=0).to(COMPUTE)
        y_MT = row_offsets(m, shape, strides[1])[:, None] + column_offsets(j, k, shape, strides[1])[None, :]
        y_MT = tl.load(y_ptr + y_MT, mask=inside, other=0).to(COMPUTE)
        dx_MT = converted(gradient(dy_MT, y_MT, sum_M[:, None], LOG), dx_ptr.dtype.element_ty)
        at_MT = row_offsets(m, shape, strides[2])[:, None] + column_offsets(j, k, shape, strides[2])[None, :]
        tl.store(dx_ptr + at_MT, dx_MT, mask=inside)


# ---------------------------------------------------------------- the ops


def softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    """The gradient of the input, which was of type ``input_dtype``: that of the output, or float16 for float32.

    Raises:
        ValueError: gradient and output differ in shape.
        TypeError: types that do not fit each other.
    """
    return _backward(grad_output, output, dim, input_dtype, log=False)


def log_softmax_backward(
    grad_output: torch.Tensor, output: torch.Tensor, dim: int, input_dtype: torch.dtype
) -> torch.Tensor:
    """As :func:`softmax_backward`, for the logarithm."""
    return _backward(grad_output, output, dim, input_dtype, log=True)


def _backward(dy: torch.Tensor, y: torch.Tensor, dim: int, result: torch.dtype, *, log: bool) -> torch.Tensor:
    require_served(dy, y, dtypes=FLOATS)
    if dy.shape != y.shape:
        raise ValueError(f"a gradient of {list(dy.shape)} does not fit an output of {list(y.shape)}")
    widened = (dy.dtype, result) == (torch.float32, torch.float16)
    if dy.dtype != y.dtype or not (result == dy.dtype or widened):
        raise TypeError(f"a gradient of {dy.dtype}, an output of {y.dtype} and an input of {result} do not fit")
    columns = normalized_dims(dim, dy.ndim)
    dx = torch.empty(dy.shape, dtype=result, device=dy.device)
    if not dx.numel():
        return dx
    matrix = matrix_of(dy.shape, [dy.stride(), y.stride(), dx.stride()], columns)
    strides = tuple(matrix.strides(operand) for operand in range(3))
    arguments = (matrix.shape, strides, matrix.sizes)
    constants: dict[str, Any] = {"LOG": log, "COMPUTE": compute_type(dy.dtype), "INDEX": matrix.index}
    tiles = whole_rows(matrix, dy.device, per_thread=16)
    if tiles is not None and are_unaligned(matrix, tiles):
        cut, grid = cut_rows(matrix, (dx, dy, y)), (matrix.sizes[0],)
        constants |= cut.whole(tiles.warps)
        launch(gradient_unaligned_rows_kernel, grid, dy.device, dx, dy, y, *arguments[:2], cut.length, **constants)
        return dx
    short = tiles and short_rows(matrix, tiles)
    if tiles is not None and short is not None:
        grid, sizes = (triton.cdiv(matrix.sizes[0], tiles.block_m),), (matrix.sizes[0], matrix.sizes[2])
        launch(gradient_short_rows_kernel, grid, dy.device, dx, dy, y, *arguments[:2], *sizes, **constants, **short)
        return dx
    if tiles is not None:
        grid = (triton.cdiv(matrix.sizes[0], tiles.block_m),)
        launch(gradient_rows_kernel, grid, dy.device, dx, dy, y, *arguments, **constants, **tiles.blocks())
        return dx
    if are_contiguous(matrix):
        _launch_contiguous_rows(dx, dy, y, arguments[:2], cut_rows(matrix, (dx, dy, y)), constants)
        return dx
    tiles = long_row_tiles(matrix, dy.device)
    constants |= tiles.blocks()
    grid_2d = (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits)
    steps = loop_bound(tiles.steps)
    partial_SM = None
    if tiles.splits > 1:
        shape = (tiles.splits, matrix.sizes[0])
        partial_SM = torch.empty(shape, dtype=compute_dtype(dy.dtype), device=dy.device)
        launch(gradient_sums_kernel, grid_2d, dy.device, partial_SM, dy, y, *arguments, steps, **constants)
    block_s = triton.next_power_of_2(tiles.splits)
    launch(
        gradient_tiled_rows_kernel,
        grid_2d,
        dy.device,
        dx,
        partial_SM,
        dy,
        y,
        *arguments,
        tiles.splits,
        steps,
        **constants,
        BLOCK_S=block_s,
    )
    return dx


def _launch_contiguous_rows(
    dx: torch.Tensor,
    dy: torch.Tensor,
    y: torch.Tensor,
    layout: tuple[Any, Any],
    cut: RowCut,
    constants: dict[str, Any],
) -> None:
    """Write dx, whose rows are contiguous; ``layout`` is the shape and the strides of the matrix."""
    arguments = (dy, y, *layout, *cut.sizes())
    constants = {**constants, **cut.options(), "SAME_ALIGNMENT": cut.same_alignment}
    partial_SM = None
    if cut.parts > 1:
        partial_SM = torch.empty((cut.parts, cut.rows), dtype=compute_dtype(dy.dtype), device=dy.device)
        launch(contiguous_sums_kernel, cut.grid(), dy.device, partial_SM, *arguments, **constants)
    block_s = triton.next_power_of_2(cut.parts)
    launch(
        gradient_contiguous_rows_kernel, cut.grid(), dy.device, dx, partial_SM, *arguments, **constants, BLOCK_S=block_s
    )
