"""Gradients of layer and RMS norm.

With ``xhat = (x - mean_M) * rstd_M``, ``g = dy * weight`` and means over a row

    dx = rstd_M * (g - mean(g) - xhat * mean(g * xhat)),    dweight = sum over rows of dy * xhat,    dbias = sum of dy;

an RMS norm has no mean, and ``mean(g)`` drops out of its dx. As many programs as the device holds walk over the rows,
write dx, and keep their own sums for weight and bias, so that x and dy are read once: ``3 * numel * itemsize`` bytes,
and a second launch that adds up the programs' sums::

               columns t, all of them
              +-----------------------+
      step 0  |     x_MT, dy_MT       |  -> dx_MT, from two means over each row
              +-----------------------+
      step 1  |          ...          |  -> dx_MT
              +-----------------------+
                 |     |     |     |
                 v     v     v     v     product_MT, sum_MT -> partial_S2N: dweight and dbias of one program

Rows too long for registers are read again: a launch for dx, whose programs read their row twice, and two for the sums.

Suffixes: ``_M`` rows, ``_T`` columns of a tile.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted
from ..common.launch import (
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
    require_served,
)
from ..common.matrix import Matrix, Tiling, column_offsets, matrix_of, row_offsets, row_strides, tile_columns, tiling
from .layer_norm import leading_dims
from .pair_sums import fold_pairs, load_tile, store_tile
from .standardization import along_dims, whole_rows

#: Elements of a tile of whole rows, at most and where there are enough rows, and of it in a thread: x, dy and two sums
#: take 64 registers.
TILE = 1 << 13
LEAST_TILE = 1 << 12
PER_THREAD = 16

# ---------------------------------------------------------------- the kernels


@triton.jit
def load_rows(
    pointer: tl.tensor, m: tl.tensor, M: tl.tensor, shape: tl.tuple, strides: tl.tuple, COMPUTE: tl.constexpr
) -> tl.tensor:
    """A statistic of the rows, or 0 if it is absent."""
    if pointer is None:
        value_M = tl.zeros(m.shape, COMPUTE)
    else:
        value_M = tl.load(pointer + row_offsets(m, shape, strides), mask=m < M, other=0).to(COMPUTE)
    return value_M


@triton.jit
def gradient_rows_kernel(
    dx_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole rows, ``steps`` tiles of them a program. ``strides`` are those of dy, x, dx, weight and the statistics."""
    pdl_prologue()
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    is_column_T = (j < sizes[1]) & (k < sizes[2])
    count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
    weight_T = tl.full([BLOCK_J * BLOCK_K], 1, COMPUTE)
    if weight_ptr is not None:
        weight_T = tl.load(weight_ptr + column_offsets(j, k, shape, strides[3]), mask=is_column_T, other=0).to(COMPUTE)
    product_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    sum_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        # Programs side by side read tiles side by side.
        m = (step * tl.num_programs(0) + tl.program_id(0)).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = (m < sizes[0])[:, None] & is_column_T[None, :]
        x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
        dy_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
        mean_M = load_rows(mean_ptr, m, sizes[0], shape, strides[4], COMPUTE)
        rstd_M = load_rows(rstd_ptr, m, sizes[0], shape, strides[4], COMPUTE)
        xhat_MT = (x_MT - mean_M[:, None]) * rstd_M[:, None]
        if dx_ptr is not None:
            # Behind a choice no compiler takes products unrounded to their sum: one less its own mean is 0.
            g_MT = tl.where(inside, dy_MT * weight_T[None, :], 0.0)
            share_M = tl.sum(g_MT * xhat_MT, axis=1) / count
            dx_MT = g_MT - xhat_MT * share_M[:, None]
            if mean_ptr is not None:
                dx_MT -= (tl.sum(g_MT, axis=1) / count)[:, None]
            store_tile(dx_ptr, dx_MT * rstd_M[:, None], m, j, k, inside, shape, strides[2])
        if partial_ptr is not None:
            product_MT += dy_MT * xhat_MT
            sum_MT += dy_MT
    if partial_ptr is not None:
        N = tl.full([1], sizes[1] * sizes[2], INDEX)
        at_T = partial_ptr + tl.program_id(0).to(INDEX) * 2 * N + j * sizes[2] + k
        tl.store(at_T, tl.sum(product_MT, axis=0), mask=is_column_T)
        tl.store(at_T + N, tl.sum(sum_MT, axis=0), mask=is_column_T)


@triton.jit
def gradient_tiled_rows_kernel(
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Dx of long rows, in ``steps`` tiles that are read twice."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    mean_M = load_rows(mean_ptr, m, sizes[0], shape, strides[4], COMPUTE)
    rstd_M = load_rows(rstd_ptr, m, sizes[0], shape, strides[4], COMPUTE)
    count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
    product_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    sum_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        g_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
        if weight_ptr is not None:
            g_MT *= load_tile(weight_ptr, m, j, k, inside, shape, strides[3], COMPUTE)
        x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
        product_MT += g_MT * (x_MT - mean_M[:, None])
        sum_MT += g_MT
    share_M = tl.sum(product_MT, axis=1) * rstd_M / count
    mean_g_M = tl.sum(sum_MT, axis=1) / count
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        g_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
        if weight_ptr is not None:
            g_MT *= load_tile(weight_ptr, m, j, k, inside, shape, strides[3], COMPUTE)
        x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
        dx_MT = g_MT - (x_MT - mean_M[:, None]) * (rstd_M * share_M)[:, None]
        if mean_ptr is not None:
            dx_MT -= mean_g_M[:, None]
        at_MT = row_offsets(m, shape, strides[2])[:, None] + column_offsets(j, k, shape, strides[2])[None, :]
        tl.store(dx_ptr + at_MT, converted(dx_MT * rstd_M[:, None], dx_ptr.dtype.element_ty), mask=inside)


@triton.jit
def column_sums_kernel(
    partial_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Sums of ``dy * xhat`` and of ``dy`` over ``steps * BLOCK_M`` rows, for one tile of columns a program."""
    pdl_prologue()
    j, k = tile_columns(tl.program_id(0), sizes, INDEX, BLOCK_J, BLOCK_K)
    is_column_T = (j < sizes[1]) & (k < sizes[2])
    split = tl.program_id(1).to(INDEX)
    product_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    sum_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        m = (split * steps + step) * BLOCK_M + tl.arange(0, BLOCK_M)
        inside = (m < sizes[0])[:, None] & is_column_T[None, :]
        x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
        dy_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
        mean_M = load_rows(mean_ptr, m, sizes[0], shape, strides[4], COMPUTE)
        rstd_M = load_rows(rstd_ptr, m, sizes[0], shape, strides[4], COMPUTE)
        product_MT += dy_MT * ((x_MT - mean_M[:, None]) * rstd_M[:, None])
        sum_MT += dy_MT
    N = tl.full([1], sizes[1] * sizes[2], INDEX)
    at_T = partial_ptr + split * 2 * N + j * sizes[2] + k
    tl.store(at_T, tl.sum(product_MT, axis=0), mask=is_column_T)
    tl.store(at_T + N, tl.sum(sum_MT, axis=0), mask=is_column_T)


# ---------------------------------------------------------------- the ops


def layer_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of input, weight and bias, as far as ``output_mask`` asks for them.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    require_served(grad_out, input, mean, rstd, weight, bias, dtypes=FLOATS)
    lead = leading_dims(input, normalized_shape, weight, bias)
    if (output_mask[1] and weight is None) or (output_mask[2] and bias is None):
        raise NotImplementedError("gradients of absent parameters are not served")
    dx = torch.empty(input.shape, dtype=input.dtype, device=input.device) if output_mask[0] else None
    dweight = torch.empty(weight.shape, dtype=weight.dtype, device=input.device) if output_mask[1] else None  # type: ignore[union-attr]
    dbias = torch.empty(bias.shape, dtype=bias.dtype, device=input.device) if output_mask[2] else None  # type: ignore[union-attr]
    gradients(grad_out, input, lead, (mean, rstd, weight), (dx, dweight, dbias))
    return dx, dweight, dbias


def rms_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Gradients of input and weight, as far as ``output_mask`` asks for them.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    require_served(grad_out, input, rstd, weight, dtypes=FLOATS)
    lead = leading_dims(input, normalized_shape, weight, None)
    if output_mask[1] and weight is None:
        raise NotImplementedError("the gradient of an absent weight is not served")
    dx = torch.empty(input.shape, dtype=input.dtype, device=input.device) if output_mask[0] else None
    dweight = torch.empty(weight.shape, dtype=weight.dtype, device=input.device) if output_mask[1] else None  # type: ignore[union-attr]
    gradients(grad_out, input, lead, (None, rstd, weight), (dx, dweight, None))
    return dx, dweight


def gradients(
    dy: torch.Tensor,
    x: torch.Tensor,
    lead: int,
    given: tuple[torch.Tensor | None, torch.Tensor, torch.Tensor | None],
    outputs: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None],
) -> None:
    """Fill the gradients that are not None.

    Args:
        dy: the gradient of the output.
        x: the input.
        lead: how many dimensions are rows.
        given: mean (None for an RMS norm), rstd and weight.
        outputs: of input, weight and bias.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    mean, rstd, weight = given
    columns = range(lead, x.ndim)
    rows = math.prod(x.shape[:lead])
    if dy.shape != x.shape or any(t is not None and t.numel() != rows for t in (mean, rstd)):
        raise ValueError(f"a gradient of {list(dy.shape)} does not fit an input of {list(x.shape)} and its statistics")
    if not all(t is None or t.is_contiguous() for t in (mean, rstd)):
        raise NotImplementedError("statistics with gaps are not served")
    dx, dweight, dbias = outputs
    if all(t is None or not t.numel() for t in outputs):
        return
    laid_out = [dy.stride(), x.stride(), (x if dx is None else dx).stride()]
    weights = along_dims(weight, x, columns)
    laid_out += [(0,) * x.ndim if weights is None else weights.stride(), row_strides(x.shape, columns)]
    matrix = matrix_of(x.shape, laid_out, columns, ordered=True)
    partial = _launch_gradients(dx, (dy, x, mean, rstd, weight), matrix, sums=not (dweight is None and dbias is None))
    if partial is not None:
        N = matrix.sizes[1] * matrix.sizes[2]
        fold_pairs(dweight, dbias, partial, Geometry((partial.shape[0],), ((2 * N,),)), N)


Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor | None]


def _launch_gradients(
    dx: torch.Tensor | None, operands: Operands, matrix: Matrix, *, sums: bool
) -> torch.Tensor | None:
    """Write dx, and return the partial sums ``p_S2N`` if they are asked for."""
    x = operands[1]
    M, J, K = matrix.sizes
    strides = tuple(matrix.strides(operand) for operand in range(5))
    common = {"COMPUTE": compute_type(x.dtype), "INDEX": matrix.index}
    dtype = compute_dtype(x.dtype)
    if M == 0:
        return torch.empty((0, 2, J * K), dtype=dtype, device=x.device)
    tiles = whole_rows(matrix, x.device, most=TILE, per_thread=PER_THREAD, least=LEAST_TILE)
    if tiles is None:
        if dx is not None:
            _launch_tiled_rows(dx, operands, matrix)
        return _launch_column_sums(operands, matrix) if sums else None
    blocks = triton.cdiv(M, tiles.block_m)
    programs = min(blocks, 2 * multiprocessors(x.device)) if sums else blocks
    partial = torch.empty((programs, 2, J * K), dtype=dtype, device=x.device) if sums else None
    launch(
        gradient_rows_kernel,
        (programs,),
        x.device,
        dx,
        partial,
        *operands,
        matrix.shape,
        strides,
        matrix.sizes,
        loop_bound(triton.cdiv(blocks, programs)),
        **common,
        **tiles.blocks(),
    )
    return partial


def _launch_tiled_rows(dx: torch.Tensor, operands: Operands, matrix: Matrix) -> None:
    x = operands[1]
    tiles = tiling(matrix, x.device, split=False)
    launch(
        gradient_tiled_rows_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m),),
        x.device,
        dx,
        *operands,
        matrix.shape,
        tuple(matrix.strides(operand) for operand in range(5)),
        matrix.sizes,
        loop_bound(tiles.steps),
        COMPUTE=compute_type(x.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )


def _launch_column_sums(operands: Operands, matrix: Matrix) -> torch.Tensor:
    x = operands[1]
    M, J, K = matrix.sizes
    tiles = _column_tiling(matrix)
    programs = triton.cdiv(J, tiles.block_j) * triton.cdiv(K, tiles.block_k)
    blocks = triton.cdiv(M, tiles.block_m)
    splits = min(blocks, max(4 * multiprocessors(x.device) // programs, 1))
    steps = triton.cdiv(blocks, splits)
    partial = torch.empty((triton.cdiv(blocks, steps), 2, J * K), dtype=compute_dtype(x.dtype), device=x.device)
    launch(
        column_sums_kernel,
        (programs, partial.shape[0]),
        x.device,
        partial,
        *operands[:4],
        matrix.shape,
        tuple(matrix.strides(operand) for operand in range(5)),
        matrix.sizes,
        loop_bound(steps),
        COMPUTE=compute_type(x.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return partial


def _column_tiling(matrix: Matrix) -> Tiling:
    """Tiles of 128 columns and 16 rows, or the other way round where rows are faster."""
    K = matrix.sizes[2]
    wide = triton.next_power_of_2(K)
    if INTERPRETED:
        return Tiling(16, 1, min(wide, 4096), 0, 0, 4)
    block_k = min(wide, 16 if matrix.rows_are_faster else 128)
    return Tiling(2048 // block_k, 1, block_k, 0, 0, 4)
