"""Resampling of lines, planes and volumes: nearest, linear and cubic, forward and backward.

Along each dimension output ``o`` lies at ``real = scale (o + shift) - offset`` of the input, and reads one, two or
four positions around ``floor(real)``, its taps, with weights that depend on the fraction; the weights of several
dimensions multiply. They are computed once for a tile's rows and once for its columns. Traffic:
``numel * itemsize`` of the input and of the output, since taps that outputs share come from the cache.

Backward, an input position gathers from the outputs that have it among their taps. ``real`` grows with ``o``, so
these are neighbours, and the first one is found by inverting the formula and correcting for its rounding. Where each
position is repeated two or four times, they are a block, which is read as it lies.

Suffixes: ``_S`` one entry for each of depth, height and width, ``_RC`` a tile of rows and columns (volumes.py).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Ints, converted, number
from ..common.lanes import load_along_columns
from ..common.launch import (
    ELEMENT_TYPE,
    compute_dtype,
    compute_type,
    launch,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.volumes import (
    aligned_volumes,
    channels_first,
    empty_volume,
    place_of,
    prefers_channels_last,
    tile_of,
    tiles_of,
    volume_index_type,
)

Sizes = Sequence[int]
Scale = float | None
Op = Callable[..., torch.Tensor]


class Sampling(NamedTuple):
    """How all outputs of a call are sampled: taps along a dimension, and ``shift`` and ``offset`` of the formula."""

    taps: int
    shift: float
    offset: float


NEAREST, NEAREST_EXACT = Sampling(1, 0.0, 0.0), Sampling(1, 0.5, 0.0)


def linear(*, align_corners: bool) -> Sampling:
    """Corners on corners, or the centres of pixels that cover the same area."""
    return Sampling(2, 0.0, 0.0) if align_corners else Sampling(2, 0.5, 0.5)


def cubic(*, align_corners: bool) -> Sampling:
    """As :func:`linear`, with Keys' cubic convolution (1981) for a = -0.75."""
    return linear(align_corners=align_corners)._replace(taps=4)


@triton.jit
def placed(o: tl.tensor, scale: tl.tensor, SHIFT: tl.constexpr, OFFSET: tl.constexpr) -> tl.tensor:
    """Where output ``o`` lies in the input, or before it."""
    return scale * (o.to(scale.dtype) + SHIFT) - OFFSET


@triton.jit
def source_of(
    o: tl.tensor, scale: tl.tensor, TAPS: tl.constexpr, SHIFT: tl.constexpr, OFFSET: tl.constexpr
) -> tl.tensor:
    """Where output ``o`` is read from."""
    real = placed(o, scale, SHIFT, OFFSET)
    if TAPS == 2:
        real = tl.maximum(real, 0.0)
    return real


@triton.jit
def lowest_of(real: tl.tensor, size: tl.tensor, INDEX: tl.constexpr) -> tl.tensor:
    """The position at or below ``real``."""
    return tl.minimum(tl.floor(real).to(INDEX), size - 1)


@triton.jit
def cubic_weight(distance: tl.tensor) -> tl.tensor:
    """Keys' kernel for a = -0.75: ``(a+2)|x|^3 - (a+3)|x|^2 + 1`` up to 1, ``a(|x|^3 - 5|x|^2 + 8|x| - 4)`` up to 2."""
    x = tl.abs(distance)
    near = (1.25 * x - 2.25) * x * x + 1.0
    far = ((-0.75 * x + 3.75) * x - 6.0) * x + 3.0
    return tl.where(x <= 1.0, near, far)


@triton.jit
def tap_of(
    o: tl.tensor,
    t: tl.constexpr,
    size: tl.tensor,
    scale_bits: tl.tensor,
    TAPS: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Position and weight of tap ``t`` of output ``o``; a dimension of which TAPS is 0 keeps its positions."""
    if TAPS == 0:
        index, weight = o, 1
    else:
        real = source_of(o, number(scale_bits, REAL)[:, None], TAPS, SHIFT, OFFSET)
        lowest = lowest_of(real, size, o.dtype)
        if TAPS == 1:
            index, weight = lowest, 1
        elif TAPS == 2:
            fraction = tl.minimum(tl.maximum(real - lowest.to(REAL), 0.0), 1.0)
            index = tl.minimum(lowest + t, size - 1)
            if t == 0:
                weight = 1.0 - fraction
            else:
                weight = fraction
        else:
            index = tl.minimum(tl.maximum(lowest + (t - 1), 0), size - 1)
            weight = cubic_weight(real - lowest.to(REAL) - (t - 1))
    return index, weight


@triton.jit
def first_reader(
    lowest: tl.tensor,
    size: tl.tensor,
    out: tl.tensor,
    scale_bits: tl.tensor,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
) -> tl.tensor:
    """The first output that lies at or above ``lowest``: those before the input read its first position alone."""
    scale = number(scale_bits, REAL)[:, None]
    # Scale 0 reads one position everywhere.
    guess = tl.ceil((lowest.to(REAL) + OFFSET) / tl.where(scale > 0, scale, 1.0) - SHIFT)
    first = tl.minimum(tl.maximum(guess, 0.0), out.to(REAL)).to(lowest.dtype)
    before = lowest_of(placed(first - 1, scale, SHIFT, OFFSET), size, lowest.dtype)
    first = tl.where((first > 0) & (before >= lowest), first - 1, first)
    here = lowest_of(placed(first, scale, SHIFT, OFFSET), size, lowest.dtype)
    first = tl.where(here < lowest, first + 1, first)
    return tl.where(scale > 0, first, 0)


@triton.jit
def weight_between(
    o: tl.tensor,
    i: tl.tensor,
    size: tl.tensor,
    out: tl.tensor,
    scale_bits: tl.tensor,
    TAPS: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
) -> tl.tensor:
    """With what weight output ``o`` reads position ``i``: 0 where it does not, or does not exist."""
    weight = tl.zeros_like(o).to(REAL)
    for t in tl.static_range(TAPS):
        index, share = tap_of(o, t, size, scale_bits, TAPS, SHIFT, OFFSET, REAL)
        # At an edge several taps read the same position.
        weight += tl.where((index == i) & (o < out), share, 0.0)
    return weight


@triton.jit
def resample_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    scale_bits_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    TAPS_S: tl.constexpr,
    READS_D: tl.constexpr,
    READS_H: tl.constexpr,
    READS_W: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane adds up the taps of one output. READS are TAPS, at least 1."""
    pdl_prologue()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, out_S, CHANNELS_LAST)
    plane_ptr = x_ptr + (n * stride_N + c * stride_C)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    for td in tl.static_range(READS_D):
        at_d, weight_d = tap_of(d, td, size_S[0], scale_bits_S[0], TAPS_S[0], SHIFT, OFFSET, REAL)
        for th in tl.static_range(READS_H):
            at_h, weight_h = tap_of(h, th, size_S[1], scale_bits_S[1], TAPS_S[1], SHIFT, OFFSET, REAL)
            for tw in tl.static_range(READS_W):
                at_w, weight_w = tap_of(w, tw, size_S[2], scale_bits_S[2], TAPS_S[2], SHIFT, OFFSET, REAL)
                offset = at_d * strides_S[0] + at_h * strides_S[1] + at_w * strides_S[2]
                x_RC = load_along_columns(plane_ptr + offset, mask).to(COMPUTE)
                sum_RC += x_RC * (weight_d * weight_h * weight_w)
    out_ptr_RC = out_ptr + row[:, None] * columns + column[None, :]
    tl.store(out_ptr_RC, converted(sum_RC, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def reader_of(
    i: tl.tensor,
    k: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    scale_bits_S: tl.tuple,
    TAPS_S: tl.constexpr,
    S: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The k-th output that may read position ``i`` of dimension S, and with what weight."""
    if TAPS_S[S] == 0:
        o, weight = i, 1.0
    else:
        # The taps of an output run from (taps / 2 - 1) positions below its own.
        lowest = i - TAPS_S[S] // 2
        o = first_reader(lowest, size_S[S], out_S[S], scale_bits_S[S], SHIFT, OFFSET, REAL) + k
        weight = weight_between(o, i, size_S[S], out_S[S], scale_bits_S[S], TAPS_S[S], SHIFT, OFFSET, REAL)
    return o, weight


@triton.jit
def resample_backward_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    out_S: tl.tuple,
    scale_bits_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    TAPS_S: tl.constexpr,
    READERS_S: tl.constexpr,
    SHIFT: tl.constexpr,
    OFFSET: tl.constexpr,
    REAL: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane gathers for one input position from the outputs that read it."""
    pdl_prologue()
    row, column, mask = tile_of(rows, columns, INDEX, BLOCK_R, BLOCK_C)
    n, c, d, h, w = place_of(row, column, C, size_S, CHANNELS_LAST)
    plane_ptr = grad_ptr + (n * stride_N + c * stride_C)
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], COMPUTE)
    for kd in range(READERS_S[0]):
        od, weight_d = reader_of(d, kd, size_S, out_S, scale_bits_S, TAPS_S, 0, SHIFT, OFFSET, REAL)
        for kh in range(READERS_S[1]):
            oh, weight_h = reader_of(h, kh, size_S, out_S, scale_bits_S, TAPS_S, 1, SHIFT, OFFSET, REAL)
            # Four reads at a time wait together.
            for kw in tl.range(READERS_S[2], loop_unroll_factor=4):
                ow, weight_w = reader_of(w, kw, size_S, out_S, scale_bits_S, TAPS_S, 2, SHIFT, OFFSET, REAL)
                weight = mask.to(REAL) * weight_d * weight_h * weight_w
                offset = od * strides_S[0] + oh * strides_S[1] + ow * strides_S[2]
                grad_RC = load_along_columns(plane_ptr + offset, weight != 0).to(COMPUTE)
                sum_RC += grad_RC * weight.to(COMPUTE)
    out_ptr_RC = grad_input_ptr + row[:, None] * columns + column[None, :]
    tl.store(out_ptr_RC, converted(sum_RC, grad_input_ptr.dtype.element_ty), mask=mask)


@triton.jit
def block_sum_kernel(
    grad_input_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_S: tl.tuple,
    C: tl.tensor,
    size_S: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    REPEATS_S: tl.constexpr,
    COMPUTE: tl.constexpr,
    CHANNELS_LAST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """Each lane adds up the block of outputs that repeat one position; those along W are read side by side."""
    pdl_prologue()
    DEPTH: tl.constexpr = REPEATS_S[0]
    HEIGHT: tl.constexpr = REPEATS_S[1]
    WIDTH: tl.constexpr = 1 if CHANNELS_LAST else REPEATS_S[2]
    APART: tl.constexpr = REPEATS_S[2] if CHANNELS_LAST else 1
    row = tl.program_id(0).to(INDEX) * BLOCK_R + tl.arange(0, BLOCK_R)
    first = tl.program_id(1).to(INDEX) * BLOCK_C
    column = first + tl.arange(0, BLOCK_C)
    wide = first * WIDTH + tl.arange(0, BLOCK_C * WIDTH)
    n, c, d, h, w = place_of(row, wide, C, size_S, CHANNELS_LAST)
    plane_ptr = grad_ptr + (n * stride_N + c * stride_C)
    mask = (row < rows)[:, None] & (wide < columns * WIDTH)[None, :]
    sum_RW = tl.zeros([BLOCK_R, BLOCK_C * WIDTH], COMPUTE)
    for kd in tl.static_range(DEPTH):
        for kh in tl.static_range(HEIGHT):
            for kw in tl.static_range(APART):
                at_d, at_h, at_w = d * DEPTH + kd, h * HEIGHT + kh, w * APART + kw
                offset = at_d * strides_S[0] + at_h * strides_S[1] + at_w * strides_S[2]
                sum_RW += tl.load(plane_ptr + offset, mask=mask, other=0).to(COMPUTE)
    sum_RC = tl.sum(tl.reshape(sum_RW, [BLOCK_R, BLOCK_C, WIDTH]), axis=2)
    out_ptr_RC = grad_input_ptr + row[:, None] * columns + column[None, :]
    mask = (row < rows)[:, None] & (column < columns)[None, :]
    tl.store(out_ptr_RC, converted(sum_RC, grad_input_ptr.dtype.element_ty), mask=mask)


class ResamplingPlan(NamedTuple):
    """A call in three dimensions: sizes, taps and scales; of a dimension that keeps its size 0 taps."""

    size_S: Ints
    out_S: Ints
    taps_S: Ints
    scale_S: tuple[float, ...]

    def readers(self, sampling: Sampling) -> Ints:
        """No position of a dimension is read by more outputs than this."""
        return tuple(map(_readers, self.size_S, self.out_S, self.taps_S, self.scale_S, [sampling] * 3))

    def repeats(self) -> Ints | None:
        """How often each position is repeated along each dimension; None where that is not once, twice or four times.

        Those are found without rounding, from corners and from centres of pixels.
        """
        repeats_S = tuple(out // size for size, out in zip(self.size_S, self.out_S, strict=True))
        each = zip(self.size_S, self.out_S, self.taps_S, self.scale_S, repeats_S, strict=True)
        is_whole = all(
            taps == 0 or (taps == 1 and out == size * repeats and scale * repeats == 1 and repeats in (2, 4))
            for size, out, taps, scale, repeats in each
        )
        return repeats_S if is_whole else None


def planned(
    size: Sequence[int], out: Sequence[int], scales: Sequence[float | None], sampling: Sampling
) -> ResamplingPlan:
    """What a call samples; a scale that is given wins over the quotient of the sizes.

    Raises:
        ValueError: empty sizes, or a wrong number of them.
    """
    if len(out) != len(scales) or len(size) != len(scales):
        raise ValueError(f"expected {len(scales)} sizes, not {list(out)} from {list(size)}")
    if min(*size, *out) < 1:
        raise ValueError(f"sizes must be greater than zero, not {list(out)} from {list(size)}")
    align_corners = sampling.taps > 1 and sampling.shift == 0
    absent = (1,) * (3 - len(scales))
    sizes = list(zip((*absent, *size), (*absent, *out), (*absent, *scales), strict=True))
    taps_S = tuple(0 if before == after else sampling.taps for before, after, _ in sizes)
    scale_S = tuple(_scale(*each, align_corners=align_corners) for each in sizes)
    return ResamplingPlan((*absent, *size), (*absent, *out), taps_S, scale_S)


def _scale(size: int, out: int, scale: float | None, *, align_corners: bool) -> float:
    """How far the input advances from one output to the next; a scale counts outputs for each input."""
    if align_corners:
        return (size - 1) / (out - 1) if out > 1 else 0.0
    return 1.0 / scale if scale is not None and scale > 0 else size / out


def _readers(size: int, out: int, taps: int, scale: float, sampling: Sampling) -> int:
    if taps == 0:
        return 1
    if scale == 0 or scale * (out - 1 + sampling.shift) - sampling.offset > size:
        return out
    # Outputs that advance by a power of two are placed without rounding.
    is_exact = math.frexp(scale)[0] == 0.5 and sampling.shift * scale <= 0.5
    return min(math.ceil(taps / scale) + (0 if is_exact else 1), out)


def _resampled(
    x: torch.Tensor, output_size: Sequence[int], scales: Sequence[float | None], sampling: Sampling
) -> torch.Tensor:
    require_served(x, dtypes=(*FLOATS, torch.uint8) if sampling.taps == 1 else FLOATS)
    spatial = len(scales)
    if x.ndim != spatial + 2 or 0 in x.shape[1:]:
        raise ValueError(f"expected {spatial + 2} dimensions, of which only the batch may be empty: {list(x.shape)}")
    plan = planned(x.shape[2:], output_size, scales, sampling)
    channels_last = prefers_channels_last(x)
    out = empty_volume((*x.shape[:2], *output_size), x.dtype, x.device, channels_last=channels_last)
    if out.numel() == 0:
        return out
    volume, result = aligned_volumes([x, out], spatial, channels_last=channels_last)
    tiles = tiles_of(result, x.device, channels_last=channels_last)
    real = real_dtype(x.dtype, sampling)
    launch(
        resample_kernel,
        tiles.grid,
        x.device,
        out,
        x,
        *channels_first(volume.strides_NCDHW),
        volume.shape_NCDHW[1],
        plan.size_S,
        plan.out_S,
        tuple(number_bits(scale, ELEMENT_TYPE[real]) for scale in plan.scale_S),
        tiles.rows,
        tiles.columns,
        TAPS_S=plan.taps_S,
        READS_D=max(plan.taps_S[0], 1),
        READS_H=max(plan.taps_S[1], 1),
        READS_W=max(plan.taps_S[2], 1),
        SHIFT=sampling.shift,
        OFFSET=sampling.offset,
        REAL=ELEMENT_TYPE[real],
        COMPUTE=compute_type(x.dtype),
        CHANNELS_LAST=channels_last,
        INDEX=volume_index_type(volume, result),
        BLOCK_R=tiles.block_rows,
        BLOCK_C=tiles.block_columns,
    )
    return out


def real_dtype(dtype: torch.dtype, sampling: Sampling) -> torch.dtype:
    """What positions are computed in: eager finds nearest ones in float32 whatever the type."""
    return torch.float32 if sampling.taps == 1 else compute_dtype(dtype)


def _resampled_backward(
    grad: torch.Tensor,
    output_size: Sequence[int],
    input_size: Sequence[int],
    scales: Sequence[float | None],
    sampling: Sampling,
) -> torch.Tensor:
    require_served(grad, dtypes=FLOATS)
    spatial = len(scales)
    if tuple(grad.shape) != (*input_size[:2], *output_size) or 0 in input_size[1:]:
        raise ValueError(f"a gradient of {list(grad.shape)} does not fit {list(input_size)} and {list(output_size)}")
    plan = planned(input_size[2:], output_size, scales, sampling)
    channels_last = spatial == 2 and prefers_channels_last(grad)
    out = empty_volume(tuple(input_size), grad.dtype, grad.device, channels_last=channels_last)
    if out.numel() == 0:
        return out
    volume, result = aligned_volumes([grad, out], spatial, channels_last=channels_last)
    tiles = tiles_of(result, grad.device, channels_last=channels_last)
    source = out, grad, *channels_first(volume.strides_NCDHW), volume.shape_NCDHW[1], plan.size_S
    constants = {
        "COMPUTE": compute_type(grad.dtype),
        "CHANNELS_LAST": channels_last,
        "INDEX": volume_index_type(volume, result),
        "BLOCK_R": tiles.block_rows,
        "BLOCK_C": tiles.block_columns,
    }
    repeats_S = plan.repeats()
    if repeats_S is not None:
        lines = tiles.rows, tiles.columns
        launch(block_sum_kernel, tiles.grid, grad.device, *source, *lines, REPEATS_S=repeats_S, **constants)
        return out
    real = real_dtype(grad.dtype, sampling)
    launch(
        resample_backward_kernel,
        tiles.grid,
        grad.device,
        *source,
        plan.out_S,
        tuple(number_bits(scale, ELEMENT_TYPE[real]) for scale in plan.scale_S),
        tiles.rows,
        tiles.columns,
        TAPS_S=plan.taps_S,
        READERS_S=plan.readers(sampling),
        SHIFT=sampling.shift,
        OFFSET=sampling.offset,
        REAL=ELEMENT_TYPE[real],
        **constants,
    )
    return out


def nearest_lines(sampling: Sampling) -> tuple[Op, Op]:
    """An op that reads the nearest position along W, and its gradient."""

    def op(self: torch.Tensor, output_size: Sizes, scales: Scale = None) -> torch.Tensor:
        return _resampled(self, output_size, (scales,), sampling)

    def backward(
        grad_output: torch.Tensor, output_size: Sizes, input_size: Sizes, scales: Scale = None
    ) -> torch.Tensor:
        return _resampled_backward(grad_output, output_size, input_size, (scales,), sampling)

    return op, backward


def nearest_planes(sampling: Sampling) -> tuple[Op, Op]:
    """An op that reads the nearest position over H and W, and its gradient."""

    def op(self: torch.Tensor, output_size: Sizes, scales_h: Scale = None, scales_w: Scale = None) -> torch.Tensor:
        return _resampled(self, output_size, (scales_h, scales_w), sampling)

    def backward(
        grad_output: torch.Tensor, output_size: Sizes, input_size: Sizes, scales_h: Scale = None, scales_w: Scale = None
    ) -> torch.Tensor:
        return _resampled_backward(grad_output, output_size, input_size, (scales_h, scales_w), sampling)

    return op, backward


def nearest_volumes(sampling: Sampling) -> tuple[Op, Op]:
    """An op that reads the nearest position over D, H and W, and its gradient."""

    def op(
        self: torch.Tensor, output_size: Sizes, scales_d: Scale = None, scales_h: Scale = None, scales_w: Scale = None
    ) -> torch.Tensor:
        return _resampled(self, output_size, (scales_d, scales_h, scales_w), sampling)

    def backward(
        grad_output: torch.Tensor,
        output_size: Sizes,
        input_size: Sizes,
        scales_d: Scale = None,
        scales_h: Scale = None,
        scales_w: Scale = None,
    ) -> torch.Tensor:
        return _resampled_backward(grad_output, output_size, input_size, (scales_d, scales_h, scales_w), sampling)

    return op, backward


def upsample_linear1d(
    self: torch.Tensor, output_size: Sizes, align_corners: bool, scales: Scale = None
) -> torch.Tensor:
    """Linear interpolation, along W."""
    return _resampled(self, output_size, (scales,), linear(align_corners=align_corners))


def upsample_linear1d_backward(
    grad_output: torch.Tensor, output_size: Sizes, input_size: Sizes, align_corners: bool, scales: Scale = None
) -> torch.Tensor:
    """The gradient of :func:`upsample_linear1d` by its input."""
    sampling = linear(align_corners=align_corners)
    return _resampled_backward(grad_output, output_size, input_size, (scales,), sampling)


def upsample_trilinear3d(
    self: torch.Tensor,
    output_size: Sizes,
    align_corners: bool,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> torch.Tensor:
    """Linear interpolation, over D, H and W."""
    return _resampled(self, output_size, (scales_d, scales_h, scales_w), linear(align_corners=align_corners))


def upsample_trilinear3d_backward(
    grad_output: torch.Tensor,
    output_size: Sizes,
    input_size: Sizes,
    align_corners: bool,
    scales_d: Scale = None,
    scales_h: Scale = None,
    scales_w: Scale = None,
) -> torch.Tensor:
    """The gradient of :func:`upsample_trilinear3d` by its input."""
    sampling = linear(align_corners=align_corners)
    return _resampled_backward(grad_output, output_size, input_size, (scales_d, scales_h, scales_w), sampling)


def interpolated_planes(resample: Op, resample_backward: Op, sampling: Callable[..., Sampling]) -> tuple[Op, Op]:
    """An op that interpolates over H and W, and its gradient."""

    def op(
        self: torch.Tensor, output_size: Sizes, align_corners: bool, scales_h: Scale = None, scales_w: Scale = None
    ) -> torch.Tensor:
        return resample(self, output_size, (scales_h, scales_w), sampling(align_corners=align_corners))

    def backward(
        grad_output: torch.Tensor,
        output_size: Sizes,
        input_size: Sizes,
        align_corners: bool,
        scales_h: Scale = None,
        scales_w: Scale = None,
    ) -> torch.Tensor:
        how = sampling(align_corners=align_corners)
        return resample_backward(grad_output, output_size, input_size, (scales_h, scales_w), how)

    return op, backward


upsample_nearest1d, upsample_nearest1d_backward = nearest_lines(NEAREST)
upsample_nearest2d, upsample_nearest2d_backward = nearest_planes(NEAREST)
upsample_nearest3d, upsample_nearest3d_backward = nearest_volumes(NEAREST)
upsample_nearest_exact1d, upsample_nearest_exact1d_backward = nearest_lines(NEAREST_EXACT)
upsample_nearest_exact2d, upsample_nearest_exact2d_backward = nearest_planes(NEAREST_EXACT)
upsample_nearest_exact3d, upsample_nearest_exact3d_backward = nearest_volumes(NEAREST_EXACT)
upsample_bilinear2d, upsample_bilinear2d_backward = interpolated_planes(_resampled, _resampled_backward, linear)
upsample_bicubic2d, upsample_bicubic2d_backward = interpolated_planes(_resampled, _resampled_backward, cubic)
