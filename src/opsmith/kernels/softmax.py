"""Softmax along one dimension.

``y_RK = exp(x_RK - max_R) / sum over k of exp(x_RK - max_R)``: subtracting the row's maximum keeps every
exponent at or below zero. A row that fits a tile is read once and written once,
``numel * (itemsize in + itemsize out)`` bytes. A longer row is read twice: maximum and sum come from one
pass (the sum so far is rescaled whenever the maximum grows), the quotient from another.

Suffixes: ``_R`` rows, ``_K`` positions along the softmax dimension.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .indexing import Geometry, converted, index_type, merge_dims, offset_of
from .launch import INTERPRETED, INTERPRETED_TILE, compute_type, launch, loop_bound, require_served
from .pointwise import FLOATS
from .reductions import normalized_dims

#: Elements of a tile that a program holds in registers: 64 KiB of float32 over 8 warps.
TILE = 1 << 14


@triton.jit
def softmax_tile_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_stride_K: tl.tensor,
    x_stride_K: tl.tensor,
    R: tl.tensor,
    K: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole rows at once: ``BLOCK_K >= K``."""
    r = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    k = tl.arange(0, BLOCK_K).to(INDEX)
    inside = (r < R)[:, None] & (k < K)[None, :]
    row_R = x_ptr + offset_of(r, shape_R, x_strides_R)
    x_RK = tl.load(row_R[:, None] + (k * x_stride_K)[None, :], mask=inside, other=float("-inf")).to(COMPUTE)
    exp_RK = tl.exp(x_RK - tl.max(x_RK, axis=1)[:, None])
    y_RK = exp_RK / tl.sum(exp_RK, axis=1)[:, None]
    out_R = out_ptr + offset_of(r, shape_R, out_strides_R)
    tl.store(out_R[:, None] + (k * out_stride_K)[None, :], converted(y_RK, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_online_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_stride_K: tl.tensor,
    x_stride_K: tl.tensor,
    R: tl.tensor,
    K: tl.tensor,
    steps: tl.tensor,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Rows in ``steps`` pieces of ``BLOCK_K``."""
    r = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    row_R = x_ptr + offset_of(r, shape_R, x_strides_R)
    out_R = out_ptr + offset_of(r, shape_R, out_strides_R)
    max_R = tl.full([BLOCK_R], float("-inf"), COMPUTE)
    sum_R = tl.zeros([BLOCK_R], COMPUTE)
    for step in range(steps):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K).to(INDEX)
        inside = (r < R)[:, None] & (k < K)[None, :]
        x_RK = tl.load(row_R[:, None] + (k * x_stride_K)[None, :], mask=inside, other=float("-inf")).to(COMPUTE)
        new_max_R = tl.maximum(max_R, tl.max(x_RK, axis=1))
        # While all seen is -inf there is nothing to rescale, and -inf - -inf would be NaN.
        shift_R = tl.where(new_max_R == float("-inf"), tl.zeros_like(new_max_R), new_max_R)
        sum_R = sum_R * tl.exp(max_R - shift_R) + tl.sum(tl.exp(x_RK - shift_R[:, None]), axis=1)
        max_R = new_max_R
    for step in range(steps):
        k = step * BLOCK_K + tl.arange(0, BLOCK_K).to(INDEX)
        inside = (r < R)[:, None] & (k < K)[None, :]
        x_RK = tl.load(row_R[:, None] + (k * x_stride_K)[None, :], mask=inside, other=float("-inf")).to(COMPUTE)
        y_RK = tl.exp(x_RK - max_R[:, None]) / sum_R[:, None]
        tl.store(out_R[:, None] + (k * out_stride_K)[None, :], converted(y_RK, out_ptr.dtype.element_ty), mask=inside)


def softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """Softmax along ``dim``; ``half_to_float`` widens float16 to a float32 result.

    Raises:
        IndexError: ``dim`` out of range.
        TypeError: ``half_to_float`` for another type than float16.
    """
    require_served(self, dtypes=FLOATS)
    if half_to_float and self.dtype != torch.float16:
        raise TypeError(f"half_to_float widens float16 only, not {self.dtype}")
    (axis,) = normalized_dims(dim, self.ndim)
    result = torch.float32 if half_to_float else self.dtype
    out = torch.empty(self.shape, dtype=result, device=self.device)
    if self.numel():
        x, y = (self, out) if self.ndim else (self.view(1), out.view(1))
        _launch_softmax(y, x, axis)
    return out


def _launch_softmax(out: torch.Tensor, x: torch.Tensor, axis: int) -> None:
    shape, K = tuple(x.shape), x.shape[axis]
    others = [d for d in reversed(range(x.ndim)) if d != axis]
    rows = merge_dims(shape, [out.stride(), x.stride()], others)
    columns = merge_dims(shape, [out.stride(), x.stride()], [axis])
    R, width = rows.numel(), triton.next_power_of_2(K)
    block_r, block_k = _tile(rows, width)
    kernel, loop = (softmax_tile_kernel, []) if block_k == width else (softmax_online_kernel, [triton.cdiv(K, block_k)])
    launch(
        kernel,
        (triton.cdiv(R, block_r),),
        x.device,
        out,
        x,
        rows.shape_D,
        *rows.strides_ID,
        out.stride(axis),
        x.stride(axis),
        R,
        K,
        *map(loop_bound, loop),
        COMPUTE=compute_type(x.dtype),
        INDEX=index_type(rows, columns),
        BLOCK_R=block_r,
        BLOCK_K=block_k,
        num_warps=8 if block_r * block_k > 2048 else 4,
    )


def _tile(rows: Geometry, width: int) -> tuple[int, int]:
    """Rows and columns of a tile: whole rows where they fit.

    Where neighbours in memory belong to different rows, 32 rows share a tile so that reads stay coalesced.
    """
    height = triton.next_power_of_2(rows.numel())
    if INTERPRETED:
        block_k = min(width, INTERPRETED_TILE)
        return min(height, INTERPRETED_TILE // block_k), block_k
    across = min(height, 32) if rows.strides_ID[1][0] == 1 else 1
    block_k = min(width, TILE // across)
    return max(across, min(height, 1024 // block_k)), block_k
