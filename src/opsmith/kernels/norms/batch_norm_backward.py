"""Gradients of batch norm.

With ``xhat = (x - mean_M) * rstd_M`` and sums over all images and positions of a channel,

    dbias = sum(dy),    dweight = sum(dy * xhat),    dx = weight * rstd * (dy - dbias / n - xhat * dweight / n);

in inference the statistics do not depend on x, and ``dx = weight * rstd * dy``. A channel that fits a tile takes one
read of x and dy, ``3 * numel * itemsize`` bytes in all, and one launch. Longer ones are read for the sums, see
:mod:`pair_sums`, and again for dx: ``5 * numel * itemsize``, of which the cache may serve a part. In inference dx is
written during the first read.

Suffixes: ``_M`` channels, ``_T`` columns of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted
from ..common.launch import await_earlier_kernels, compute_type, launch, loop_bound, require_served
from ..common.matrix import Matrix, column_offsets, matrix_of, row_offsets, tile_columns, tile_rows, tiling
from .pair_sums import fold_pairs, given_statistics, load_tile, merged_pairs, pair_sums, store_tile
from .standardization import channels_kept, spread_vector, whole_rows

#: Elements of a channel that a program holds in registers, once for x and once for dy.
TILE = 1 << 13

# ---------------------------------------------------------------- the kernels


@triton.jit
def store_gradients(
    dweight_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    m: tl.tensor,
    is_row_M: tl.tensor,
    product_M: tl.tensor,
    sum_M: tl.tensor,
) -> None:
    """Write the gradients of the parameters that are asked for."""
    if dweight_ptr is not None:
        tl.store(dweight_ptr + m, converted(product_M, dweight_ptr.dtype.element_ty), mask=is_row_M)
    if dbias_ptr is not None:
        tl.store(dbias_ptr + m, converted(sum_M, dbias_ptr.dtype.element_ty), mask=is_row_M)


@triton.jit
def load_factor(
    weight_ptr: tl.tensor, m: tl.tensor, is_row_M: tl.tensor, rstd_M: tl.tensor, stride: tl.tensor
) -> tl.tensor:
    """``weight * rstd``."""
    factor_M = rstd_M
    if weight_ptr is not None:
        factor_M = rstd_M * tl.load(weight_ptr + m * stride, mask=is_row_M, other=0).to(rstd_M.dtype)
    return factor_M


@triton.jit
def channel_gradient_kernel(
    dx_ptr: tl.tensor,
    dweight_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    vector_strides: tl.tuple,
    sizes: tl.tuple,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole channels at once. ``strides`` are those of dy, x and dx; the vectors are mean, rstd and weight."""
    await_earlier_kernels()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
    dy_MT = load_tile(dy_ptr, m, j, k, inside, shape, strides[0], COMPUTE)
    x_MT = load_tile(x_ptr, m, j, k, inside, shape, strides[1], COMPUTE)
    at_mean_M, at_rstd_M = m * vector_strides[0], m * vector_strides[1]
    mean_M, rstd_M = given_statistics(mean_ptr, rstd_ptr, at_mean_M, at_rstd_M, is_row_M, 0, False, COMPUTE)
    xhat_MT = (x_MT - mean_M[:, None]) * rstd_M[:, None]
    product_M = tl.sum(dy_MT * xhat_MT, axis=1)
    sum_M = tl.sum(dy_MT, axis=1)
    if dx_ptr is not None:
        count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
        factor_M = load_factor(weight_ptr, m, is_row_M, rstd_M, vector_strides[2])
        dx_MT = dy_MT - (sum_M / count)[:, None] - xhat_MT * (product_M / count)[:, None]
        store_tile(dx_ptr, dx_MT * factor_M[:, None], m, j, k, inside, shape, strides[2])
    store_gradients(dweight_ptr, dbias_ptr, m, is_row_M, product_M, sum_M)


@triton.jit
def channel_splits_kernel(
    dx_ptr: tl.tensor,
    dweight_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    dy_ptr: tl.tensor,
    x_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    vector_strides: tl.tuple,
    sizes: tl.tuple,
    splits: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """Dx of one split of the channels, from the sums in ``partial``; last split first, see :mod:`standardization`."""
    await_earlier_kernels()
    m = (tl.num_programs(0) - 1 - tl.program_id(0)).to(INDEX) * BLOCK_M + tl.arange(0, BLOCK_M)
    split = tl.num_programs(1) - 1 - tl.program_id(1)
    is_row_M = m < sizes[0]
    product_M, sum_M = merged_pairs(partial_ptr, m, sizes[0], splits, BLOCK_S)
    if split == 0:
        store_gradients(dweight_ptr, dbias_ptr, m, is_row_M, product_M, sum_M)
    at_mean_M, at_rstd_M = m * vector_strides[0], m * vector_strides[1]
    mean_M, rstd_M = given_statistics(mean_ptr, rstd_ptr, at_mean_M, at_rstd_M, is_row_M, 0, False, COMPUTE)
    factor_M = load_factor(weight_ptr, m, is_row_M, rstd_M, vector_strides[2])
    count = tl.full([1], sizes[1] * sizes[2], COMPUTE)
    slope_M = rstd_M * product_M / count
    mean_dy_M = sum_M / count
    dy_M = dy_ptr + row_offsets(m, shape, strides[0])
    x_M = x_ptr + row_offsets(m, shape, strides[1])
    dx_M = dx_ptr + row_offsets(m, shape, strides[2])
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        dy_MT = tl.load(dy_M[:, None] + column_offsets(j, k, shape, strides[0])[None, :], mask=inside, other=0)
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, strides[1])[None, :], mask=inside, other=0)
        centred_MT = x_MT.to(COMPUTE) - mean_M[:, None]
        dx_MT = (dy_MT.to(COMPUTE) - mean_dy_M[:, None] - centred_MT * slope_M[:, None]) * factor_M[:, None]
        at_MT = dx_M[:, None] + column_offsets(j, k, shape, strides[2])[None, :]
        tl.store(at_MT, converted(dx_MT, dx_ptr.dtype.element_ty), mask=inside)


# ---------------------------------------------------------------- the ops


def batch_norm_backward(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_invstd: torch.Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """Gradients of input, weight and bias, as far as ``output_mask`` asks for them.

    Raises:
        ValueError: shapes that do not fit each other, or missing statistics.
    """
    statistics = (save_mean, save_invstd) if train else (running_mean, running_var)
    require_served(grad_out, input, weight, *statistics, dtypes=FLOATS)
    mean, scale = statistics
    if mean is None or scale is None:
        raise ValueError("the gradient of a batch norm needs the statistics that it was normalized by")
    vectors = (mean, scale, weight)
    if grad_out.shape != input.shape or any(v is not None and tuple(v.shape) != (input.shape[1],) for v in vectors):
        raise ValueError(f"a gradient of {list(grad_out.shape)} does not fit an input of {list(input.shape)}")
    dx, dweight, dbias = _gradient_tensors(input, weight, mean, output_mask)
    if not input.numel():
        raise NotImplementedError("gradients of empty inputs are not served")
    shape_like = input if dx is None else dx
    operands = [grad_out.stride(), input.stride(), shape_like.stride()]
    channels = tuple(d for d in range(input.ndim) if d != 1)
    if train:
        _launch_training((dx, dweight, dbias), (grad_out, input, *vectors), matrix_of(input.shape, operands, channels))
    else:
        _launch_inference((dx, dweight, dbias), (grad_out, input, *vectors), eps)
    return dx, dweight, dbias


def batch_norm_backward_reserved(
    grad_out: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_var: torch.Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: torch.Tensor,  # noqa: ARG001 - other kernels keep a mask there.
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """As :func:`batch_norm_backward`; ``save_var`` is the reciprocal deviation."""
    return batch_norm_backward(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


def cudnn_batch_norm_backward(
    input: torch.Tensor,  # noqa: A002
    grad_output: torch.Tensor,
    weight: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    save_mean: torch.Tensor | None,
    save_var: torch.Tensor | None,
    epsilon: float,
    reserveSpace: torch.Tensor,  # noqa: ARG001 - As above.
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """As :func:`batch_norm_backward` in training; ``save_var`` is the reciprocal deviation."""
    everything = (True, True, True)
    return batch_norm_backward(
        grad_output, input, weight, running_mean, running_var, save_mean, save_var, True, epsilon, everything
    )


Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor | None]


def _gradient_tensors(
    x: torch.Tensor, weight: torch.Tensor | None, mean: torch.Tensor, mask: Sequence[bool]
) -> Gradients:
    """Empty gradients as eager types them: those of the parameters as the weight, or, on a CPU, as the statistics."""
    dtype = weight.dtype if weight is not None else x.dtype if x.is_cuda else mean.dtype
    dx = torch.empty_strided(x.shape, channels_kept(x), dtype=x.dtype, device=x.device) if mask[0] else None
    vectors = [torch.empty(x.shape[1], dtype=dtype, device=x.device) if asked else None for asked in mask[1:]]
    return dx, vectors[0], vectors[1]


def _launch_training(outputs: Gradients, operands: Operands, matrix: Matrix) -> None:
    _, x, mean, rstd, weight = operands
    vector_strides = tuple(0 if v is None else v.stride(0) for v in (mean, rstd, weight))
    arguments = (matrix.shape, tuple(matrix.strides(i) for i in range(3)), vector_strides, matrix.sizes)
    common = {"COMPUTE": compute_type(x.dtype), "INDEX": matrix.index}
    tiles = whole_rows(matrix, x.device, most=TILE)
    if tiles is not None:
        grid = (triton.cdiv(matrix.sizes[0], tiles.block_m),)
        launch(channel_gradient_kernel, grid, x.device, *outputs, *operands, *arguments, **common, **tiles.blocks())
        return
    partial_S2M = _pair_sums(None, operands)
    splits = partial_S2M.shape[0]
    if outputs[0] is None:
        _fold(outputs, partial_S2M)
        return
    tiles = tiling(matrix, x.device)
    launch(
        channel_splits_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        *outputs,
        *operands,
        partial_S2M,
        *arguments,
        splits,
        loop_bound(tiles.steps),
        **common,
        **tiles.blocks(),
        BLOCK_S=triton.next_power_of_2(splits),
    )


def _launch_inference(outputs: Gradients, operands: Operands, eps: float) -> None:
    _fold(outputs, _pair_sums(outputs[0], operands, eps=eps, is_variance=True))


def _pair_sums(
    dx: torch.Tensor | None, operands: Operands, *, eps: float = 0, is_variance: bool = False
) -> torch.Tensor:
    dy, x, mean, scale, weight = operands
    vectors = [spread_vector(v, x) for v in (mean, scale, weight)]
    strides = [dy.stride(), x.stride(), (x if dx is None else dx).stride()]
    strides += [(0,) * x.ndim if v is None else v.stride() for v in vectors]
    matrix = matrix_of(x.shape, strides, tuple(d for d in range(x.ndim) if d != 1))
    tensors = (dx, dy, x, mean, scale, weight)
    return pair_sums(matrix, tiling(matrix, x.device, merged=True), tensors, eps=eps, is_variance=is_variance)


def _fold(outputs: Gradients, partial_S2M: torch.Tensor) -> None:
    splits, _, M = partial_S2M.shape
    fold_pairs(outputs[1], outputs[2], partial_S2M, Geometry((splits,), ((2 * M,),)), M)
