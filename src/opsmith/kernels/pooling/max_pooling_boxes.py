"""The gradient of max pooling of volumes whose windows overlap: boxes of positions that look into windows together.

Each input position lies in several windows, 27 where windows of 3 x 3 x 3 are one apart. Were each to look for itself,
an index of 8 bytes would be loaded as often as a window is large. So a lane has a box of positions, behind and above
each other, and loads what a window says once for all of them: with eight positions, 9 loads for each instead of 27.
Boxes begin at multiples of the stride, so it is known beforehand which window may hold which position of a box.

Traffic: ``numel * (itemsize + 8)`` of the windows, ``numel * itemsize`` of the result. Nothing is added atomically.

Suffixes: ``_S`` one entry for each of depth, height and width, ``_RC`` a tile of boxes (volumes.py).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints, converted
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import await_earlier_kernels, compute_type, launch
from ..common.volumes import (
    Volume,
    aligned_volumes,
    channels_first,
    empty_volume,
    place_of,
    prefers_channels_last,
    tile_of,
    tiles_of,
    volume_index_type,
)
from ..common.windows import UNROLLED, Window, first_holder, most_holders
from ..copies.rearrangements import copy_into

#: Positions of a box at most. Every window around it is loaded once, and registers hold a sum for each position.
POSITIONS = 8
#: Boxes of a program: one for each thread.
BOXES = 128


class Box(NamedTuple):
    """Neighbouring positions of one dimension, and the windows that hold any of them: the same around every box.

    Attributes:
        size: positions, a multiple of the windows' stride.
        step: windows between the first of one box and that of the next.
        lead: the first window of the box at position 0, perhaps a negative one.
        holds: window by window whether it holds each position.
    """

    size: int
    step: int
    lead: int
    holds: tuple[tuple[bool, ...], ...]


@triton.jit
def sums_with_window(
    sums: tl.tuple,
    at_RC: tl.tensor,
    here: tl.tensor,
    grad_RC: tl.tensor,
    size_S: tl.tuple,
    HOLDS_D: tl.constexpr,
    HOLDS_H: tl.constexpr,
    KD: tl.constexpr,
    KH: tl.constexpr,
    BOX_D: tl.constexpr,
    BOX_H: tl.constexpr,
) -> tl.tuple:
    """The sums of a box that begins ``here``, after window (KD, KH) around it, whose maximum lies ``at`` a position."""
    added: tl.tuple = ()
    for d in tl.static_range(BOX_D):
        for h in tl.static_range(BOX_H):
            sum_RC = sums[d * BOX_H + h]
            if HOLDS_D[KD][d] and HOLDS_H[KH][h]:
                sum_RC += tl.where(at_RC == here + (d * size_S[1] + h) * size_S[2], grad_RC, 0.0)
            added += (sum_RC,)
    return added


@triton.jit
def max_backward_boxes_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    index_ptr: tl.tensor,
    result_stride_N: tl.tensor,
    result_stride_C: tl.tensor,
    result_strides_S: tl.tuple,
    grad_stride_N: tl.tensor,
    grad_stride_C: tl.tensor,
    grad_strides_S: tl.tuple,
    index_stride_N: tl.tensor,
    index_stride_C: tl.tensor,
    index_strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    boxes_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    WINDOW_S: tl.constexpr,
    DEEP: tl.constexpr,
    HIGH: tl.constexpr,
    HOLDS_D: tl.constexpr,
    HOLDS_H: tl.constexpr,
    WINDOWS_W: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane looks for a box of input positions in the indices of the windows around it.

    DEEP and HIGH are size, step and lead of its :class:`Box` in depth and height, HOLDS_D and HOLDS_H the rest.
    """
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, box_d, box_h, w = place_of(row, column, C, boxes_S, CHANNELS_LAST)
    BOX_D: tl.constexpr = DEEP[0]
    BOX_H: tl.constexpr = HIGH[0]
    first_d, first_h = box_d * DEEP[1] + DEEP[2], box_h * HIGH[1] + HIGH[2]
    first_w = first_holder(w, size_S, out_S, WINDOW_S, 2)
    here = (box_d * BOX_D * size_S[1] + box_h * BOX_H) * size_S[2] + w
    grad_ptr_RC = grad_ptr + (n * grad_stride_N + c * grad_stride_C)
    grad_ptr_RC += first_d * grad_strides_S[0] + first_h * grad_strides_S[1] + first_w * grad_strides_S[2]
    index_ptr_RC = index_ptr + (n * index_stride_N + c * index_stride_C)
    index_ptr_RC += first_d * index_strides_S[0] + first_h * index_strides_S[1] + first_w * index_strides_S[2]
    sums: tl.tuple = ()
    for _ in tl.static_range(BOX_D * BOX_H):
        sums += (tl.zeros([BLOCK_R, BLOCK_C], COMPUTE),)
    for kd in tl.static_range(len(HOLDS_D)):
        has_d = (first_d + kd >= 0) & (first_d + kd < out_S[0])
        for kh in tl.static_range(len(HOLDS_H)):
            has_row = mask & has_d & (first_h + kh >= 0) & (first_h + kh < out_S[1])
            grad_row_RC = grad_ptr_RC + (kd * grad_strides_S[0] + kh * grad_strides_S[1])
            index_row_RC = index_ptr_RC + (kd * index_strides_S[0] + kh * index_strides_S[1])
            for kw in tl.static_range(WINDOWS_W):
                exists = has_row & (first_w + kw < out_S[2])
                at_RC = load_along_columns(index_row_RC + kw * index_strides_S[2], exists, -1).to(INDEX)
                grad_RC = load_along_columns(grad_row_RC + kw * grad_strides_S[2], exists).to(COMPUTE)
                sums = sums_with_window(sums, at_RC, here, grad_RC, size_S, HOLDS_D, HOLDS_H, kd, kh, BOX_D, BOX_H)
    result_plane = grad_input_ptr + (n * result_stride_N + c * result_stride_C)
    for jd in tl.static_range(BOX_D):
        for jh in tl.static_range(BOX_H):
            d, h = box_d * BOX_D + jd, box_h * BOX_H + jh
            offset = d * result_strides_S[0] + h * result_strides_S[1] + w * result_strides_S[2]
            result_RC = converted(sums[jd * BOX_H + jh], grad_input_ptr.dtype.element_ty)
            store_along_columns(result_plane + offset, result_RC, mask & (d < size_S[0]) & (h < size_S[1]))


def box_of(size: int, window: Window, positions: int) -> Box:
    """Boxes of about ``positions``, of which as few as possible lie behind ``size``."""
    _kernel, stride, padding, dilation = window
    fair = triton.cdiv(size, triton.cdiv(size, max(positions, stride)))
    box = triton.cdiv(fair, stride) * stride
    lead = -((window.extent - 1 - padding) // stride)
    behind = (box - 1 + padding) // stride + 1
    firsts = [o * stride - padding for o in range(lead, behind)]
    holds = (tuple(i in range(first, first + window.extent, dilation) for i in range(box)) for first in firsts)
    return Box(box, box // stride, lead, tuple(holds))


def boxes_of(size_S: Ints, out_S: Ints, windows: Sequence[Window]) -> tuple[Box, Box] | None:
    """Boxes of depth and height where windows overlap and are not too many to be unrolled; else None.

    In height a box is as high as windows are apart: among two rows, windows of 3 that are two apart are loaded twice,
    not four times. The rest of its positions lie behind each other.
    """
    overlaps = 1 < math.prod(map(most_holders, size_S, out_S, windows)) <= UNROLLED
    high, deep = windows[1].stride, windows[0].stride
    if not overlaps or min(window.kernel * window.stride for window in windows) == 0 or high * deep > POSITIONS:
        return None
    return box_of(size_S[0], windows[0], POSITIONS // high), box_of(size_S[1], windows[1], high)


def max_backward_by_boxes(
    out: torch.Tensor,
    grad: torch.Tensor,
    indices: torch.Tensor,
    windows: tuple[Window, ...],
    boxes: tuple[Box, Box],
    *,
    channels_last: bool,
) -> None:
    """Write to ``out`` the gradient of maxima of its volumes that lie at ``indices``."""
    if prefers_channels_last(grad) != channels_last:
        # Lanes run along the result: a gradient that lies the other way would be read a cache line for an element.
        turned = empty_volume(tuple(grad.shape), grad.dtype, grad.device, channels_last=channels_last)
        copy_into(turned, grad)
        grad = turned
    volume, places, result = aligned_volumes([grad, indices, out], 3, channels_last=channels_last)
    deep, high = boxes
    N, C, D, H, W = result.shape_NCDHW
    boxed = Volume((N, C, triton.cdiv(D, deep.size), triton.cdiv(H, high.size), W), result.strides_NCDHW)
    tiles = tiles_of(boxed, out.device, channels_last=channels_last, most_elements=BOXES)
    launch(
        max_backward_boxes_kernel,
        tiles.grid,
        out.device,
        out,
        grad,
        indices,
        *channels_first(result.strides_NCDHW),
        *channels_first(volume.strides_NCDHW),
        *channels_first(places.strides_NCDHW),
        C,
        result.spatial,
        volume.spatial,
        boxed.spatial,
        tiles.rows,
        tiles.columns,
        WINDOW_S=tuple(map(tuple, windows)),
        DEEP=(deep.size, deep.step, deep.lead),
        HIGH=(high.size, high.step, high.lead),
        HOLDS_D=deep.holds,
        HOLDS_H=high.holds,
        WINDOWS_W=most_holders(W, volume.spatial[2], windows[2]),
        COMPUTE=compute_type(out.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, places, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
