"""What the gradients of the norms' parameters are: sums of ``dy * xhat`` and of ``dy``.

``xhat = (x - mean) * rstd`` is the standardized input, ``dy`` the gradient of the output. Both sums are taken in one
pass, ``numel * (itemsize of x + itemsize of dy)`` bytes, as partial sums ``p_S2M`` over splits, which
:func:`fold_pairs` adds up.

Suffixes: ``_M`` rows, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type, number, offset_of
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    number_bits,
    pdl_prologue,
)
from ..common.matrix import Matrix, Tiling, column_offsets, row_offsets, side, tile_columns, tile_rows

# ---------------------------------------------------------------- in a kernel


@triton.jit
def load_tile(
    pointer: tl.tensor,
    m: tl.tensor,
    j: tl.tensor,
    k: tl.tensor,
    inside: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """``x_MT`` in the type computed in, 0 outside."""
    at_MT = row_offsets(m, shape, strides)[:, None] + column_offsets(j, k, shape, strides)[None, :]
    return tl.load(pointer + at_MT, mask=inside, other=0).to(COMPUTE)


@triton.jit
def store_tile(
    pointer: tl.tensor,
    value_MT: tl.tensor,
    m: tl.tensor,
    j: tl.tensor,
    k: tl.tensor,
    inside: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
) -> None:
    """Write a tile in the type of ``pointer``."""
    at_MT = row_offsets(m, shape, strides)[:, None] + column_offsets(j, k, shape, strides)[None, :]
    tl.store(pointer + at_MT, converted(value_MT, pointer.dtype.element_ty), mask=inside)


@triton.jit
def given_statistics(
    mean_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    at_mean_M: tl.tensor,
    at_scale_M: tl.tensor,
    is_row_M: tl.tensor,
    eps: tl.tensor,
    IS_VARIANCE: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tuple:
    """The rows' means (0 if they are absent) and reciprocal deviations, the latter given as such or as variances."""
    if mean_ptr is None:
        mean_M = tl.zeros(at_scale_M.shape, COMPUTE)
    else:
        mean_M = tl.load(mean_ptr + at_mean_M, mask=is_row_M, other=0).to(COMPUTE)
    rstd_M = tl.load(scale_ptr + at_scale_M, mask=is_row_M, other=1).to(COMPUTE)
    if IS_VARIANCE:
        rstd_M = tl.rsqrt(rstd_M + eps)
    return mean_M, rstd_M


@triton.jit
def pair_sums_kernel(
    partial_ptr: tl.tensor,
    dx_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    eps_bits: tl.tensor,
    steps: tl.tensor,
    IS_VARIANCE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """The two sums over one split; with ``dx``, also ``dx = dy * rstd * weight``, which holds for constant statistics.

    ``strides`` are those of dy, x, dx, mean, scale and weight; the last three are zero along columns.
    """
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    split = tl.program_id(1)
    mean_M, rstd_M = given_statistics(
        mean_ptr,
        scale_ptr,
        row_offsets(m, shape, strides[3]),
        row_offsets(m, shape, strides[4]),
        is_row_M,
        number(eps_bits, COMPUTE),
        IS_VARIANCE,
        COMPUTE,
    )
    factor_M = rstd_M
    if weight_ptr is not None:
        factor_M *= tl.load(weight_ptr + row_offsets(m, shape, strides[5]), mask=is_row_M, other=0).to(COMPUTE)
    dy_M = dy_ptr + row_offsets(m, shape, strides[0])
    x_M = x_ptr + row_offsets(m, shape, strides[1])
    product_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    sum_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        dy_at = column_offsets(j, k, shape, strides[0])[None, :]
        dy_MT = tl.load(dy_M[:, None] + dy_at, mask=inside, other=0).to(COMPUTE)
        x_at = column_offsets(j, k, shape, strides[1])[None, :]
        x_MT = tl.load(x_M[:, None] + x_at, mask=inside, other=0).to(COMPUTE)
        product_MT += dy_MT * (x_MT - mean_M[:, None])
        sum_MT += dy_MT
        if dx_ptr is not None:
            at_MT = row_offsets(m, shape, strides[2])[:, None] + column_offsets(j, k, shape, strides[2])[None, :]
            tl.store(dx_ptr + at_MT, converted(dy_MT * factor_M[:, None], dx_ptr.dtype.element_ty), mask=inside)
    at_M = partial_ptr + split.to(INDEX) * 2 * sizes[0] + m
    tl.store(at_M, tl.sum(product_MT, axis=1) * rstd_M, mask=is_row_M)
    tl.store(at_M + sizes[0], tl.sum(sum_MT, axis=1), mask=is_row_M)


@triton.jit
def merged_pairs(
    partial_ptr: tl.tensor, m: tl.tensor, M: tl.tensor, splits: tl.tensor, BLOCK_S: tl.constexpr
) -> tl.tuple:
    """The two sums of each row over all splits."""
    s = tl.arange(0, BLOCK_S).to(m.dtype)
    if m.shape[0] == 1:
        # Of a single row as numbers: tensors would have to be brought to the layout of the tiles.
        at_S = partial_ptr + s * 2 * M + tl.sum(m, axis=0)
        product = tl.sum(tl.load(at_S, mask=s < splits, other=0), axis=0)
        total = tl.sum(tl.load(at_S + M, mask=s < splits, other=0), axis=0)
        product_M, sum_M = product + tl.zeros([1], product.dtype), total + tl.zeros([1], total.dtype)
    else:
        at_MS = partial_ptr + s[None, :] * 2 * M + m[:, None]
        inside = (m < M)[:, None] & (s < splits)[None, :]
        product_M = tl.sum(tl.load(at_MS, mask=inside, other=0), axis=1)
        sum_M = tl.sum(tl.load(at_MS + M, mask=inside, other=0), axis=1)
    return product_M, sum_M


@triton.jit
def fold_pairs_kernel(
    product_ptr: tl.tensor,
    sum_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    shape_S: tl.tuple,
    strides_S: tl.tuple,
    M: tl.tensor,
    splits: tl.tensor,
    second: tl.tensor,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """``product[m] = sum over s of p[s, m]``, or the same for ``sum``, which lies ``second`` elements further."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_sum = tl.program_id(1)
    total_MS = tl.zeros([BLOCK_M, BLOCK_S], partial_ptr.dtype.element_ty)
    for step in range(steps):
        s = step * BLOCK_S + tl.arange(0, BLOCK_S).to(INDEX)
        inside = (m < M)[:, None] & (s < splits)[None, :]
        at_MS = m[:, None] + offset_of(s, shape_S, strides_S)[None, :] + is_sum.to(INDEX) * second
        total_MS += tl.load(partial_ptr + at_MS, mask=inside, other=0)
    total_M = tl.sum(total_MS, axis=1)
    if is_sum == 0:
        if product_ptr is not None:
            tl.store(product_ptr + m, converted(total_M, product_ptr.dtype.element_ty), mask=m < M)
    elif sum_ptr is not None:
        tl.store(sum_ptr + m, converted(total_M, sum_ptr.dtype.element_ty), mask=m < M)


# ---------------------------------------------------------------- on the host


def pair_sums(
    matrix: Matrix,
    tiles: Tiling,
    tensors: tuple[torch.Tensor | None, ...],
    *,
    eps: float = 0,
    is_variance: bool = False,
) -> torch.Tensor:
    """The partial sums ``p_S2M`` in the order of the rows of ``matrix``.

    Args:
        matrix: of dy, x, dx, mean, scale and weight, in this order.
        tiles: how it is cut.
        tensors: dx or None, dy, x, mean or None, scale and weight or None.
        eps: added to the scale where that ``is_variance``.
        is_variance: whether the scale is the variance, not the reciprocal deviation.
    """
    dy = tensors[1]
    assert dy is not None
    compute = compute_type(dy.dtype)
    partial_S2M = torch.empty((tiles.splits, 2, matrix.sizes[0]), dtype=compute_dtype(dy.dtype), device=dy.device)
    launch(
        pair_sums_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        dy.device,
        partial_S2M,
        *tensors,
        matrix.shape,
        tuple(matrix.strides(operand) for operand in range(6)),
        matrix.sizes,
        number_bits(eps, compute),
        loop_bound(tiles.steps),
        IS_VARIANCE=is_variance,
        COMPUTE=compute,
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return partial_S2M


def fold_pairs(
    product: torch.Tensor | None,
    total: torch.Tensor | None,
    partial: torch.Tensor,
    splits: Geometry,
    second: int,
) -> None:
    """Add up partial sums into two vectors of M elements, either of which may be None.

    Args:
        product: the first sums.
        total: the second sums.
        partial: holds the partial sums, those of neighbouring rows side by side.
        splits: the sizes and the strides, in ``partial``, of the dimensions that are added up.
        second: how many elements further the partial sums of ``total`` lie.
    """
    given: Sequence[torch.Tensor] = [t for t in (product, total) if t is not None]
    if not given:
        return
    M, S = given[0].numel(), splits.numel()
    block_s = side(S, INTERPRETED_TILE if INTERPRETED else 256)
    # 16 rows are 64 bytes of float32, so that few rows still make many programs.
    block_m = side(M, INTERPRETED_TILE // block_s) if INTERPRETED else max(16, 4096 // block_s // 4)
    launch(
        fold_pairs_kernel,
        (triton.cdiv(M, block_m), 2),
        partial.device,
        product,
        total,
        partial,
        splits.shape_D,
        splits.strides_ID[0],
        M,
        S,
        second,
        loop_bound(triton.cdiv(S, block_s)),
        INDEX=index_type(splits, Geometry((M,), ((1,),)), Geometry((second,), ((1,),))),
        BLOCK_M=block_m,
        BLOCK_S=block_s,
    )
