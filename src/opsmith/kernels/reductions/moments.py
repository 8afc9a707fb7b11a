"""Means and variances over any dimensions: var, std, var_mean, std_mean.

A program reads its columns once and keeps, in every lane, the sums of ``d = x - shift`` and of ``d^2``, with the mean
of its first tile as the row's shift. Then ``mean = shift + sum d / n``, and the squared deviations add up to ``sum
d^2 - (sum d)^2 / n``. That cancels only where the shift is far from the mean, and it cannot be far: if the first tile
is a share p of the columns and its mean lies at a distance of ``(1 - p) D`` from the whole mean, the deviations add
up to at least ``n p (1 - p) D^2``, so the subtrahend exceeds the result at most ``1 / p`` times: as many as there are
tiles. (``E[x^2] - E[x]^2`` has no such bound.) Splits are merged by the formula of Chan, Golub and LeVeque (1979).
Traffic: ``numel * itemsize`` bytes read, and what is written per row.

Suffixes: ``_M`` kept, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims, number
from ..common.launch import (
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.matrix import (
    Matrix,
    Tiling,
    column_offsets,
    matrix_of,
    row_offsets,
    row_strides,
    side,
    tile_columns,
    tile_rows,
    tiling,
)
from .reductions import split_matrix

# ---------------------------------------------------------------- in a kernel


@triton.jit
def row_moments(
    row_M: tl.tensor,
    is_row_M: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    first: tl.tensor,
    steps: tl.tensor,
    CENTRE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tl.tuple:
    """Of ``steps`` tiles from ``first`` on: the number of columns, each row's mean and sum of squared deviations.

    ``row_M`` points at the rows. Without a column the mean is NaN. Unless ``CENTRE`` the mean is taken as 0.
    """
    j, k = tile_columns(first, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside_T = (j < sizes[1]) & (k < sizes[2])
    inside = is_row_M[:, None] & inside_T[None, :]
    x_MT = tl.load(row_M[:, None] + column_offsets(j, k, shape, strides)[None, :], mask=inside, other=0).to(COMPUTE)
    count_T = inside_T.to(COMPUTE)
    if CENTRE:
        shift_M = tl.sum(x_MT, axis=1) / tl.sum(count_T, axis=0)
    else:
        shift_M = tl.sum(tl.zeros_like(x_MT), axis=1)
    sum_MT = tl.where(inside, x_MT - shift_M[:, None], 0)
    squares_MT = sum_MT * sum_MT
    for step in range(1, steps):
        j, k = tile_columns(first + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside_T = (j < sizes[1]) & (k < sizes[2])
        inside = is_row_M[:, None] & inside_T[None, :]
        x_MT = tl.load(row_M[:, None] + column_offsets(j, k, shape, strides)[None, :], mask=inside, other=0).to(COMPUTE)
        shifted_MT = tl.where(inside, x_MT - shift_M[:, None], 0)
        sum_MT += shifted_MT
        squares_MT += shifted_MT * shifted_MT
        count_T += inside_T.to(COMPUTE)
    count = tl.sum(count_T, axis=0)
    squares_M = tl.sum(squares_MT, axis=1)
    mean_M = shift_M
    if CENTRE:
        sum_M = tl.sum(sum_MT, axis=1)
        mean_M += sum_M / count
        squares_M -= sum_M * (sum_M / count)
        # Rounding may leave less than nothing.
        squares_M = tl.where(squares_M < 0, 0.0, squares_M).to(COMPUTE)
    return count, mean_M, squares_M


@triton.jit
def store_moments(
    partial_ptr: tl.tensor,
    m: tl.tensor,
    M: tl.tensor,
    split: tl.tensor,
    count: tl.tensor,
    mean_M: tl.tensor,
    squares_M: tl.tensor,
) -> None:
    """Write what :func:`merged_moments` reads: ``partial_S3M``."""
    row_M = partial_ptr + split.to(m.dtype) * 3 * M + m
    tl.store(row_M, count + tl.zeros_like(mean_M), mask=m < M)
    tl.store(row_M + M, mean_M, mask=m < M)
    tl.store(row_M + 2 * M, squares_M, mask=m < M)


@triton.jit
def merged_moments(
    partial_ptr: tl.tensor, m: tl.tensor, M: tl.tensor, splits: tl.tensor, BLOCK_S: tl.constexpr
) -> tl.tuple:
    """The number of columns, mean and squared deviations of each row, from those of its splits (Chan et al., 1979)."""
    s = tl.arange(0, BLOCK_S).to(m.dtype)
    if m.shape[0] == 1:
        # Of a single row as numbers: tensors would have to be brought to the layout of the tiles.
        at_S = partial_ptr + s * 3 * M + tl.sum(m, axis=0)
        count_S = tl.load(at_S, mask=s < splits, other=0)
        mean_S = tl.load(at_S + M, mask=s < splits, other=0)
        squares_S = tl.load(at_S + 2 * M, mask=s < splits, other=0)
        count = tl.sum(count_S, axis=0)
        mean = tl.sum(mean_S * count_S, axis=0) / count
        squares = tl.sum(squares_S + count_S * (mean_S - mean) * (mean_S - mean), axis=0)
        count_M, mean_M, squares_M = (
            count + tl.zeros([1], count.dtype),
            mean + tl.zeros([1], mean.dtype),
            squares + tl.zeros([1], mean.dtype),
        )
    else:
        inside = (m < M)[:, None] & (s < splits)[None, :]
        at_MS = partial_ptr + s[None, :] * 3 * M + m[:, None]
        count_MS = tl.load(at_MS, mask=inside, other=0)
        mean_MS = tl.load(at_MS + M, mask=inside, other=0)
        squares_MS = tl.load(at_MS + 2 * M, mask=inside, other=0)
        count_M = tl.sum(count_MS, axis=1)
        mean_M = tl.sum(mean_MS * count_MS, axis=1) / count_M
        delta_MS = mean_MS - mean_M[:, None]
        squares_M = tl.sum(squares_MS + count_MS * delta_MS * delta_MS, axis=1)
    return count_M, mean_M, squares_M


@triton.jit
def store_variance(
    variance_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    out_M: tl.tensor,
    is_row_M: tl.tensor,
    mean_M: tl.tensor,
    squares_M: tl.tensor,
    divisor: tl.tensor,
    ROOT: tl.constexpr,
) -> None:
    """Write the variance, or its root, and the mean if it is asked for."""
    variance_M = squares_M / divisor
    if ROOT:
        variance_M = tl.sqrt(variance_M)
    tl.store(variance_ptr + out_M, converted(variance_M, variance_ptr.dtype.element_ty), mask=is_row_M)
    if mean_ptr is not None:
        tl.store(mean_ptr + out_M, converted(mean_M, mean_ptr.dtype.element_ty), mask=is_row_M)


# ---------------------------------------------------------------- the kernels


@triton.jit
def variance_kernel(
    variance_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    divisor_bits: tl.tensor,
    steps: tl.tensor,
    ROOT: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Variances of rows that one program reads as a whole."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    row_M = x_ptr + row_offsets(m, shape, x_strides)
    _, mean_M, squares_M = row_moments(
        row_M, m < sizes[0], shape, x_strides, sizes, 0, steps, True, COMPUTE, INDEX, BLOCK_J, BLOCK_K
    )
    out_M = row_offsets(m, shape, out_strides)
    divisor = number(divisor_bits, COMPUTE)
    store_variance(variance_ptr, mean_ptr, out_M, m < sizes[0], mean_M, squares_M, divisor, ROOT)


@triton.jit
def moments_kernel(
    partial_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    CENTRE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Moments of every split of the rows."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    row_M = x_ptr + row_offsets(m, shape, x_strides)
    count, mean_M, squares_M = row_moments(
        row_M, m < sizes[0], shape, x_strides, sizes, split * steps, steps, CENTRE, COMPUTE, INDEX, BLOCK_J, BLOCK_K
    )
    store_moments(partial_ptr, m, sizes[0], split, count, mean_M, squares_M)


@triton.jit
def merge_variance_kernel(
    variance_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    shape: tl.tuple,
    out_strides: tl.tuple,
    M: tl.tensor,
    splits: tl.tensor,
    divisor_bits: tl.tensor,
    ROOT: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """Variances from the moments of splits."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    _, mean_M, squares_M = merged_moments(partial_ptr, m, M, splits, BLOCK_S)
    out_M = row_offsets(m, shape, out_strides)
    store_variance(variance_ptr, mean_ptr, out_M, m < M, mean_M, squares_M, number(divisor_bits, COMPUTE), ROOT)


# ---------------------------------------------------------------- the ops


def var(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    """The variance over ``dim`` (None or empty: all): squared deviations by ``max(n - correction, 0)``."""
    return _variance(self, dim, correction, keepdim, root=False, with_mean=False)[0]


def std(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> torch.Tensor:
    """The root of :func:`var`."""
    return _variance(self, dim, correction, keepdim, root=True, with_mean=False)[0]


def var_mean(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`var` and the mean."""
    return _variance(self, dim, correction, keepdim, root=False, with_mean=True)


def std_mean(
    self: torch.Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """:func:`std` and the mean."""
    return _variance(self, dim, correction, keepdim, root=True, with_mean=True)


def _variance(
    x: torch.Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool, *, root: bool, with_mean: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    require_served(x, dtypes=FLOATS)
    dims = normalized_dims(dim, x.ndim)
    full_shape = tuple(1 if d in dims else size for d, size in enumerate(x.shape))
    shape = full_shape if keepdim else [size for d, size in enumerate(x.shape) if d not in dims]
    variance = torch.empty(shape, dtype=x.dtype, device=x.device)
    mean = torch.empty_like(variance) if with_mean else None
    if variance.numel():
        matrix = matrix_of(x.shape, [x.stride(), row_strides(x.shape, dims)], dims)
        count = math.prod(x.shape[d] for d in dims if x.ndim)
        divisor = max(count - (1 if correction is None else correction), 0)
        _launch_variance(variance, mean, x, matrix, divisor, root=root)
    return variance, variance if mean is None else mean


def _launch_variance(
    variance: torch.Tensor, mean: torch.Tensor | None, x: torch.Tensor, matrix: Matrix, divisor: float, *, root: bool
) -> None:
    tiles = tiling(matrix, x.device)
    compute = compute_type(x.dtype)
    common = {"ROOT": root, "COMPUTE": compute, "INDEX": matrix.index}
    divisor_bits = number_bits(divisor, compute)
    if tiles.splits == 1:
        launch(
            variance_kernel,
            (triton.cdiv(matrix.sizes[0], tiles.block_m),),
            x.device,
            variance,
            mean,
            x,
            matrix.shape,
            matrix.strides(0),
            matrix.strides(1),
            matrix.sizes,
            divisor_bits,
            loop_bound(tiles.steps),
            **common,
            **tiles.blocks(),
        )
        return
    partial_S3M = launch_moments(x, matrix, tiles)
    _, second = split_matrix(matrix, tiles.splits)
    block_s = side(tiles.splits, 1 << 30)
    block_m = side(matrix.sizes[0], max(1024 // block_s, 1))
    launch(
        merge_variance_kernel,
        (triton.cdiv(matrix.sizes[0], block_m),),
        x.device,
        variance,
        mean,
        partial_S3M,
        second.shape,
        second.strides(1),
        matrix.sizes[0],
        tiles.splits,
        divisor_bits,
        **common,
        BLOCK_M=block_m,
        BLOCK_S=block_s,
    )


def launch_moments(x: torch.Tensor, matrix: Matrix, tiles: Tiling, *, centre: bool = True) -> torch.Tensor:
    """The moments of every split of the rows, as :func:`merged_moments` reads them."""
    shape = (tiles.splits, 3, matrix.sizes[0])
    partial_S3M = torch.empty(shape, dtype=compute_dtype(x.dtype), device=x.device)
    launch(
        moments_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        partial_S3M,
        x,
        matrix.shape,
        matrix.strides(0),
        matrix.sizes,
        loop_bound(tiles.steps),
        CENTRE=centre,
        COMPUTE=compute_type(x.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return partial_S3M
