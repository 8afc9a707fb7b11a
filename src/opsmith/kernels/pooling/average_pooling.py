"""Average pooling over strided or adaptive windows, forward and backward.

``y = sum of x over the window / divisor``: the divisor is ``divisor_override`` or the window's size, with or without
the padding that it covers. Traffic: ``numel * itemsize`` of the input and of the output; the positions that
windows share come from the cache. Backward, an input position gathers ``grad / divisor`` from the windows that
hold it.

Suffixes: ``_S`` one entry for each of depth, height and width, ``_RC`` a tile of rows and columns (volumes.py),
``_O`` outputs, ``_K`` positions of a window.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints, converted
from ..common.lanes import load_along_columns
from ..common.launch import INTERPRETED, INTERPRETED_TILE, await_earlier_kernels, compute_type, launch, require_served
from ..common.volumes import (
    Volume,
    aligned_volumes,
    channels_first,
    empty_volume,
    place_of,
    prefers_channels_last,
    require_volume,
    tile_of,
    tiles_of,
    volume_index_type,
    volume_of,
)
from ..common.windows import (
    UNROLLED,
    Window,
    adaptive_windows,
    first_holder,
    held_position,
    most_held,
    most_holders,
    output_sizes,
    place_in_box,
    pooling_windows,
    window_of,
)

Op = Callable[..., torch.Tensor]

#: A window of a row-major input with at least this many positions is read by neighbouring lanes.
LARGE = 32


@triton.jit
def counted(
    o: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    S: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
) -> tl.tensor:
    """How many positions of one dimension the window of ``o`` divides by."""
    first, behind = window_of(o, size_S, out_S, WINDOW_S, S)
    if COUNTS_PADDING:
        # A window of ceil mode may reach past the padding; what lies there never counts.
        count = tl.minimum(behind, size_S[S] + WINDOW_S[S][2]) - first
    else:
        count = tl.minimum(behind, size_S[S]) - tl.maximum(first, 0)
    return count


@triton.jit
def divisor_of(
    o_S: tl.tuple,
    size_S: tl.tuple,
    out_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    DIVISOR: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """What the sum over the window of output ``o_S`` is divided by."""
    if DIVISOR is None:
        count = counted(o_S[0], size_S, out_S, WINDOW_S, 0, COUNTS_PADDING)
        count = count * counted(o_S[1], size_S, out_S, WINDOW_S, 1, COUNTS_PADDING)
        count = count * counted(o_S[2], size_S, out_S, WINDOW_S, 2, COUNTS_PADDING)
        divisor = count.to(COMPUTE)
    else:
        divisor = tl.full([1, 1], DIVISOR, COMPUTE)
    return divisor


@triton.jit
def window_values(
    plane_ptr: tl.tensor,
    k: tl.tensor,
    mask: tl.tensor,
    o_S: tl.tuple,
    size_S: tl.tuple,
    out_S: tl.tuple,
    strides_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    HELD_S: tl.constexpr,
) -> tl.tensor:
    """The values at position ``k`` of the windows of outputs ``o_S``, 0 where a window has no such position."""
    kd, kh, kw = place_in_box(k, HELD_S)
    d, has_d = held_position(kd, o_S[0], size_S, out_S, WINDOW_S, 0)
    h, has_h = held_position(kh, o_S[1], size_S, out_S, WINDOW_S, 1)
    w, has_w = held_position(kw, o_S[2], size_S, out_S, WINDOW_S, 2)
    mask = mask & has_d & has_h & has_w
    return load_along_columns(plane_ptr + (d * strides_S[0] + h * strides_S[1] + w * strides_S[2]), mask)


@triton.jit
def average_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    WINDOW_S: tl.constexpr,
    HELD_S: tl.constexpr,
    UNROLL: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    DIVISOR: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane walks the window of one output."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, out_S, CHANNELS_LAST)
    plane_ptr = x_ptr + (n * stride_N + c * stride_C)
    o_S = (d, h, w)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    HELD: tl.constexpr = HELD_S[0] * HELD_S[1] * HELD_S[2]
    if UNROLL:
        for k in tl.static_range(HELD):
            x_RC = window_values(plane_ptr, k, mask, o_S, size_S, out_S, strides_S, WINDOW_S, HELD_S)
            sum_RC += x_RC.to(COMPUTE)
    else:
        for k in range(HELD):
            x_RC = window_values(plane_ptr, k, mask, o_S, size_S, out_S, strides_S, WINDOW_S, HELD_S)
            sum_RC += x_RC.to(COMPUTE)
    y_RC = sum_RC / divisor_of(o_S, size_S, out_S, WINDOW_S, COUNTS_PADDING, DIVISOR, COMPUTE)
    out_ptr_RC = out_ptr + row[:, None] * columns + column[None, :]
    tl.store(out_ptr_RC, converted(y_RC, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def average_large_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    numel: tl.tensor,
    WINDOW_S: tl.constexpr,
    HELD_S: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    DIVISOR: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_O: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Neighbouring lanes read neighbouring positions of a window: for large windows of a row-major volume."""
    await_earlier_kernels()
    o = tl.program_id(0).to(INDEX) * BLOCK_O + tl.arange(0, BLOCK_O)
    n, c, d, h, w = place_of(o // out_S[2], o % out_S[2], C, out_S, False)
    # Each output is a row; place_of makes W the columns.
    w = (o % out_S[2])[:, None]
    plane_ptr = x_ptr + (n * stride_N + c * stride_C)
    o_S = (d, h, w)
    sum_OK = tl.zeros([BLOCK_O, BLOCK_K], COMPUTE)
    HELD: tl.constexpr = HELD_S[0] * HELD_S[1] * HELD_S[2]
    for first in range(0, HELD, BLOCK_K):
        k = first + tl.arange(0, BLOCK_K)[None, :]
        mask = (o < numel)[:, None] & (k < HELD)
        x_OK = window_values(plane_ptr, k, mask, o_S, size_S, out_S, strides_S, WINDOW_S, HELD_S)
        sum_OK += x_OK.to(COMPUTE)
    y_OK = sum_OK / divisor_of(o_S, size_S, out_S, WINDOW_S, COUNTS_PADDING, DIVISOR, COMPUTE)
    tl.store(out_ptr + o, converted(tl.sum(y_OK, axis=1), out_ptr.dtype.element_ty), mask=o < numel)


@triton.jit
def share_of(
    i: tl.tensor,
    o: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    S: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """``1 / positions counted`` where there is a window ``o`` in dimension S and it holds position ``i``, else 0."""
    first, behind = window_of(o, size_S, out_S, WINDOW_S, S)
    holds = (o < out_S[S]) & (first <= i) & (i < behind)
    count = counted(o, size_S, out_S, WINDOW_S, S, COUNTS_PADDING).to(COMPUTE)
    return tl.where(holds, 1.0 / count, 0.0)


@triton.jit
def share_of_holder(
    k: tl.tensor,
    plane_ptr: tl.tensor,
    mask: tl.tensor,
    i_S: tl.tuple,
    size_S: tl.tuple,
    out_S: tl.tuple,
    strides_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    HOLDERS_S: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    DIVISOR: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """What position ``i_S`` gets of the gradient of the k-th window that may hold it."""
    kd, kh, kw = place_in_box(k, HOLDERS_S)
    d = first_holder(i_S[0], size_S, out_S, WINDOW_S, 0) + kd
    h = first_holder(i_S[1], size_S, out_S, WINDOW_S, 1) + kh
    w = first_holder(i_S[2], size_S, out_S, WINDOW_S, 2) + kw
    # The divisor is a product over the dimensions, so that its parts are computed for rows and columns only.
    share = share_of(i_S[0], d, size_S, out_S, WINDOW_S, 0, COUNTS_PADDING, COMPUTE)
    share = share * share_of(i_S[1], h, size_S, out_S, WINDOW_S, 1, COUNTS_PADDING, COMPUTE)
    share = share * share_of(i_S[2], w, size_S, out_S, WINDOW_S, 2, COUNTS_PADDING, COMPUTE)
    holds = mask & (share > 0)
    grad = load_along_columns(plane_ptr + (d * strides_S[0] + h * strides_S[1] + w * strides_S[2]), holds)
    if DIVISOR is None:
        result = grad.to(COMPUTE) * share
    else:
        result = grad.to(COMPUTE) / DIVISOR
    return result


@triton.jit
def average_backward_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    WINDOW_S: tl.constexpr,
    HOLDERS_S: tl.constexpr,
    UNROLL: tl.constexpr,
    COUNTS_PADDING: tl.constexpr,
    DIVISOR: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane gathers for one input position from the windows that hold it."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, size_S, CHANNELS_LAST)
    plane = grad_ptr + (n * stride_N + c * stride_C)
    i_S = (d, h, w)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    HOLDERS: tl.constexpr = HOLDERS_S[0] * HOLDERS_S[1] * HOLDERS_S[2]
    if UNROLL:
        for k in tl.static_range(HOLDERS):
            sum_RC += share_of_holder(
                k, plane, mask, i_S, size_S, out_S, strides_S, WINDOW_S, HOLDERS_S, COUNTS_PADDING, DIVISOR, COMPUTE
            )
    else:
        for k in range(HOLDERS):
            sum_RC += share_of_holder(
                k, plane, mask, i_S, size_S, out_S, strides_S, WINDOW_S, HOLDERS_S, COUNTS_PADDING, DIVISOR, COMPUTE
            )
    result_RC = converted(sum_RC, grad_input_ptr.dtype.element_ty)
    tl.store(grad_input_ptr + row[:, None] * columns + column[None, :], result_RC, mask=mask)


class Averaging(NamedTuple):
    """The windows of a call and what their sums are divided by: a number, or, where it is None, their sizes."""

    windows: tuple[Window, ...]
    counts_padding: bool
    divisor: int | None


def averaging(
    spatial: int,
    kernel_size: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    count_include_pad: bool,
    divisor_override: int | None,
) -> Averaging:
    """What an overload's arguments ask for.

    Raises:
        ValueError: arguments that eager refuses.
    """
    if divisor_override == 0:
        raise ValueError("divisor_override must not be zero")
    windows = pooling_windows(spatial, kernel_size, stride, padding)
    return Averaging(windows, count_include_pad, divisor_override)


def _average(x: torch.Tensor, spatial: int, out_S: Ints, rule: Averaging) -> torch.Tensor:
    channels_last = prefers_channels_last(x)
    shape = (*x.shape[:-spatial], *out_S[3 - spatial :])
    out = empty_volume(shape, x.dtype, x.device, channels_last=channels_last)
    if out.numel() == 0:
        return out
    volume, result = aligned_volumes([x, out], spatial, channels_last=channels_last)
    held_S = tuple(map(most_held, volume.spatial, out_S, rule.windows))
    if math.prod(held_S) >= LARGE and not channels_last:
        _launch_large(out, x, result, volume, rule, held_S)
    else:
        _launch_average(out, x, result, volume, rule, held_S, channels_last=channels_last)
    return out


def _launch_average(
    out: torch.Tensor,
    x: torch.Tensor,
    result: Volume,
    volume: Volume,
    rule: Averaging,
    held_S: Ints,
    *,
    channels_last: bool,
) -> None:
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    launch(
        average_kernel,
        tiles.grid,
        x.device,
        out,
        x,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        volume.spatial,
        result.spatial,
        tiles.rows,
        tiles.columns,
        WINDOW_S=tuple(map(tuple, rule.windows)),
        HELD_S=held_S,
        UNROLL=math.prod(held_S) <= UNROLLED,
        COUNTS_PADDING=rule.counts_padding,
        DIVISOR=rule.divisor,
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )


def _launch_large(
    out: torch.Tensor, x: torch.Tensor, result: Volume, volume: Volume, rule: Averaging, held_S: Ints
) -> None:
    numel, held = out.numel(), math.prod(held_S)
    block_k = min(triton.next_power_of_2(held), INTERPRETED_TILE if INTERPRETED else 512)
    block_o = max((INTERPRETED_TILE if INTERPRETED else 1024) // block_k, 1)
    block_o = min(triton.next_power_of_2(numel), block_o)
    launch(
        average_large_kernel,
        (triton.cdiv(numel, block_o),),
        x.device,
        out,
        x,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        volume.spatial,
        result.spatial,
        numel,
        WINDOW_S=tuple(map(tuple, rule.windows)),
        HELD_S=held_S,
        COUNTS_PADDING=rule.counts_padding,
        DIVISOR=rule.divisor,
        COMPUTE=compute_type(x.dtype),
        INDEX=volume_index_type(volume, result),
        BLOCK_O=block_o,
        BLOCK_K=block_k,
    )


def _average_backward(grad: torch.Tensor, x: torch.Tensor, spatial: int, out_S: Ints, rule: Averaging) -> torch.Tensor:
    expected = (*x.shape[:-spatial], *out_S[3 - spatial :])
    if tuple(grad.shape) != expected or grad.dtype != x.dtype:
        raise ValueError(f"the gradient must be {x.dtype} of {list(expected)}, not {grad.dtype} of {list(grad.shape)}")
    channels_last = prefers_channels_last(x)
    out = empty_volume(tuple(x.shape), x.dtype, x.device, channels_last=channels_last)
    if out.numel() == 0:
        return out
    volume, result = aligned_volumes([grad, out], spatial, channels_last=channels_last)
    holders_S = tuple(map(most_holders, result.spatial, out_S, rule.windows))
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    launch(
        average_backward_kernel,
        tiles.grid,
        x.device,
        out,
        grad,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        result.spatial,
        out_S,
        tiles.rows,
        tiles.columns,
        WINDOW_S=tuple(map(tuple, rule.windows)),
        HOLDERS_S=holders_S,
        UNROLL=math.prod(holders_S) <= UNROLLED,
        COUNTS_PADDING=rule.counts_padding,
        DIVISOR=rule.divisor,
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
    return out


def strided(spatial: int) -> tuple[Op, Op]:
    """Averages over windows of the last ``spatial`` dimensions, and their gradient by the input."""

    def op(
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        ceil_mode: bool = False,
        count_include_pad: bool = True,
        divisor_override: int | None = None,
    ) -> torch.Tensor:
        rule = averaging(spatial, kernel_size, stride, padding, count_include_pad, divisor_override)
        require_served(self, dtypes=FLOATS)
        require_volume(self, spatial)
        out_S = output_sizes(volume_of(self, spatial).spatial, rule.windows, ceil_mode=ceil_mode)
        return _average(self, spatial, out_S, rule)

    def backward(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> torch.Tensor:
        rule = averaging(spatial, kernel_size, stride, padding, count_include_pad, divisor_override)
        require_served(grad_output, self, dtypes=FLOATS)
        require_volume(self, spatial)
        out_S = output_sizes(volume_of(self, spatial).spatial, rule.windows, ceil_mode=ceil_mode)
        return _average_backward(grad_output, self, spatial, out_S, rule)

    return op, backward


def adaptive(spatial: int) -> tuple[Op, Op]:
    """Averages over ``output_size`` windows of the last ``spatial`` dimensions, and their gradient by the input."""
    rule = Averaging(adaptive_windows(spatial), False, None)

    def op(self: torch.Tensor, output_size: Sequence[int]) -> torch.Tensor:
        require_served(self, dtypes=FLOATS)
        require_volume(self, spatial)
        if len(output_size) != spatial or min(output_size) < 0:
            raise ValueError(f"output_size must be {spatial} sizes, not {list(output_size)}")
        return _average(self, spatial, (1,) * (3 - spatial) + tuple(output_size), rule)

    def backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
        require_served(grad_output, self, dtypes=FLOATS)
        require_volume(self, spatial)
        require_volume(grad_output, spatial)
        return _average_backward(grad_output, self, spatial, volume_of(grad_output, spatial).spatial, rule)

    return op, backward


avg_pool2d, avg_pool2d_backward = strided(2)
avg_pool3d, avg_pool3d_backward = strided(3)
adaptive_avg_pool2d, adaptive_avg_pool2d_backward = adaptive(2)
adaptive_avg_pool3d, adaptive_avg_pool3d_backward = adaptive(3)
