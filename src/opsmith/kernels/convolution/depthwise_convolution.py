"""Depthwise convolutions under the largest windows: each channel has one of its own, no sum runs over channels.

A few multiplications for each element that is read, so that memory decides: ``numel * itemsize`` of the field and of
the sites. A tile's neighbouring lanes hold neighbouring places (row-major) or channels (channels-last); what
windows share comes from the cache. Windows whose rows of taps can be unrolled have faster kernels in
depthwise_patches.py, and the weight's gradient has its own in depthwise_gradients.py.

Suffixes: ``_S`` one entry for each of depth, height and width; ``_RC`` a tile, whose rows are planes and whose columns
their places, or, channels-last, rows places and columns their channels.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import INTERPRETED, INTERPRETED_TILE, await_earlier_kernels, compute_type, launch
from ..common.volumes import tile_of, volume_index_type, volume_of
from ..common.windows import UNROLLED, place_in_box
from .convolution_operands import kernel_sizes
from .gathered_products import place_in_space
from .sliding import Sliding, walk_of


@triton.jit
def product_under(
    k: tl.tensor,
    x_ptr: tl.tensor,
    w_ptr: tl.tensor,
    mask: tl.tensor,
    place_S: tl.tuple,
    size_S: tl.tuple,
    strides_S: tl.tuple,
    w_strides_S: tl.tuple,
    WALK_S: tl.constexpr,
    KERNEL_S: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """What the places get under tap ``k`` of the window."""
    kd, kh, kw = place_in_box(k, KERNEL_S)
    d, has_d = position_under(place_S[0], kd, size_S, WALK_S, 0)
    h, has_h = position_under(place_S[1], kh, size_S, WALK_S, 1)
    w, has_w = position_under(place_S[2], kw, size_S, WALK_S, 2)
    mask = mask & has_d & has_h & has_w
    x_RC = load_along_columns(x_ptr + (d * strides_S[0] + h * strides_S[1] + w * strides_S[2]), mask)
    w_RC = tl.load(w_ptr + (kd * w_strides_S[0] + kh * w_strides_S[1] + kw * w_strides_S[2]))
    return x_RC.to(COMPUTE) * w_RC.to(COMPUTE)


@triton.jit
def position_under(
    place: tl.tensor, k: tl.tensor, size_S: tl.tuple, WALK_S: tl.constexpr, S: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """What a place reads under tap ``k`` in dimension S, and whether it exists."""
    PHASES: tl.constexpr = WALK_S[S][3]
    if WALK_S[S][2] < 0:
        # From a field position back to the site that has it under this tap.
        ahead = place + WALK_S[S][5] - k * WALK_S[S][6]
        i = ahead // PHASES
        exists = (ahead >= 0) & (i < size_S[S])
        if PHASES > 1:
            exists = exists & (ahead % PHASES == 0)
    else:
        i = place * WALK_S[S][1] + WALK_S[S][5] + k * WALK_S[S][6]
        exists = (i >= 0) & (i < size_S[S])
    return i, exists


@triton.jit
def depthwise_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    w_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    bias_stride: tl.tensor,
    C: tl.tensor,
    space: tl.tensor,
    x_strides_NC: tl.tuple,
    x_strides_S: tl.tuple,
    x_size_S: tl.tuple,
    w_stride_C: tl.tensor,
    w_strides_S: tl.tuple,
    out_size_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    WALK_S: tl.constexpr,
    KERNEL_S: tl.constexpr,
    UNROLL: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane walks the taps of one place."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    if CHANNELS_LAST:
        n, q, c = (row // space)[:, None], (row % space)[:, None], column[None, :]
    else:
        n, q, c = (row // C)[:, None], column[None, :], (row % C)[:, None]
    # A channel beyond C reads the last one's weight, and is not written.
    c = tl.minimum(c, C - 1)
    x_ptr_RC = x_ptr + (n * x_strides_NC[0] + c * x_strides_NC[1])
    w_ptr_RC = w_ptr + c * w_stride_C
    place_S = place_in_space(q, out_size_S)
    y_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    TAPS: tl.constexpr = KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]
    if UNROLL:
        for k in tl.static_range(TAPS):
            y_RC += product_under(
                k, x_ptr_RC, w_ptr_RC, mask, place_S, x_size_S, x_strides_S, w_strides_S, WALK_S, KERNEL_S, COMPUTE
            )
    else:
        for k in range(TAPS):
            y_RC += product_under(
                k, x_ptr_RC, w_ptr_RC, mask, place_S, x_size_S, x_strides_S, w_strides_S, WALK_S, KERNEL_S, COMPUTE
            )
    if bias_ptr is not None:
        y_RC += tl.load(bias_ptr + c * bias_stride).to(COMPUTE)
    out_ptr_RC = out_ptr + row[:, None] * columns + column[None, :]
    store_along_columns(out_ptr_RC, converted(y_RC, out_ptr.dtype.element_ty), mask)


def convolve_depthwise(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rule: Sliding,
    *,
    to_field: bool,
) -> None:
    """As :func:`gathered_products.convolve`, where groups have one channel on either side."""
    spatial = out.ndim - 2
    y, source = volume_of(out, spatial), volume_of(x, spatial)
    last = out.stride(1) == 1 and math.prod(y.spatial) > 1 and y.shape_NCDHW[1] > 1
    N, C, space = *y.shape_NCDHW[:2], math.prod(y.spatial)
    rows, columns = (N * space, C) if last else (N * C, space)
    block_r, block_c = _sides(rows, columns)
    walks = tuple(walk_of(window, to_field=to_field) for window in rule.windows)
    stride_C, _, *strides = weight.stride()
    kernel_S = kernel_sizes(rule.windows)
    launch(
        depthwise_kernel,
        (triton.cdiv(rows, block_r), triton.cdiv(columns, block_c)),
        out.device,
        out,
        x,
        weight,
        bias,
        0 if bias is None else bias.stride(0),
        C,
        space,
        source.strides_NCDHW[:2],
        source.strides_NCDHW[2:],
        source.spatial,
        stride_C,
        (0,) * (3 - spatial) + tuple(strides),
        y.spatial,
        rows,
        columns,
        WALK_S=walks,
        KERNEL_S=kernel_S,
        UNROLL=not INTERPRETED and math.prod(kernel_S) <= UNROLLED,
        COMPUTE=compute_type(out.dtype),
        CHANNELS_LAST=last,
        INDEX=volume_index_type(y, source),
        BLOCK_R=block_r,
        BLOCK_C=block_c,
    )


def _sides(rows: int, columns: int) -> tuple[int, int]:
    """Rows and columns of a tile of 1024 elements, few of which lie beyond the last column."""
    if INTERPRETED:
        block_c = min(triton.next_power_of_2(columns), 4096)
        return min(triton.next_power_of_2(rows), INTERPRETED_TILE // block_c), block_c
    block_c = min((1024, 512, 256, 128, 64, 32, 16), key=lambda block: triton.cdiv(columns, block) * (block + 16))
    return min(triton.next_power_of_2(rows), 1024 // block_c), block_c
