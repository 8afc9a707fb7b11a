"""Layer normalization.

``y_RN = (x_RN - mean_R) * rstd_R * weight_N + bias_N`` with ``rstd_R = 1 / sqrt(var_R + eps)`` and the
biased variance of a row. The variance is the mean of squared deviations: ``E[x^2] - E[x]^2`` cancels where the
mean is large. A row that fits a tile is read once, ``2 * numel * itemsize`` bytes in all; a longer one twice.

Suffixes: ``_R`` rows, ``_N`` normalized positions.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from .indexing import contiguous_strides, converted, index_type, merge_dims, number, offset_of
from .launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    number_bits,
    require_served,
)
from .pointwise import FLOATS

#: Elements of a row that a program holds in registers: 64 KiB of float32 over 8 warps.
TILE = 1 << 14


@triton.jit
def scaled_and_shifted(
    y_RN: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    weight_N: tl.tensor,
    bias_N: tl.tensor,
    in_row: tl.tensor,
) -> tl.tensor:
    """``y * weight + bias``, each of which may be absent; ``weight_N`` and ``bias_N`` are offsets."""
    if weight_ptr is not None:
        y_RN = y_RN * tl.load(weight_ptr + weight_N, mask=in_row, other=0).to(y_RN.dtype)[None, :]
    if bias_ptr is not None:
        y_RN = y_RN + tl.load(bias_ptr + bias_N, mask=in_row, other=0).to(y_RN.dtype)[None, :]
    return y_RN


@triton.jit
def layer_norm_tile_kernel(
    out_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    shape_R: tl.tuple,
    strides_R: tl.tuple,
    shape_N: tl.tuple,
    strides_N: tl.tuple,
    weight_strides_N: tl.tuple,
    bias_strides_N: tl.tuple,
    R: tl.tensor,
    N: tl.tensor,
    eps_bits: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Whole rows at once: ``BLOCK_N >= N``. The output is row-major."""
    r = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    n = tl.arange(0, BLOCK_N).to(INDEX)
    inside = (r < R)[:, None] & (n < N)[None, :]
    x_offset = offset_of(r, shape_R, strides_R)[:, None] + offset_of(n, shape_N, strides_N)[None, :]
    x_RN = tl.load(x_ptr + x_offset, mask=inside, other=0).to(COMPUTE)
    # An empty row has mean 0 and, 0 / 0, no variance: as in eager.
    mean_R = tl.sum(x_RN, axis=1) / tl.maximum(N, 1)
    centred_RN = tl.where(inside, x_RN - mean_R[:, None], 0)
    rstd_R = tl.rsqrt(tl.sum(centred_RN * centred_RN, axis=1) / N + number(eps_bits, COMPUTE))
    weight_N, bias_N = offset_of(n, shape_N, weight_strides_N), offset_of(n, shape_N, bias_strides_N)
    y_RN = scaled_and_shifted(centred_RN * rstd_R[:, None], weight_ptr, bias_ptr, weight_N, bias_N, n < N)
    tl.store(out_ptr + r[:, None] * N + n[None, :], converted(y_RN, out_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + r, converted(mean_R, mean_ptr.dtype.element_ty), mask=r < R)
    tl.store(rstd_ptr + r, converted(rstd_R, rstd_ptr.dtype.element_ty), mask=r < R)


@triton.jit
def layer_norm_pieces_kernel(
    out_ptr: tl.tensor,
    mean_ptr: tl.tensor,
    rstd_ptr: tl.tensor,
    x_ptr: tl.tensor,
    weight_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    shape_R: tl.tuple,
    strides_R: tl.tuple,
    shape_N: tl.tuple,
    strides_N: tl.tuple,
    weight_strides_N: tl.tuple,
    bias_strides_N: tl.tuple,
    R: tl.tensor,
    N: tl.tensor,
    eps_bits: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """Rows in ``steps`` pieces of ``BLOCK_N``, whose means and squared deviations are merged.

    With a so-far mean ``m`` of ``c`` values and a piece's ``m'`` of ``c'``, ``d = m' - m``: the merged mean is
    ``m + d c' / (c + c')`` and the squared deviations add up to ``q + q' + d^2 c c' / (c + c')`` (Chan et al., 1979).
    """
    r = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    row_R = x_ptr + offset_of(r, shape_R, strides_R)
    mean_R = tl.zeros([BLOCK_R], COMPUTE)
    squares_R = tl.zeros([BLOCK_R], COMPUTE)
    for step in range(steps):
        n = step * BLOCK_N + tl.arange(0, BLOCK_N).to(INDEX)
        inside = (r < R)[:, None] & (n < N)[None, :]
        x_RN = tl.load(row_R[:, None] + offset_of(n, shape_N, strides_N)[None, :], mask=inside, other=0).to(COMPUTE)
        before = (step * BLOCK_N + tl.zeros([1], INDEX)).to(COMPUTE)
        count = tl.minimum(N - step * BLOCK_N, BLOCK_N) + tl.zeros([1], COMPUTE)
        piece_mean_R = tl.sum(x_RN, axis=1) / count
        centred_RN = tl.where(inside, x_RN - piece_mean_R[:, None], 0)
        delta_R = piece_mean_R - mean_R
        share = count / (before + count)
        mean_R += delta_R * share
        squares_R += tl.sum(centred_RN * centred_RN, axis=1) + delta_R * delta_R * before * share
    rstd_R = tl.rsqrt(squares_R / N + number(eps_bits, COMPUTE))
    for step in range(steps):
        n = step * BLOCK_N + tl.arange(0, BLOCK_N).to(INDEX)
        inside = (r < R)[:, None] & (n < N)[None, :]
        x_RN = tl.load(row_R[:, None] + offset_of(n, shape_N, strides_N)[None, :], mask=inside, other=0).to(COMPUTE)
        weight_N, bias_N = offset_of(n, shape_N, weight_strides_N), offset_of(n, shape_N, bias_strides_N)
        normal_RN = (x_RN - mean_R[:, None]) * rstd_R[:, None]
        y_RN = scaled_and_shifted(normal_RN, weight_ptr, bias_ptr, weight_N, bias_N, n < N)
        tl.store(out_ptr + r[:, None] * N + n[None, :], converted(y_RN, out_ptr.dtype.element_ty), mask=inside)
    tl.store(mean_ptr + r, converted(mean_R, mean_ptr.dtype.element_ty), mask=r < R)
    tl.store(rstd_ptr + r, converted(rstd_R, rstd_ptr.dtype.element_ty), mask=r < R)


def layer_norm(
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize over the trailing ``normalized_shape``.

    Returns:
        The normalized tensor, and the mean and reciprocal deviation of every row.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: parameters of another type than the input's (or float32 for a half type on a CPU).
    """
    require_served(input, weight, bias, dtypes=FLOATS)
    shape, tail = tuple(input.shape), tuple(normalized_shape)
    if not tail or shape[-len(tail) :] != tail or any(p is not None and tuple(p.shape) != tail for p in (weight, bias)):
        raise ValueError(f"normalized_shape={list(tail)} does not fit an input of {list(shape)} and its parameters")
    statistics = _statistics_dtype(input, weight, bias)
    lead = shape[: -len(tail)]
    out = torch.empty(shape, dtype=input.dtype, device=input.device)
    mean, rstd = (torch.empty((*lead, *[1] * len(tail)), dtype=statistics, device=input.device) for _ in range(2))
    if mean.numel():
        _launch_layer_norm(
            (out, mean, rstd), input, weight, bias, number_bits(eps, compute_type(input.dtype)), len(lead)
        )
    return out, mean, rstd


def _statistics_dtype(x: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None) -> torch.dtype:
    """The dtype of mean and rstd: float32 for half types on a device; on a CPU that of the parameters."""
    wide = compute_dtype(x.dtype)
    given = {parameter.dtype for parameter in (weight, bias) if parameter is not None}
    if len(given) > 1 or not given <= {x.dtype, x.dtype if x.is_cuda else wide}:
        raise TypeError(f"parameters of {', '.join(sorted(map(str, given)))} do not fit an input of {x.dtype}")
    return wide if x.is_cuda else given.pop() if given else x.dtype


def _launch_layer_norm(
    outputs: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    x: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps_bits: int,
    lead: int,
) -> None:
    shape, strides = layout_of(x)
    tail = contiguous_strides(shape[lead:])
    parameter_strides = [tail if p is None else p.stride() for p in (weight, bias)]
    rows = merge_dims(shape[:lead], [strides[:lead]], reversed(range(lead)))
    columns = merge_dims(shape[lead:], [strides[lead:], *parameter_strides], reversed(range(len(tail))))
    R, N = rows.numel(), columns.numel()
    width = triton.next_power_of_2(max(N, 1))
    block_n = min(width, INTERPRETED_TILE if INTERPRETED else TILE)
    block_r = min(triton.next_power_of_2(R), max((INTERPRETED_TILE if INTERPRETED else 1024) // block_n, 1))
    whole = block_n == width
    launch(
        layer_norm_tile_kernel if whole else layer_norm_pieces_kernel,
        (triton.cdiv(R, block_r),),
        x.device,
        *outputs,
        x,
        weight,
        bias,
        rows.shape_D,
        rows.strides_ID[0],
        columns.shape_D,
        *columns.strides_ID,
        R,
        N,
        eps_bits,
        *([] if whole else [loop_bound(triton.cdiv(N, block_n))]),
        COMPUTE=compute_type(x.dtype),
        INDEX=index_type(rows, columns),
        BLOCK_R=block_r,
        BLOCK_N=block_n,
        num_warps=8 if block_r * block_n > 2048 else 4,
    )
