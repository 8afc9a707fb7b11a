"""Sampling at the places that a grid names: nearest, linear and cubic, forward and backward.

A grid gives every output a place in [-1, 1] along each dimension, which becomes a real position of the input; the
output reads one, two or four positions around it along each dimension, its taps, whose weights multiply. What
lies outside is zero, or the place is moved inside: to the border, or reflected at it. Places and weights are computed
once for all channels. Traffic: the grid, ``numel * itemsize`` of the output, and what the taps touch of the input.

Backward, nothing says which outputs read a position, so the gradient of the input is added atomically, in float32 for
half types: a launch for the zeros and, for those, one more that rounds. The gradient of the grid is the sum over
channels of ``grad * d weight / d place * x``.

Suffixes: ``_P`` one entry for each place of the grid, ``_CP`` a tile of channels and places, ``_S`` one entry for
each of depth, height and width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_into, same
from ..common.indexing import Geometry, converted, merge_dims, offset_of
from ..common.lanes import add_along_columns, load_along_columns, store_along_columns
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    pdl_prologue,
    require_served,
)
from ..common.volumes import Volume, channels_first, volume_index_type, volume_of
from .resampling import cubic_weight

#: ATen's numbers for interpolation (as taps) and for padding.
TAPS = {0: 2, 1: 1, 2: 4}
INTERPRETER = tl.constexpr(INTERPRETED)
ZEROS, BORDER, REFLECTION = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def moved_inside(real: tl.tensor, size: tl.tensor, PADDING: tl.constexpr, ALIGN: tl.constexpr) -> tuple[tl.tensor, ...]:
    """A position after padding, and the slope of that step: -1, 0 or 1."""
    slope = real * 0.0 + 1.0
    last = (size - 1).to(real.dtype)
    if PADDING == REFLECTION:
        # Between the centres of the outermost positions, or their outer edges.
        low = 0.0 if ALIGN else -0.5
        span = last - 2 * low
        slope = tl.where(real < low, -1.0, 1.0)
        distance = tl.abs(real - low)
        turns = tl.floor(distance / tl.where(span > 0, span, 1.0))
        beyond = distance - turns * span
        is_odd = turns - 2.0 * tl.floor(turns * 0.5) > 0.5
        real = tl.where(span > 0, tl.where(is_odd, span - beyond, beyond) + low, 0.0)
        slope = tl.where(span > 0, tl.where(is_odd, -slope, slope), 0.0)
    if PADDING != ZEROS:
        slope = tl.where((real <= 0.0) | (real >= last), 0.0, slope)
        real = tl.minimum(tl.maximum(real, 0.0), last)
    return real, slope


@triton.jit
def fused(x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tensor:
    """``x y + z``, rounded once as on a device; Triton's interpreter would round the product as well."""
    if INTERPRETER and x.dtype == tl.float32:
        result = (x.to(tl.float64) * y.to(tl.float64) + z).to(tl.float32)
    else:
        result = tl.fma(x, y, tl.full([1], z, x.dtype))
    return result


@triton.jit
def position_of(
    place: tl.tensor, size: tl.tensor, TAPS: tl.constexpr, PADDING: tl.constexpr, ALIGN: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """The real position of a place in [-1, 1], and how fast it moves with the place."""
    # Rounded where eager rounds: the nearest position is a step.
    if ALIGN:
        slope = (size - 1).to(place.dtype) * 0.5
        real = (place + 1.0) * slope
    else:
        slope = size.to(place.dtype) * 0.5
        real = fused(place + 1.0, slope, -0.5)
    if TAPS < 4:
        real, step = moved_inside(real, size, PADDING, ALIGN)
        slope = slope * step
    # What no integer holds, NaN too, lies outside.
    return tl.where(tl.abs(real) < 1e9, real, -100.0), slope


@triton.jit
def cubic_slope(distance: tl.tensor) -> tl.tensor:
    """The derivative of :func:`cubic_weight`."""
    x = tl.abs(distance)
    near = (3.75 * x - 4.5) * x
    far = (-2.25 * x + 7.5) * x - 6.0
    slope = tl.where(x <= 1.0, near, far)
    return tl.where(distance < 0, -slope, slope)


@triton.jit
def grid_tap(
    real: tl.tensor,
    t: tl.constexpr,
    size: tl.tensor,
    TAPS: tl.constexpr,
    PADDING: tl.constexpr,
    ALIGN: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Index of tap ``t`` of a position, whether the input has it, its weight, and the weight's derivative."""
    lowest = tl.floor(real)
    fraction = (real - lowest).to(COMPUTE)
    if TAPS == 1:
        # Half a position rounds to the even one.
        is_odd = lowest - 2.0 * tl.floor(lowest * 0.5) > 0.5
        at = lowest + tl.where((fraction > 0.5) | ((fraction == 0.5) & is_odd), 1.0, 0.0)
        weight, derivative = fraction * 0.0 + 1.0, fraction * 0.0
    elif TAPS == 2:
        at = lowest + t
        if t == 0:
            weight, derivative = 1.0 - fraction, fraction * 0.0 - 1.0
        else:
            weight, derivative = fraction, fraction * 0.0 + 1.0
    else:
        at, _slope = moved_inside(lowest + (t - 1), size, PADDING, ALIGN)
        weight, derivative = cubic_weight(fraction - (t - 1)), cubic_slope(fraction - (t - 1))
    index = at.to(INDEX)
    return index, (index >= 0) & (index < size), weight, derivative


@triton.jit
def positions_of(
    grid_ptr_P: tl.tensor,
    mask_P: tl.tensor,
    grid_stride: tl.tensor,
    size_S: tl.tuple,
    TAPS: tl.constexpr,
    PADDING: tl.constexpr,
    ALIGN: tl.constexpr,
    IS_VOLUME: tl.constexpr,
    REAL: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Depth, height and width of a block of places, as a row of a tile, and their slopes."""
    x = tl.load(grid_ptr_P, mask=mask_P, other=0).to(REAL)
    y = tl.load(grid_ptr_P + grid_stride, mask=mask_P, other=0).to(REAL)
    w, slope_w = position_of(x, size_S[2] + tl.zeros([1], tl.int32), TAPS, PADDING, ALIGN)
    h, slope_h = position_of(y, size_S[1] + tl.zeros([1], tl.int32), TAPS, PADDING, ALIGN)
    d, slope_d = tl.zeros_like(w), tl.zeros_like(w)
    if IS_VOLUME:
        z = tl.load(grid_ptr_P + 2 * grid_stride, mask=mask_P, other=0).to(REAL)
        d, slope_d = position_of(z, size_S[0] + tl.zeros([1], tl.int32), TAPS, PADDING, ALIGN)
    return d[None, :], h[None, :], w[None, :], slope_d, slope_h, slope_w


@triton.jit
def grid_sample_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    grid_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    grid_stride: tl.tensor,
    grid_shape_D: tl.tuple,
    grid_strides_D: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    places: tl.tensor,
    plane: tl.tensor,
    TAPS: tl.constexpr,
    TAPS_D: tl.constexpr,
    PADDING: tl.constexpr,
    ALIGN: tl.constexpr,
    IS_VOLUME: tl.constexpr,
    REAL: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    STEPS: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
) -> None:
    """A block of places for STEPS blocks of channels. ``plane`` is the number of places of one image."""
    pdl_prologue()
    p = tl.program_id(0).to(INDEX) * BLOCK_P + tl.arange(0, BLOCK_P)
    grid_ptr_P = grid_ptr + offset_of(p, grid_shape_D, grid_strides_D)
    d, h, w, _slope_d, _slope_h, _slope_w = positions_of(
        grid_ptr_P, p < places, grid_stride, size_S, TAPS, PADDING, ALIGN, IS_VOLUME, REAL
    )
    n, q = p // plane, p % plane
    for step in tl.static_range(STEPS):
        c = (tl.program_id(1).to(INDEX) * STEPS + step) * BLOCK_C + tl.arange(0, BLOCK_C)
        mask = (c < C)[:, None] & (p < places)[None, :]
        plane_ptr_CP = x_ptr + (n * stride_N)[None, :] + (c * stride_C)[:, None]
        sum_CP = tl.zeros([BLOCK_C, BLOCK_P], COMPUTE)
        for td in tl.static_range(TAPS_D):
            at_d, has_d, weight_d, _slant_d = grid_tap(d, td, size_S[0], TAPS_D, PADDING, ALIGN, COMPUTE, INDEX)
            for th in tl.static_range(TAPS):
                at_h, has_h, weight_h, _slant_h = grid_tap(h, th, size_S[1], TAPS, PADDING, ALIGN, COMPUTE, INDEX)
                for tw in tl.static_range(TAPS):
                    at_w, has_w, weight_w, _slant_w = grid_tap(w, tw, size_S[2], TAPS, PADDING, ALIGN, COMPUTE, INDEX)
                    offset = at_d * strides_S[0] + at_h * strides_S[1] + at_w * strides_S[2]
                    x_CP = load_along_columns(plane_ptr_CP + offset, mask & has_d & has_h & has_w).to(COMPUTE)
                    sum_CP += x_CP * (weight_d * weight_h * weight_w)
        out_ptr_CP = out_ptr + (n * C * plane + q)[None, :] + (c * plane)[:, None]
        store_along_columns(out_ptr_CP, converted(sum_CP, out_ptr.dtype.element_ty), mask)


@triton.jit
def grid_sample_backward_kernel(
    grad_input_ptr: tl.tensor,
    grad_grid_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    x_ptr: tl.tensor,
    grid_ptr: tl.tensor,
    grad_stride_C: tl.tensor,
    grad_shape_D: tl.tuple,
    grad_strides_D: tl.tuple,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    grid_stride: tl.tensor,
    grid_shape_D: tl.tuple,
    grid_strides_D: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    places: tl.tensor,
    plane: tl.tensor,
    channel_blocks: tl.tensor,
    TAPS: tl.constexpr,
    TAPS_D: tl.constexpr,
    PADDING: tl.constexpr,
    ALIGN: tl.constexpr,
    IS_VOLUME: tl.constexpr,
    REAL: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_P: tl.constexpr,
) -> None:
    """A block of places and all channels, block by block. The gradient of the input is row-major."""
    pdl_prologue()
    p = tl.program_id(0).to(INDEX) * BLOCK_P + tl.arange(0, BLOCK_P)
    grid_ptr_P = grid_ptr + offset_of(p, grid_shape_D, grid_strides_D)
    d, h, w, slope_d, slope_h, slope_w = positions_of(
        grid_ptr_P, p < places, grid_stride, size_S, TAPS, PADDING, ALIGN, IS_VOLUME, REAL
    )
    n = p // plane
    volume = size_S[0] * size_S[1] * size_S[2]
    by_d = tl.zeros([BLOCK_C, BLOCK_P], COMPUTE)
    by_h = tl.zeros([BLOCK_C, BLOCK_P], COMPUTE)
    by_w = tl.zeros([BLOCK_C, BLOCK_P], COMPUTE)
    for block in range(channel_blocks):
        c = block * BLOCK_C + tl.arange(0, BLOCK_C).to(INDEX)
        mask = (c < C)[:, None] & (p < places)[None, :]
        grad_ptr_CP = grad_ptr + offset_of(p, grad_shape_D, grad_strides_D)[None, :] + (c * grad_stride_C)[:, None]
        grad_CP = load_along_columns(grad_ptr_CP, mask).to(COMPUTE)
        plane_ptr_CP = x_ptr + (n * stride_N)[None, :] + (c * stride_C)[:, None]
        for td in tl.static_range(TAPS_D):
            at_d, has_d, weight_d, slant_d = grid_tap(d, td, size_S[0], TAPS_D, PADDING, ALIGN, COMPUTE, INDEX)
            for th in tl.static_range(TAPS):
                at_h, has_h, weight_h, slant_h = grid_tap(h, th, size_S[1], TAPS, PADDING, ALIGN, COMPUTE, INDEX)
                for tw in tl.static_range(TAPS):
                    at_w, has_w, weight_w, slant_w = grid_tap(w, tw, size_S[2], TAPS, PADDING, ALIGN, COMPUTE, INDEX)
                    inside = mask & has_d & has_h & has_w
                    if TAPS > 1:
                        offset = at_d * strides_S[0] + at_h * strides_S[1] + at_w * strides_S[2]
                        slope_CP = grad_CP * load_along_columns(plane_ptr_CP + offset, inside).to(COMPUTE)
                        by_d += slope_CP * (slant_d * weight_h * weight_w)
                        by_h += slope_CP * (weight_d * slant_h * weight_w)
                        by_w += slope_CP * (weight_d * weight_h * slant_w)
                    if grad_input_ptr is not None:
                        at = (at_d * size_S[1] + at_h) * size_S[2] + at_w
                        at_ptr_CP = grad_input_ptr + (n * C * volume)[None, :] + (c * volume)[:, None] + at
                        weight = weight_d * weight_h * weight_w
                        add_along_columns(at_ptr_CP, grad_CP * weight, inside)
    AXES: tl.constexpr = 3 if IS_VOLUME else 2
    TYPE: tl.constexpr = grad_grid_ptr.dtype.element_ty
    grad_grid_ptr_P = grad_grid_ptr + p * AXES
    tl.store(grad_grid_ptr_P, converted(tl.sum(by_w, axis=0) * slope_w.to(COMPUTE), TYPE), mask=p < places)
    tl.store(grad_grid_ptr_P + 1, converted(tl.sum(by_h, axis=0) * slope_h.to(COMPUTE), TYPE), mask=p < places)
    if IS_VOLUME:
        tl.store(grad_grid_ptr_P + 2, converted(tl.sum(by_d, axis=0) * slope_d.to(COMPUTE), TYPE), mask=p < places)


class Places(NamedTuple):
    """What both directions pass to their kernel."""

    volume: Volume
    grid: Geometry
    points: int
    plane: int
    constants: dict[str, Any]

    @property
    def steps(self) -> int:
        """Blocks of channels for which a program keeps places: 32 reads are on their way at once."""
        taps = int(self.constants["TAPS_D"]) * int(self.constants["TAPS"]) ** 2
        return max(32 // taps, 1) if taps > 1 else 8

    @property
    def arguments(self) -> list[Any]:
        """The arguments that describe input and grid, but for the grid's last stride."""
        return [self.grid.shape_D, self.grid.strides_ID[0], self.volume.shape_NCDHW[1], self.volume.spatial]


def _places(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool) -> Places:
    """Check the arguments.

    Raises:
        ValueError: shapes that do not fit, or an unknown mode.
    """
    require_served(x, grid, dtypes=FLOATS)
    spatial = x.ndim - 2
    fits = grid.ndim == x.ndim and grid.shape[0] == x.shape[0] and grid.shape[-1] == spatial and x.dtype == grid.dtype
    if not fits or 0 in x.shape[2:]:
        raise ValueError(f"a {grid.dtype} grid of {list(grid.shape)} does not fit {x.dtype} of {list(x.shape)}")
    if mode not in TAPS or not 0 <= padding <= 2 or (spatial == 3 and mode == 2):
        raise ValueError(f"no interpolation mode {mode} with padding mode {padding}")
    lead = tuple(grid.shape[:-1])
    geometry = merge_dims(lead, [grid.stride()[:-1]], reversed(range(len(lead))))
    taps = TAPS[mode]
    constants = {
        "TAPS": taps,
        "TAPS_D": taps if spatial == 3 else 1,
        "PADDING": padding,
        "ALIGN": align_corners,
        "IS_VOLUME": spatial == 3,
        # The nearest position is a step, so it has to fall where eager's does; in between, eager's errors are those
        # of positions in float32, which float64 avoids at a cost that all channels share.
        "REAL": compute_type(x.dtype) if taps == 1 else tl.float64,
        "COMPUTE": compute_type(x.dtype),
    }
    return Places(volume_of(x, spatial), geometry, math.prod(lead), math.prod(lead[1:]), constants)


def _blocks(places: Places, *, rows: int) -> tuple[int, int]:
    """Channels and places of a tile: a thread has one place, which it finds once for one channel after the other.

    Channels that lie side by side are read together. ``rows`` threads share a place otherwise.
    """
    C, count = places.volume.shape_NCDHW[1], triton.next_power_of_2(places.points)
    if INTERPRETED:
        block_c = min(triton.next_power_of_2(C), INTERPRETED_TILE)
        return block_c, min(count, max(INTERPRETED_TILE // block_c, 1))
    if places.volume.strides_NCDHW[1] == 1:
        block_c = min(triton.next_power_of_2(C), 32)
        return block_c, min(count, 512 // block_c)
    block_c = min(triton.next_power_of_2(C), rows)
    return block_c, 128 // block_c


def grid_sampler(dimensions: int) -> Callable[..., torch.Tensor]:
    """Samples at ``grid``, whose last dimension holds x and y, and z of volumes, of inputs with ``dimensions``."""

    def op(
        input: torch.Tensor,  # noqa: A002
        grid: torch.Tensor,
        interpolation_mode: int,
        padding_mode: int,
        align_corners: bool,
    ) -> torch.Tensor:
        if input.ndim != dimensions:
            raise ValueError(f"expected {dimensions} dimensions, not {list(input.shape)}")
        return _grid_sample(input, grid, interpolation_mode, padding_mode, align_corners)

    return op


grid_sampler_2d, grid_sampler_3d = grid_sampler(4), grid_sampler(5)


def grid_sampler_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    grid: torch.Tensor,
    interpolation_mode: int,
    padding_mode: int,
    align_corners: bool,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor]:
    """The gradients of both by their input, unless masked, and by their grid."""
    places = _places(input, grid, interpolation_mode, padding_mode, align_corners)
    return _grid_sample_backward(grad_output, input, grid, places, output_mask)


def _grid_sample(x: torch.Tensor, grid: torch.Tensor, mode: int, padding: int, align_corners: bool) -> torch.Tensor:
    places = _places(x, grid, mode, padding, align_corners)
    out = torch.empty((*x.shape[:2], *grid.shape[1:-1]), dtype=x.dtype, device=x.device)
    if out.numel() == 0:
        return out
    C = x.shape[1]
    block_c, block_p = _blocks(places, rows=1)
    steps = min(triton.cdiv(C, block_c), places.steps)
    launch(
        grid_sample_kernel,
        (triton.cdiv(places.points, block_p), triton.cdiv(C, block_c * steps)),
        x.device,
        out,
        x,
        grid,
        *channels_first(places.volume.strides_NCDHW),
        grid.stride(-1),
        *places.arguments,
        places.points,
        places.plane,
        **places.constants,
        INDEX=volume_index_type(places.volume, volume_of(out, x.ndim - 2)),
        STEPS=steps,
        BLOCK_C=block_c,
        BLOCK_P=block_p,
    )
    return out


def _grid_sample_backward(
    grad: torch.Tensor, x: torch.Tensor, grid: torch.Tensor, places: Places, output_mask: Sequence[bool]
) -> tuple[torch.Tensor | None, torch.Tensor]:
    if tuple(grad.shape) != (*x.shape[:2], *grid.shape[1:-1]) or grad.dtype != x.dtype:
        raise ValueError(f"a {grad.dtype} gradient of {list(grad.shape)} does not fit the input and the grid")
    grad_grid = torch.empty(grid.shape, dtype=grid.dtype, device=grid.device)
    if not output_mask[0]:
        _launch_backward(None, grad_grid, grad, x, grid, places)
        return None, grad_grid
    # At the border of a volume hundreds of places outside add up, which float32 rounds too often.
    gathers = x.ndim == 5 and places.constants["PADDING"] == BORDER.value
    sums = torch.empty(x.shape, dtype=torch.float64 if gathers else compute_dtype(x.dtype), device=x.device)
    map_into(sums, same, [0], [sums.dtype])
    _launch_backward(sums, grad_grid, grad, x, grid, places)
    if sums.dtype == x.dtype:
        return sums, grad_grid
    grad_input = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    map_into(grad_input, same, [sums], [sums.dtype])
    return grad_input, grad_grid


def _launch_backward(
    grad_input: torch.Tensor | None,
    grad_grid: torch.Tensor,
    grad: torch.Tensor,
    x: torch.Tensor,
    grid: torch.Tensor,
    places: Places,
) -> None:
    if grad_grid.numel() == 0:
        return
    C = x.shape[1]
    lead = (grad.shape[0], *grad.shape[2:])
    geometry = merge_dims(lead, [(grad.stride(0), *grad.stride()[2:])], reversed(range(len(lead))))
    block_c, block_p = _blocks(places, rows=4)
    launch(
        grid_sample_backward_kernel,
        (triton.cdiv(places.points, block_p),),
        x.device,
        grad_input,
        grad_grid,
        grad,
        x,
        grid,
        grad.stride(1),
        geometry.shape_D,
        geometry.strides_ID[0],
        *channels_first(places.volume.strides_NCDHW),
        grid.stride(-1),
        *places.arguments,
        places.points,
        places.plane,
        loop_bound(triton.cdiv(C, block_c)),
        **places.constants,
        INDEX=volume_index_type(places.volume, volume_of(grad, x.ndim - 2)),
        BLOCK_C=block_c,
        BLOCK_P=block_p,
    )
