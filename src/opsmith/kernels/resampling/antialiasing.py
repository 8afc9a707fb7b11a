"""Resampling of planes with a filter that is as wide as an output is apart: antialiased linear and cubic.

Output ``o`` lies at ``centre = scale (o + 1/2)`` of the input and averages the positions within ``support`` of it, with
weights ``filter((i + 1/2 - centre) / max(scale, 1))`` that are divided by their sum; the weights of height and
width multiply. ``support`` is 1 (linear) or 2 (cubic), times ``scale`` where an output covers more than one input.
Traffic: ``numel * itemsize`` of the input and of the output; the positions that outputs share come from the cache.

Backward, an input position gathers from the outputs whose support may reach it.

Suffixes: ``_RC`` a tile of rows and columns (volumes.py), ``_h`` and ``_w`` along height and width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints, converted, number
from ..common.lanes import load_along_columns
from ..common.launch import await_earlier_kernels, compute_type, launch, number_bits, require_served
from ..common.volumes import (
    Volume,
    channels_first,
    empty_volume,
    place_of,
    prefers_channels_last,
    tile_of,
    tiles_of,
    volume_index_type,
    volume_of,
)
from .resampling import Sampling, cubic, interpolated_planes, linear, planned

#: Weights of neighbouring outputs that a lane of the backward pass holds: eight gradients are on their way at once.
TOGETHER = 8


@triton.jit
def filter_of(x: tl.tensor, TAPS: tl.constexpr) -> tl.tensor:
    """A triangle, or Keys' kernel for a = -1/2; zero beyond half the taps."""
    x = tl.abs(x)
    if TAPS == 2:
        weight = tl.where(x < 1.0, 1.0 - x, 0.0)
    else:
        near = (1.5 * x - 2.5) * x * x + 1.0
        far = ((-0.5 * x + 2.5) * x - 4.0) * x + 2.0
        weight = tl.where(x < 1.0, near, tl.where(x < 2.0, far, 0.0))
    return weight


@triton.jit
def support_of(
    o: tl.tensor, size: tl.tensor, scale: tl.tensor, TAPS: tl.constexpr, COMPUTE: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """First position of a support, the one behind its last, and the way from its centre to that of the first."""
    # Float64: far from 0, float32 leaves a centre few digits behind the point, and each compiler others.
    centre = scale * (o.to(scale.dtype) + 0.5)
    support = tl.maximum(scale, 1.0) * (TAPS // 2)
    first = tl.maximum((centre - support + 0.5).to(o.dtype), 0)
    behind = tl.minimum((centre + support + 0.5).to(o.dtype), size)
    return first, behind, (first.to(scale.dtype) + 0.5 - centre).to(COMPUTE)


@triton.jit
def raw_weight(
    i: tl.tensor, first: tl.tensor, behind: tl.tensor, lead: tl.tensor, narrowing: tl.tensor, TAPS: tl.constexpr
) -> tl.tensor:
    """The filter at position ``i`` of a support, 0 outside."""
    x = ((i - first).to(lead.dtype) + lead) * narrowing
    return tl.where((i >= first) & (i < behind), filter_of(x, TAPS), 0.0)


@triton.jit
def total_weight(
    first: tl.tensor,
    behind: tl.tensor,
    lead: tl.tensor,
    narrowing: tl.tensor,
    TAPS: tl.constexpr,
    MOST: tl.constexpr,
) -> tl.tensor:
    """What the weights of a support are divided by."""
    total = lead * 0.0
    for k in range(MOST):
        total += raw_weight(first + k, first, behind, lead, narrowing, TAPS)
    return tl.where(total != 0.0, total, 1.0)


@triton.jit
def narrowing_of(scale: tl.tensor, COMPUTE: tl.constexpr) -> tl.tensor:
    """What distances are multiplied by before the filter is asked."""
    return (1.0 / tl.maximum(scale, 1.0)).to(COMPUTE)


@triton.jit
def antialias_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    scale_h_bits: tl.tensor,
    scale_w_bits: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    TAPS: tl.constexpr,
    MOST_H: tl.constexpr,
    MOST_W: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane walks the support of one output."""
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, _d, h, w = place_of(row, column, C, out_S, CHANNELS_LAST)
    plane_ptr = x_ptr + (n * stride_N + c * stride_C)
    scale_h, scale_w = number(scale_h_bits, tl.float64)[:, None], number(scale_w_bits, tl.float64)[:, None]
    first_h, behind_h, lead_h = support_of(h, size_S[1], scale_h, TAPS, COMPUTE)
    first_w, behind_w, lead_w = support_of(w, size_S[2], scale_w, TAPS, COMPUTE)
    narrowing_h, narrowing_w = narrowing_of(scale_h, COMPUTE), narrowing_of(scale_w, COMPUTE)
    total_h = total_weight(first_h, behind_h, lead_h, narrowing_h, TAPS, MOST_H)
    total_w = total_weight(first_w, behind_w, lead_w, narrowing_w, TAPS, MOST_W)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    for kh in range(MOST_H):
        at_h = first_h + kh
        weight_h = raw_weight(at_h, first_h, behind_h, lead_h, narrowing_h, TAPS) / total_h
        for kw in tl.range(MOST_W, loop_unroll_factor=4):
            at_w = first_w + kw
            weight_w = raw_weight(at_w, first_w, behind_w, lead_w, narrowing_w, TAPS) / total_w
            inside = mask & (at_h < behind_h) & (at_w < behind_w)
            x_RC = load_along_columns(plane_ptr + (at_h * strides_S[1] + at_w * strides_S[2]), inside)
            sum_RC += x_RC.to(COMPUTE) * (weight_h * weight_w)
    out_ptr_RC = out_ptr + row[:, None] * columns + column[None, :]
    tl.store(out_ptr_RC, converted(sum_RC, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def reader_weight(
    o: tl.tensor,
    i: tl.tensor,
    size: tl.tensor,
    out: tl.tensor,
    scale: tl.tensor,
    TAPS: tl.constexpr,
    MOST: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """With what weight output ``o`` reads position ``i``: 0 where it does not, or does not exist."""
    first, behind, lead = support_of(o, size, scale, TAPS, COMPUTE)
    narrowing = narrowing_of(scale, COMPUTE)
    total = total_weight(first, behind, lead, narrowing, TAPS, MOST)
    weight = raw_weight(i, first, behind, lead, narrowing, TAPS) / total
    return tl.where((o >= 0) & (o < out), weight, 0.0)


@triton.jit
def first_reader(i: tl.tensor, scale: tl.tensor, TAPS: tl.constexpr) -> tl.tensor:
    """The first output whose support reaches position ``i``, or one before."""
    support = tl.maximum(scale, 1.0) * (TAPS // 2)
    # Scale 0, of a single output that is aligned with a corner, reads one place.
    first = tl.floor((i.to(scale.dtype) + 0.5 - support) / tl.where(scale > 0, scale, 1.0) - 0.5)
    return tl.where(scale > 0, tl.maximum(first, 0.0), 0.0).to(i.dtype)


@triton.jit
def antialias_backward_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    scale_h_bits: tl.tensor,
    scale_w_bits: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    TAPS: tl.constexpr,
    MOST_H: tl.constexpr,
    MOST_W: tl.constexpr,
    READERS_H: tl.constexpr,
    READERS_W: tl.constexpr,
    TOGETHER: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane gathers for one input position from the outputs that read it.

    A weight takes a hundred instructions, most for the sum that it is divided by. So those of TOGETHER outputs
    beside each other are computed first, and serve every row of outputs.
    """
    await_earlier_kernels()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, _d, h, w = place_of(row, column, C, size_S, CHANNELS_LAST)
    plane_ptr = grad_ptr + (n * stride_N + c * stride_C)
    scale_h, scale_w = number(scale_h_bits, tl.float64)[:, None], number(scale_w_bits, tl.float64)[:, None]
    first_h, first_w = first_reader(h, scale_h, TAPS), first_reader(w, scale_w, TAPS)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    for begin in range(0, READERS_W, TOGETHER):
        weights_w: tl.tuple = ()
        for kw in tl.static_range(TOGETHER):
            ow = first_w + (begin + kw)
            weights_w += (reader_weight(ow, w, size_S[2], out_S[2], scale_w, TAPS, MOST_W, COMPUTE),)
        for kh in range(READERS_H):
            oh = first_h + kh
            weight_h = reader_weight(oh, h, size_S[1], out_S[1], scale_h, TAPS, MOST_H, COMPUTE)
            for kw in tl.static_range(TOGETHER):
                # What is not 0 and 1 is the same in all channels: their accesses stay wide.
                reads = mask & (weight_h != 0) & (weights_w[kw] != 0)
                grad_ptr_RC = plane_ptr + (oh * strides_S[1] + (first_w + (begin + kw)) * strides_S[2])
                sum_RC += load_along_columns(grad_ptr_RC, reads).to(COMPUTE) * (weight_h * weights_w[kw])
    out_ptr_RC = grad_input_ptr + row[:, None] * columns + column[None, :]
    tl.store(out_ptr_RC, converted(sum_RC, grad_input_ptr.dtype.element_ty), mask=mask)


class Filter(NamedTuple):
    """Scales and bounds of a call, of height and width."""

    scales: tuple[float, float]
    most: Ints
    readers: Ints


def _filter(size: Sequence[int], out: Sequence[int], scales: Sequence[float | None], sampling: Sampling) -> Filter:
    plan = planned(size, out, scales, sampling)
    _, scale_h, scale_w = plan.scale_S
    pair = (scale_h, scale_w)
    supports = [max(scale, 1.0) * (sampling.taps // 2) for scale in pair]
    most = tuple(math.ceil(support) * 2 + 1 for support in supports)
    readers = tuple(map(_readers, supports, pair, out))
    return Filter(pair, most, readers)


def _readers(support: float, scale: float, out: int) -> int:
    """No position is read by more outputs: centres lie within ``support`` of it, and one more is asked for rounding.

    Those that lie just as far as ``support`` read with weight 0.
    """
    return min(math.ceil(2 * support / scale) + 1, out) if scale else out


def _antialiased(
    x: torch.Tensor, output_size: Sequence[int], scales: Sequence[float | None], sampling: Sampling
) -> torch.Tensor:
    require_served(x, dtypes=FLOATS)
    if x.ndim != 4 or 0 in x.shape[1:]:
        raise ValueError(f"expected four dimensions, of which only the batch may be empty: {list(x.shape)}")
    filtering = _filter(x.shape[2:], output_size, scales, sampling)
    channels_last = prefers_channels_last(x)
    out = empty_volume((*x.shape[:2], *output_size), x.dtype, x.device, channels_last=channels_last)
    if out.numel():
        volume, result = volume_of(x, 2), volume_of(out, 2)
        constants = {"MOST_H": filtering.most[0], "MOST_W": filtering.most[1], "TAPS": sampling.taps}
        sizes = volume.spatial, result.spatial
        _launch(antialias_kernel, out, x, volume, sizes, filtering, constants, channels_last=channels_last)
    return out


def _antialiased_backward(
    grad: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales: Sequence[float | None],
    sampling: Sampling,
) -> torch.Tensor:
    require_served(grad, dtypes=FLOATS)
    if tuple(grad.shape) != (*input_size[:2], *output_size) or 0 in input_size[1:]:
        raise ValueError(f"a gradient of {list(grad.shape)} does not fit {list(input_size)} and {list(output_size)}")
    filtering = _filter(input_size[2:], output_size, scales, sampling)
    channels_last = prefers_channels_last(grad)
    out = empty_volume(tuple(input_size), grad.dtype, grad.device, channels_last=channels_last)
    if out.numel():
        volume, result = volume_of(grad, 2), volume_of(out, 2)
        constants = {"MOST_H": filtering.most[0], "MOST_W": filtering.most[1], "TAPS": sampling.taps}
        readers_h, readers_w = filtering.readers
        constants |= {"READERS_H": readers_h, "READERS_W": readers_w, "TOGETHER": min(readers_w, TOGETHER)}
        sizes = result.spatial, volume.spatial
        _launch(antialias_backward_kernel, out, grad, volume, sizes, filtering, constants, channels_last=channels_last)
    return out


def _launch(
    kernel: Any,
    out: torch.Tensor,
    x: torch.Tensor,
    volume: Volume,
    sizes: tuple[Ints, Ints],
    filtering: Filter,
    constants: dict[str, int],
    *,
    channels_last: bool,
) -> None:
    result = volume_of(out, 2)
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    launch(
        kernel,
        tiles.grid,
        x.device,
        out,
        x,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        *sizes,
        *(number_bits(scale, tl.float64) for scale in filtering.scales),
        tiles.rows,
        tiles.columns,
        **constants,
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )


upsample_bilinear2d_aa, upsample_bilinear2d_aa_backward = interpolated_planes(
    _antialiased, _antialiased_backward, linear
)
upsample_bicubic2d_aa, upsample_bicubic2d_aa_backward = interpolated_planes(_antialiased, _antialiased_backward, cubic)
