"""Batch normalization: every channel is a row, over all images and positions.

In training the kernels are those of :mod:`standardization`, with one weight and bias a row, and move the running
statistics as well. In inference the running statistics take the place of the rows' own: one read and one write,
``2 * numel * itemsize`` bytes.

Suffixes: ``_M`` channels, ``_T`` columns of a tile.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, number
from ..common.launch import compute_type, launch, loop_bound, number_bits, pdl_prologue, require_served
from ..common.matrix import column_offsets, matrix_of, row_offsets, tile_columns, tile_rows, tiling
from .standardization import Running, channels_kept, spread_vector, standardize, statistics_dtype

Tensors = tuple[torch.Tensor, torch.Tensor, torch.Tensor]

# ---------------------------------------------------------------- inference


@triton.jit
def apply_statistics_kernel(
    out_ptr: tl.tensor,
    save_mean_ptr: tl.tensor,
    save_rstd_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    variance_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    vector_strides: tl.tuple,
    sizes: tl.tuple,
    eps_bits: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``(x - mean) / sqrt(variance + eps) * weight + bias`` with given statistics.

    ``vector_strides`` are those of weight, bias, mean and variance.
    """
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    split = tl.program_id(1)
    mean_M = tl.load(mean_ptr + m * vector_strides[2], mask=is_row_M, other=0).to(COMPUTE)
    variance_M = tl.load(variance_ptr + m * vector_strides[3], mask=is_row_M, other=1).to(COMPUTE)
    rstd_M = tl.rsqrt(variance_M + number(eps_bits, COMPUTE))
    scale_M = rstd_M
    if weight_ptr is not None:
        scale_M = scale_M * tl.load(weight_ptr + m * vector_strides[0], mask=is_row_M, other=0).to(COMPUTE)
    shift_M = tl.zeros([BLOCK_M], COMPUTE)
    if bias_ptr is not None:
        shift_M = tl.load(bias_ptr + m * vector_strides[1], mask=is_row_M, other=0).to(COMPUTE)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    out_M = out_ptr + row_offsets(m, shape, out_strides)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        y_MT = (x_MT - mean_M[:, None]) * scale_M[:, None] + shift_M[:, None]
        out_MT = out_M[:, None] + column_offsets(j, k, shape, out_strides)[None, :]
        tl.store(out_MT, converted(y_MT, out_ptr.dtype.element_ty), mask=inside)
    if save_mean_ptr is not None and split == 0:
        tl.store(save_mean_ptr + m, mean_M, mask=is_row_M)
        tl.store(save_rstd_ptr + m, rstd_M, mask=is_row_M)


def _apply_statistics(
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    vectors: tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor, torch.Tensor],
    eps: float,
) -> None:
    out, save_mean, save_rstd = outputs
    matrix = matrix_of(x.shape, [x.stride(), out.stride()], _all_but_channels(x))
    tiles = tiling(matrix, x.device)
    compute = compute_type(x.dtype)
    saves = (save_mean, save_rstd) if save_mean.numel() else (None, None)
    launch(
        apply_statistics_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        out,
        *saves,
        x,
        *vectors,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        tuple(0 if vector is None else vector.stride(0) for vector in vectors),
        matrix.sizes,
        number_bits(eps, compute),
        loop_bound(tiles.steps),
        COMPUTE=compute,
        INDEX=matrix.index,
        **tiles.blocks(),
    )


# ---------------------------------------------------------------- the ops


def batch_norm(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensors:
    """Normalize every channel, the second dimension.

    In training the running statistics, if given, are changed in place.

    Returns:
        The normalized tensor, and mean and reciprocal deviation of every channel; in inference on a CPU two empty ones.

    Raises:
        ValueError: sizes that do not fit each other, or no running statistics in inference.
        TypeError: parameters of another type than the input's (or float32 for a half type).
    """
    vectors = (weight, bias, running_mean, running_var)
    require_served(input, *vectors, dtypes=FLOATS)
    _require_vectors(input, vectors)
    statistics = statistics_dtype(input, vectors, wide_on_device=True, any_on_device=True)
    out = torch.empty_strided(input.shape, channels_kept(input), dtype=input.dtype, device=input.device)
    kept = input.shape[1] if training or input.is_cuda else 0
    save_mean, save_rstd = (torch.empty(kept, dtype=statistics, device=input.device) for _ in range(2))
    if training:
        if not input.numel():
            raise NotImplementedError("statistics of an empty input are not served")
        parameters = spread_vector(weight, input), spread_vector(bias, input)
        running = Running(running_mean, running_var, momentum)
        standardize(input, _all_but_channels(input), parameters, (out, save_mean, save_rstd), eps, running=running)
        return out, save_mean, save_rstd
    if running_mean is None or running_var is None:
        raise ValueError("inference needs running_mean and running_var")
    if input.numel():
        _apply_statistics((out, save_mean, save_rstd), input, (weight, bias, running_mean, running_var), eps)
    return out, save_mean, save_rstd


def batch_norm_no_statistics(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensors:
    """:func:`batch_norm` without running statistics."""
    return batch_norm(input, weight, bias, None, None, training, momentum, eps)


def batch_norm_with_update(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor,
    running_var: torch.Tensor,
    momentum: float,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`batch_norm` in training, and nothing to reserve for the backward pass."""
    out, save_mean, save_rstd = batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return out, save_mean, save_rstd, torch.empty(0, dtype=torch.uint8, device=input.device)


def cudnn_batch_norm(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    training: bool,
    exponential_average_factor: float,
    epsilon: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """:func:`batch_norm` in inference, by the name under which eager calls cuDNN: nothing is saved or reserved.

    Raises:
        NotImplementedError: in training, where cuDNN's backward pass needs what only cuDNN reserves.
    """
    if training:
        raise NotImplementedError("what cuDNN reserves for its backward pass is not served")
    statistics = (running_mean, running_var)
    out, _, _ = batch_norm(input, weight, bias, *statistics, False, exponential_average_factor, epsilon)
    save_mean, save_var = (torch.empty(0, dtype=weight.dtype, device=weight.device) for _ in range(2))
    return out, save_mean, save_var, torch.empty(0, dtype=torch.uint8, device=input.device)


def _all_but_channels(x: torch.Tensor) -> tuple[int, ...]:
    return tuple(d for d in range(x.ndim) if d != 1)


def _require_vectors(x: torch.Tensor, vectors: tuple[torch.Tensor | None, ...]) -> None:
    """Check what eager checks.

    Raises:
        ValueError: a parameter or statistic that is no vector over the channels.
    """
    if x.ndim < 2:
        raise ValueError(f"batch norm needs at least two dimensions, not {list(x.shape)}")
    if any(vector is not None and tuple(vector.shape) != (x.shape[1],) for vector in vectors):
        raise ValueError(f"parameters and statistics must be vectors of {x.shape[1]} channels")
