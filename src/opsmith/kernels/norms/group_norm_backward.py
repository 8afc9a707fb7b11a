"""Gradients of group norm.

With ``xhat = (x - mean) * rstd``, ``g = dy * weight`` and means over a group of n elements,

    dx = rstd * (g - mean(g) - xhat * mean(g * xhat)),    dweight = sum(dy * xhat),    dbias = sum(dy),

the last two over the images and positions of a channel. Both means are weighted sums of a group's channel sums, so
everything follows from ``sum(dy * xhat)`` and ``sum(dy)`` over the positions of each channel of each image. A group
that fits a tile yields them and dx in one read of x and dy, ``3 * numel * itemsize`` bytes in all; larger groups are
read for the sums, see :mod:`pair_sums`, and again for dx. A last launch adds up the images.

Suffixes: ``_M`` groups of images, ``_J`` channels of a group, ``_K`` positions, ``_T`` channels and positions of a
tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, offset_of
from ..common.launch import await_earlier_kernels, compute_dtype, compute_type, launch, loop_bound, require_served
from ..common.matrix import Matrix, matrix_of, row_offsets, row_strides, tile_columns, tile_rows, tiling
from .group_norm import channels_along, grouped, output_strides, require_fits
from .pair_sums import fold_pairs, load_tile, pair_sums, store_tile
from .standardization import dependence, scaled_and_shifted, whole_rows

#: Elements of a group that a program holds in registers, once for x and once for dy.
TILE = 1 << 13

# ---------------------------------------------------------------- the kernels


@triton.jit
def group_gradient_kernel(
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
    channels: tl.tensor,
    ALONG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole groups at once. ``strides`` are those of dy, x, dx, weight, the statistics and the channel sums.

    The sums of ``dy`` lie ``channels`` elements behind those of ``dy * xhat``.
    """
    await_earlier_kernels()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
    dy_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
    x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
    at_M = row_offsets(m, shape, strides[4])
    mean_M = tl.load(mean_ptr + at_M, mask=is_row_M, other=0).to(COMPUTE)
    rstd_M = tl.load(rstd_ptr + at_M, mask=is_row_M, other=0).to(COMPUTE)
    xhat_MT = (x_MT - mean_M[:, None]) * rstd_M[:, None]
    if dx_ptr is not None:
        g_MT = scaled_and_shifted(
            dy_MT, weight_ptr, None, 0, m, shape, strides[3], strides[3], sizes, ALONG, BLOCK_M, BLOCK_J, BLOCK_K
        )
        # Behind a choice no compiler takes products unrounded to their sum: one less its own mean is 0.
        g_MT = tl.where(inside, g_MT, 0.0)
        count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
        share_M = tl.sum(g_MT * xhat_MT, axis=1) / count
        dx_MT = (g_MT - (tl.sum(g_MT, axis=1) / count)[:, None] - xhat_MT * share_M[:, None]) * rstd_M[:, None]
        store_tile(dx_ptr, dx_MT, m, j, k, inside, shape, strides[2])
    if partial_ptr is not None:
        j = tl.arange(0, BLOCK_J).to(INDEX)
        is_channel = is_row_M[:, None] & (j < sizes[1])[None, :]
        at_MJ = row_offsets(m, shape, strides[5])[:, None] + offset_of(j, shape[1], strides[5][1])[None, :]
        product_MJ = tl.sum(tl.reshape(dy_MT * xhat_MT, [BLOCK_M, BLOCK_J, BLOCK_K]), axis=2)
        tl.store(partial_ptr + at_MJ, product_MJ, mask=is_channel)
        sum_MJ = tl.sum(tl.reshape(dy_MT, [BLOCK_M, BLOCK_J, BLOCK_K]), axis=2)
        tl.store(partial_ptr + channels + at_MJ, sum_MJ, mask=is_channel)


@triton.jit
def group_means(
    partial_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    m: tl.tensor,
    M: tl.tensor,
    group: tl.tensor,
    group_channels: tl.tensor,
    splits: tl.tensor,
    channels: tl.tensor,
    weight_stride: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> tl.tuple:
    """Of each group m the sums of ``g * xhat`` and of ``g``, from the sums of its channels in each split."""
    product_MC = tl.zeros([m.shape[0], BLOCK_C], COMPUTE)
    sum_MC = tl.zeros([m.shape[0], BLOCK_C], COMPUTE)
    for step in range(steps):
        c = step * BLOCK_C + tl.arange(0, BLOCK_C).to(m.dtype)
        inside = (m < M)[:, None] & (c < group_channels * splits)[None, :]
        channel_C = c % group_channels
        at_MC = (m * group_channels)[:, None] + (channel_C + c // group_channels * 2 * channels)[None, :]
        weight_MC = tl.full([m.shape[0], BLOCK_C], 1, COMPUTE)
        if weight_ptr is not None:
            at_weight = ((m % group * group_channels)[:, None] + channel_C[None, :]) * weight_stride
            weight_MC = tl.load(weight_ptr + at_weight, mask=inside, other=0).to(COMPUTE)
        product_MC += weight_MC * tl.load(partial_ptr + at_MC, mask=inside, other=0)
        sum_MC += weight_MC * tl.load(partial_ptr + channels + at_MC, mask=inside, other=0)
    if m.shape[0] == 1:
        # Of a single group as numbers: tensors would have to be brought to the layout of the tiles.
        product_M = tl.sum(tl.sum(product_MC, axis=1), axis=0) + tl.zeros([1], COMPUTE)
        sum_M = tl.sum(tl.sum(sum_MC, axis=1), axis=0) + tl.zeros([1], COMPUTE)
    else:
        product_M = tl.sum(product_MC, axis=1)
        sum_M = tl.sum(sum_MC, axis=1)
    return product_M, sum_M


@triton.jit
def group_splits_kernel(
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
    group: tl.tensor,
    group_channels: tl.tensor,
    splits: tl.tensor,
    channels: tl.tensor,
    weight_stride: tl.tensor,
    sum_steps: tl.tensor,
    steps: tl.tensor,
    ALONG: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Dx of one split of the groups, from the sums of their channels. ``strides`` are those of dy, x, dx and weight."""
    await_earlier_kernels()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    split = tl.program_id(1)
    counts = (group, group_channels, splits, channels, weight_stride, sum_steps)
    product_M, sum_M = group_means(partial_ptr, weight_ptr, m, sizes[0], *counts, COMPUTE, BLOCK_C)
    count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
    mean_M = tl.load(mean_ptr + m, mask=is_row_M, other=0).to(COMPUTE)
    rstd_M = tl.load(rstd_ptr + m, mask=is_row_M, other=0).to(COMPUTE)
    slope_M = rstd_M * product_M / count
    mean_g_M = sum_M / count
    for step in range(steps):
        column = split * steps + step
        j, k = tile_columns(column, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        dy_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
        x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
        g_MT = scaled_and_shifted(
            dy_MT, weight_ptr, None, column, m, shape, strides[3], strides[3], sizes, ALONG, BLOCK_M, BLOCK_J, BLOCK_K
        )
        dx_MT = (g_MT - mean_g_M[:, None] - (x_MT - mean_M[:, None]) * slope_M[:, None]) * rstd_M[:, None]
        store_tile(dx_ptr, dx_MT, m, j, k, inside, shape, strides[2])


# ---------------------------------------------------------------- the op


Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def group_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    mean: torch.Tensor,
    rstd: torch.Tensor,
    weight: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of input, weight and bias, as far as ``output_mask`` asks for them.

    Raises:
        ValueError: sizes that do not fit each other.
        TypeError: a gradient of another type than the input's.
    """
    require_served(grad_out, input, mean, rstd, weight, dtypes=FLOATS)
    require_fits(input, (weight,), (N, C, HxW), group)
    if grad_out.shape != input.shape or not mean.numel() == rstd.numel() == N * group:
        raise ValueError(f"a gradient of {list(grad_out.shape)} and {mean.numel()} means do not fit the input")
    if grad_out.dtype != input.dtype:
        raise TypeError(f"a gradient of {grad_out.dtype} does not fit an input of {input.dtype}")
    if not (mean.is_contiguous() and rstd.is_contiguous()):
        raise NotImplementedError("statistics with gaps are not served")
    dtype = input.dtype if weight is None else weight.dtype
    dx = None
    if output_mask[0]:
        dx = torch.empty_strided(input.shape, output_strides(input), dtype=input.dtype, device=input.device)
    vectors = [torch.empty(C, dtype=dtype, device=input.device) if asked else None for asked in output_mask[1:]]
    operands = (grad_out, input, mean, rstd, weight)
    partial_S2NC = _group_gradients(dx, operands, group, sums=any(output_mask[1:]))
    if partial_S2NC is not None:
        images = Geometry((N, partial_S2NC.shape[0]), ((C, 2 * N * C),))
        fold_pairs(vectors[0], vectors[1], partial_S2NC, images, N * C)
    return dx, vectors[0], vectors[1]


def _group_gradients(dx: torch.Tensor | None, operands: Operands, group: int, *, sums: bool) -> torch.Tensor | None:
    """Write dx, and return the channel sums of every image if they are asked for."""
    dy, x, _, _, weight = operands
    N, C = x.shape[:2]
    if not x.numel():
        return torch.empty((0, 2, N, C), dtype=compute_dtype(x.dtype), device=x.device) if sums else None
    views = [grouped(t, group) for t in (dy, x, x if dx is None else dx)]
    weights = channels_along(weight, views[1])
    shape = views[1].shape
    strides = [view.stride() for view in views]
    strides += [(0,) * len(shape) if weights is None else weights.stride(), row_strides(shape, range(2, len(shape)))]
    strides.append(row_strides(shape, range(3, len(shape))))
    matrix = matrix_of(shape, strides, range(2, len(shape)), row_major=True)
    tiles = whole_rows(matrix, x.device, most=TILE)
    # The sums are taken over the inner part of the columns, which must not run over channels then.
    if tiles is None or any(operand[0] for operand in matrix.inner.strides_ID[3:]):
        return _launch_splits(dx, operands, group, matrix)
    partial_S2NC = torch.empty((1, 2, N, C), dtype=compute_dtype(x.dtype), device=x.device) if sums else None
    launch(
        group_gradient_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m),),
        x.device,
        dx,
        partial_S2NC,
        *operands,
        matrix.shape,
        tuple(matrix.strides(operand) for operand in range(6)),
        matrix.sizes,
        N * C,
        ALONG="MJ",
        COMPUTE=compute_type(x.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return partial_S2NC


def _launch_splits(dx: torch.Tensor | None, operands: Operands, group: int, matrix: Matrix) -> torch.Tensor:
    """The channel sums first, then dx by the groups of ``matrix``."""
    dy, x, mean, rstd, _ = operands
    N, C = x.shape[:2]
    shape = (N, group, C // group, *x.shape[2:])
    statistics = (group, 1, *[0] * (len(shape) - 2))
    strides = [*(grouped(t, group).stride() for t in (dy, x, x)), statistics, statistics, (0,) * len(shape)]
    channels = matrix_of(shape, strides, range(3, len(shape)), row_major=True)
    partial_S2M = pair_sums(channels, tiling(channels, x.device), (None, dy, x, mean, rstd, None))
    if dx is not None:
        _launch_dx(dx, operands, group, matrix, partial_S2M)
    return partial_S2M.view(-1, 2, N, C)


def _launch_dx(dx: torch.Tensor, operands: Operands, group: int, matrix: Matrix, partial_S2M: torch.Tensor) -> None:
    x, weight = operands[1], operands[4]
    splits, _, M = partial_S2M.shape
    group_channels = x.shape[1] // group
    tiles = tiling(matrix, x.device)
    block_c = min(triton.next_power_of_2(group_channels * splits), 4096 // tiles.block_m)
    launch(
        group_splits_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        dx,
        partial_S2M,
        *operands,
        matrix.shape,
        tuple(matrix.strides(operand) for operand in range(4)),
        matrix.sizes,
        group,
        group_channels,
        splits,
        M,
        0 if weight is None else weight.stride(0),
        loop_bound(triton.cdiv(group_channels * splits, block_c)),
        loop_bound(tiles.steps),
        ALONG=dependence(matrix, [(3, weight)]),
        COMPUTE=compute_type(x.dtype),
        INDEX=matrix.index,
        **tiles.blocks(),
        BLOCK_C=block_c,
    )
