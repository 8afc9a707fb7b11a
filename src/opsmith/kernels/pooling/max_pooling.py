"""Max pooling over strided or adaptive windows, with the place of each maximum, forward and backward.

``y = max of x over the window``, ``index = (d H + h) W + w`` of the first maximum; a NaN is greater than all, the last
one of several. Traffic: ``numel * itemsize`` of the input, ``numel * (itemsize + 8)`` of the output; the
positions that windows share come from the cache. Backward, an input position looks into the windows that hold
it, and adds the gradient of those whose index names it; max_pooling_boxes.py has windows of volumes that overlap.

Suffixes: ``_S`` one entry for each of depth, height and width, ``_RC`` a tile of rows and columns (volumes.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints, converted
from ..common.lanes import load_along_columns
from ..common.launch import await_earlier_kernels, compute_type, launch, require_served
from ..common.volumes import (
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
    first_inside,
    held_position,
    most_held,
    most_holders,
    output_sizes,
    place_in_box,
    pooling_windows,
)
from .max_pooling_boxes import boxes_of, max_backward_by_boxes

Op = Callable[..., Any]


@triton.jit
def max_step(
    best: tl.tensor,
    at: tl.tensor,
    k: tl.tensor,
    plane_ptr: tl.tensor,
    mask: tl.tensor,
    o_S: tl.tuple,
    size_S: tl.tuple,
    out_S: tl.tuple,
    strides_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    HELD_S: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The maximum so far and its place, after position ``k`` of the windows of outputs ``o_S``."""
    kd, kh, kw = place_in_box(k, HELD_S)
    d, has_d = held_position(kd, o_S[0], size_S, out_S, WINDOW_S, 0)
    h, has_h = held_position(kh, o_S[1], size_S, out_S, WINDOW_S, 1)
    w, has_w = held_position(kw, o_S[2], size_S, out_S, WINDOW_S, 2)
    inside = mask & has_d & has_h & has_w
    # What lies outside never wins; a window of nothing but -inf keeps its first position.
    offset = d * strides_S[0] + h * strides_S[1] + w * strides_S[2]
    x = load_along_columns(plane_ptr + offset, inside, float("-inf")).to(best.dtype)
    is_larger = (x > best) | (x != x)  # noqa: PLR0124 - NaN
    return tl.where(is_larger, x, best), tl.where(is_larger, (d * size_S[1] + h) * size_S[2] + w, at)


@triton.jit
def max_kernel(
    out_ptr: tl.tensor,
    index_ptr: tl.tensor,
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
    best_RC = tl.full([BLOCK_R, BLOCK_C], float("-inf"), COMPUTE)
    first_d = first_inside(d, size_S, out_S, WINDOW_S, 0)
    first_h = first_inside(h, size_S, out_S, WINDOW_S, 1)
    first_w = first_inside(w, size_S, out_S, WINDOW_S, 2)
    at_RC = (first_d * size_S[1] + first_h) * size_S[2] + first_w + tl.zeros([BLOCK_R, BLOCK_C], INDEX)
    HELD: tl.constexpr = HELD_S[0] * HELD_S[1] * HELD_S[2]
    if UNROLL:
        for k in tl.static_range(HELD):
            best_RC, at_RC = max_step(
                best_RC, at_RC, k, plane_ptr, mask, o_S, size_S, out_S, strides_S, WINDOW_S, HELD_S
            )
    else:
        for k in range(HELD):
            best_RC, at_RC = max_step(
                best_RC, at_RC, k, plane_ptr, mask, o_S, size_S, out_S, strides_S, WINDOW_S, HELD_S
            )
    offset_RC = row[:, None] * columns + column[None, :]
    tl.store(out_ptr + offset_RC, converted(best_RC, out_ptr.dtype.element_ty), mask=mask)
    tl.store(index_ptr + offset_RC, at_RC.to(tl.int64), mask=mask)


@triton.jit
def gradient_of_holder(
    k: tl.tensor,
    grad_plane_ptr: tl.tensor,
    index_plane_ptr: tl.tensor,
    mask: tl.tensor,
    i_S: tl.tuple,
    size_S: tl.tuple,
    out_S: tl.tuple,
    grad_strides_S: tl.tuple,
    index_strides_S: tl.tuple,
    WINDOW_S: tl.constexpr,
    HOLDERS_S: tl.constexpr,
) -> tl.tensor:
    """The gradient of the k-th window that may hold position ``i_S`` if its maximum lies there, else 0."""
    kd, kh, kw = place_in_box(k, HOLDERS_S)
    d = first_holder(i_S[0], size_S, out_S, WINDOW_S, 0) + kd
    h = first_holder(i_S[1], size_S, out_S, WINDOW_S, 1) + kh
    w = first_holder(i_S[2], size_S, out_S, WINDOW_S, 2) + kw
    exists = mask & (d < out_S[0]) & (h < out_S[1]) & (w < out_S[2])
    at_offset = d * index_strides_S[0] + h * index_strides_S[1] + w * index_strides_S[2]
    here = (i_S[0] * size_S[1] + i_S[1]) * size_S[2] + i_S[2]
    is_here = load_along_columns(index_plane_ptr + at_offset, exists, -1).to(here.dtype) == here
    offset = d * grad_strides_S[0] + h * grad_strides_S[1] + w * grad_strides_S[2]
    return load_along_columns(grad_plane_ptr + offset, exists & is_here)


@triton.jit
def max_backward_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    index_ptr: tl.tensor,
    grad_stride_N: tl.tensor,
    grad_stride_C: tl.tensor,
    grad_strides_S: tl.tuple,
    index_stride_N: tl.tensor,
    index_stride_C: tl.tensor,
    index_strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    WINDOW_S: tl.constexpr,
    HOLDERS_S: tl.constexpr,
    UNROLL: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane looks for one input position in the indices of the windows that may hold it."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, size_S, CHANNELS_LAST)
    grad_plane = grad_ptr + (n * grad_stride_N + c * grad_stride_C)
    index_plane = index_ptr + (n * index_stride_N + c * index_stride_C)
    i_S = (d, h, w)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    given = (grad_plane, index_plane, mask, i_S, size_S, out_S, grad_strides_S, index_strides_S)
    HOLDERS: tl.constexpr = HOLDERS_S[0] * HOLDERS_S[1] * HOLDERS_S[2]
    if UNROLL:
        for k in tl.static_range(HOLDERS):
            sum_RC += gradient_of_holder(k, *given, WINDOW_S, HOLDERS_S).to(COMPUTE)
    else:
        for k in range(HOLDERS):
            sum_RC += gradient_of_holder(k, *given, WINDOW_S, HOLDERS_S).to(COMPUTE)
    result_RC = converted(sum_RC, grad_input_ptr.dtype.element_ty)
    tl.store(grad_input_ptr + row[:, None] * columns + column[None, :], result_RC, mask=mask)


def _max(
    x: torch.Tensor, spatial: int, out_S: Ints, windows: tuple[Window, ...], *, channels_last: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    shape = (*x.shape[:-spatial], *out_S[3 - spatial :])
    out = empty_volume(shape, x.dtype, x.device, channels_last=channels_last)
    index = empty_volume(shape, torch.int64, x.device, channels_last=channels_last)
    if out.numel() == 0:
        return out, index
    volume, result = aligned_volumes([x, out], spatial, channels_last=channels_last)
    held_S = tuple(map(most_held, volume.spatial, out_S, windows))
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    launch(
        max_kernel,
        tiles.grid,
        x.device,
        out,
        index,
        x,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        volume.spatial,
        out_S,
        tiles.rows,
        tiles.columns,
        WINDOW_S=tuple(map(tuple, windows)),
        HELD_S=held_S,
        UNROLL=math.prod(held_S) <= UNROLLED,
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
    return out, index


def max_backward(
    grad: torch.Tensor,
    x: torch.Tensor,
    indices: torch.Tensor,
    spatial: int,
    windows: tuple[Window, ...],
    *,
    channels_last: bool,
) -> torch.Tensor:
    """The gradient by ``x`` of maxima that lie at ``indices``.

    Raises:
        ValueError: shapes or types that do not fit.
    """
    require_served(grad, x, dtypes=FLOATS)
    require_volume(grad, spatial)
    fits = grad.shape == indices.shape and grad.shape[:-spatial] == x.shape[:-spatial]
    if not fits or grad.dtype != x.dtype or indices.dtype != torch.int64:
        raise ValueError(f"a {grad.dtype} gradient of {list(grad.shape)} and its indices do not fit {list(x.shape)}")
    out = empty_volume(tuple(x.shape), x.dtype, x.device, channels_last=channels_last)
    if out.numel() == 0:
        return out
    volume, places, result = aligned_volumes([grad, indices, out], spatial, channels_last=channels_last)
    boxes = boxes_of(result.spatial, volume.spatial, windows) if spatial == 3 else None
    if boxes:
        max_backward_by_boxes(out, grad, indices, windows, boxes, channels_last=channels_last)
        return out
    holders_S = tuple(map(most_holders, result.spatial, volume.spatial, windows))
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    launch(
        max_backward_kernel,
        tiles.grid,
        x.device,
        out,
        grad,
        indices,
        *channels_first(volume.strides_NCDHW),
        *channels_first(places.strides_NCDHW),
        result.shape_NCDHW[1],
        result.spatial,
        volume.spatial,
        tiles.rows,
        tiles.columns,
        WINDOW_S=tuple(map(tuple, windows)),
        HOLDERS_S=holders_S,
        UNROLL=math.prod(holders_S) <= UNROLLED,
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, places, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
    return out


def strided(spatial: int) -> tuple[Op, Op]:
    """Maxima over windows of the last ``spatial`` dimensions with where each lies, and the gradient by the input."""

    def op(
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int] = (),
        padding: Sequence[int] = (0,),
        dilation: Sequence[int] = (1,),
        ceil_mode: bool = False,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        windows = pooling_windows(spatial, kernel_size, stride, padding, dilation)
        require_served(self, dtypes=FLOATS)
        require_volume(self, spatial)
        out_S = output_sizes(volume_of(self, spatial).spatial, windows, ceil_mode=ceil_mode)
        return _max(self, spatial, out_S, windows, channels_last=prefers_channels_last(self))

    def backward(
        grad_output: torch.Tensor,
        self: torch.Tensor,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        dilation: Sequence[int],
        ceil_mode: bool,
        indices: torch.Tensor,
    ) -> torch.Tensor:
        windows = pooling_windows(spatial, kernel_size, stride, padding, dilation)
        require_volume(self, spatial)
        out_S = output_sizes(volume_of(self, spatial).spatial, windows, ceil_mode=ceil_mode)
        if tuple(grad_output.shape[-spatial:]) != out_S[3 - spatial :]:
            raise ValueError(f"the gradient must be of {list(out_S)}, not {list(grad_output.shape)}")
        channels_last = prefers_channels_last(self)
        return max_backward(grad_output, self, indices, spatial, windows, channels_last=channels_last)

    return op, backward


def adaptive(spatial: int) -> tuple[Op, Op]:
    """Maxima over ``output_size`` windows of the last ``spatial`` dimensions, and the gradient, as :func:`strided`."""
    windows = adaptive_windows(spatial)

    def op(self: torch.Tensor, output_size: Sequence[int]) -> tuple[torch.Tensor, torch.Tensor]:
        require_served(self, dtypes=FLOATS)
        require_volume(self, spatial)
        if len(output_size) != spatial or min(output_size) < 0:
            raise ValueError(f"output_size must be {spatial} sizes, not {list(output_size)}")
        out_S = (1,) * (3 - spatial) + tuple(output_size)
        return _max(self, spatial, out_S, windows, channels_last=spatial == 2 and prefers_channels_last(self))

    def backward(grad_output: torch.Tensor, self: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
        require_volume(self, spatial)
        channels_last = spatial == 2 and prefers_channels_last(self)
        return max_backward(grad_output, self, indices, spatial, windows, channels_last=channels_last)

    return op, backward


max_pool2d_with_indices, max_pool2d_with_indices_backward = strided(2)
max_pool3d_with_indices, max_pool3d_with_indices_backward = strided(3)
adaptive_max_pool2d, adaptive_max_pool2d_backward = adaptive(2)
adaptive_max_pool3d, adaptive_max_pool3d_backward = adaptive(3)
