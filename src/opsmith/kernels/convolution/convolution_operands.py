"""What convolutions read and write, seen in one way, and the copies of it that tensor cores can be fed from.

A convolution has two sides. Windows slide over the *field*; each place where one stops is a *site*. The weight
``(site channels, field channels / groups, *kernel)`` joins them, and four ops are three computations:

| computation | forward of | gradient by the input of |
|---|---|---|
| field to sites | convolution | transposed convolution |
| sites to field | transposed convolution | convolution |
| field and sites to weight | | both, by the weight |

Tensor cores multiply as fast as 16-byte loads bring them data, which needs neighbouring channels side by side.
So a tensor in another layout is copied first (``2 * numel * itemsize`` bytes, where the product reads it
``kernel / stride`` times), with zeros up to a multiple of 16 channels. Weights are copied likewise.

Suffixes: ``_N`` batch, ``_G`` groups, ``_C`` channels of a group, ``_S`` one entry for each of depth, height and width.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Ints, merge_dims, offset_of
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, pdl_prologue
from ..common.volumes import volume_of
from ..common.windows import Window, place_in_box
from ..matmul.product_tiles import parts_of_one_sign

#: Channels that lie side by side come in multiples of this: Triton knows of an integer whether 16 divides it.
CHANNELS = 16
#: Groups with fewer channels than this on both sides are joined up to it.
_JOINED = 32


class Operand(NamedTuple):
    """One side of a convolution: a tensor and how to step through it; ``channels`` are those of a group.

    ``low`` is how far behind a number the low part of it lies, where the tensor holds parts (product_tiles.py).
    """

    tensor: torch.Tensor
    channels: int
    strides_NGC: Ints
    strides_S: Ints
    size_S: Ints
    batch: int
    low: int | None = None

    def reach(self) -> int:
        """No offset exceeds this."""
        spans = zip(self.size_S, self.strides_S, strict=True)
        groups = self.tensor.numel() // max(self.batch * math.prod(self.size_S) * self.channels, 1)
        steps = self.batch * self.strides_NGC[0] + groups * self.strides_NGC[1] + self.channels * self.strides_NGC[2]
        return steps + sum(size * stride for size, stride in spans)


class Filter(NamedTuple):
    """A weight as a product reads it: rows are channels of the result, columns channels that are summed.

    ``low`` as of an :class:`Operand`.
    """

    tensor: torch.Tensor
    strides_GRC: Ints
    strides_S: Ints
    low: int | None = None


class Sides(NamedTuple):
    """How many groups there are, and the channels of a group on either side."""

    groups: int
    sites: int
    field: int

    def joined(self) -> Sides:
        """The same with groups of few channels joined, where that gives tensor cores enough of them.

        For the weight's gradient alone, which is the diagonal blocks of the joined one. A product with zeros between
        them would carry infinities from group to group.
        """
        factor = 1
        while (
            self.groups % (2 * factor) == 0
            and 2 * factor * max(self.sites, self.field) <= _JOINED
            and min(self.sites, self.field) * factor < CHANNELS
        ):
            factor *= 2
        if min(self.sites, self.field) * factor < CHANNELS:
            return self
        return Sides(self.groups // factor, self.sites * factor, self.field * factor)


def operand_of(tensor: torch.Tensor, groups: int) -> Operand:
    """A tensor ``(N, groups * channels, *spatial)`` as it lies."""
    volume = volume_of(tensor, tensor.ndim - 2)
    stride_N, stride_C, *strides_S = volume.strides_NCDHW
    channels = volume.shape_NCDHW[1] // groups
    strides_NGC = stride_N, channels * stride_C, stride_C
    return Operand(tensor, channels, strides_NGC, tuple(strides_S), volume.spatial, volume.shape_NCDHW[0])


def with_flat_space(operand: Operand) -> Operand:
    """The same with one spatial dimension, where depth, height and width lie seamlessly behind each other."""
    merged = merge_dims(operand.size_S, [operand.strides_S], (2, 1, 0))
    if len(merged.shape_D) > 1:
        return operand
    return operand._replace(size_S=(1, 1, *merged.shape_D), strides_S=(0, 0, *merged.strides_ID[0]))


def side_by_side(operand: Operand) -> bool:
    """Whether the channels of a group can be read by aligned 16-byte loads."""
    stride_N, stride_G, stride_C = operand.strides_NGC
    steps = (operand.channels, stride_N, stride_G, *operand.strides_S)
    return stride_C == 1 and all(step % CHANNELS == 0 for step in steps)


def places_side_by_side(operand: Operand) -> bool:
    """Whether the places of a channel can be."""
    flat = with_flat_space(operand)
    return flat.size_S[:2] == (1, 1) and flat.size_S[2] % CHANNELS == 0 and flat.strides_S[2] == 1


@triton.jit
def channels_last_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    C: tl.tensor,
    padded_C: tl.tensor,
    groups: tl.tensor,
    space: tl.tensor,
    low: tl.tensor,
    strides_NGC: tl.tuple,
    size_D: tl.tuple,
    strides_D: tl.tuple,
    INDEX: tl.constexpr,
    BLOCK_C: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """``out[n, s, g, c] = x[n, g, c, s]``, 0 for c from C on: a tile is read along s and written along c.

    With ``low`` as two parts, so far apart.
    """
    pdl_prologue()
    s = tl.program_id(0).to(INDEX) * BLOCK_S + tl.arange(0, BLOCK_S)
    tiles_C = tl.cdiv(padded_C, BLOCK_C)
    g = tl.program_id(1).to(INDEX) // tiles_C
    c = tl.program_id(1).to(INDEX) % tiles_C * BLOCK_C + tl.arange(0, BLOCK_C)
    n = tl.program_id(2).to(INDEX)
    x_ptr += n * strides_NGC[0] + g * strides_NGC[1]
    x_ptr_CS = x_ptr + c[:, None] * strides_NGC[2] + offset_of(s, size_D, strides_D)[None, :]
    x_CS = tl.load(x_ptr_CS, mask=(c < C)[:, None] & (s < space)[None, :], other=0)
    out_ptr_CS = out_ptr + ((n * space + s) * groups + g)[None, :] * padded_C + c[:, None]
    mask = (c < padded_C)[:, None] & (s < space)[None, :]
    if low is not None:
        x_CS, low_CS = parts_of_one_sign(x_CS)
        tl.store(out_ptr_CS + low, low_CS, mask=mask)
    tl.store(out_ptr_CS, x_CS, mask=mask)


def channels_last(operand: Operand, groups: int, *, in_parts: bool = False) -> Operand:
    """A copy with the channels of each group side by side; float32 may be ``in_parts``."""
    x, C = operand.tensor, operand.channels
    padded, space = triton.cdiv(C, CHANNELS) * CHANNELS, math.prod(operand.size_S)
    shape = (operand.batch, *operand.size_S, groups, padded)
    out = torch.empty((2, *shape) if in_parts else shape, dtype=x.dtype, device=x.device)
    stride_N, *strides_S, stride_G, _ = out.stride()[in_parts:]
    low = math.prod(shape) if in_parts else None
    copy = Operand(out, padded, (stride_N, stride_G, 1), tuple(strides_S), operand.size_S, operand.batch, low)
    merged = merge_dims(operand.size_S, [operand.strides_S], (2, 1, 0))
    block_c = triton.next_power_of_2(padded) if INTERPRETED else min(triton.next_power_of_2(padded), 64)
    block_s = min(triton.next_power_of_2(space), INTERPRETED_TILE // block_c if INTERPRETED else 64)
    launch(
        channels_last_kernel,
        (triton.cdiv(space, block_s), triton.cdiv(padded, block_c) * groups, operand.batch),
        x.device,
        out,
        x,
        C,
        padded,
        groups,
        space,
        low,
        operand.strides_NGC,
        merged.shape_D,
        merged.strides_ID[0],
        INDEX=reach_type(operand, copy),
        BLOCK_C=block_c,
        BLOCK_S=block_s,
    )
    return copy


def with_channels_side_by_side(x: torch.Tensor, groups: int) -> torch.Tensor:
    """A channels-last copy of a tensor whose groups have a multiple of 16 channels, so that there is no padding."""
    copy = channels_last(operand_of(x, groups), groups).tensor
    return copy.view(x.shape[0], *x.shape[2:], x.shape[1]).movedim(-1, 1)


@triton.jit
def filter_kernel(
    out_ptr: tl.tensor,
    w_ptr: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    padded: tl.tensor,
    numel: tl.tensor,
    low: tl.tensor,
    strides_GRC: tl.tuple,
    strides_S: tl.tuple,
    KERNEL_S: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[g, r, k, c] = w[g, r, c, k]``, 0 for c beyond the columns; ``low`` as of :func:`channels_last_kernel`."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    TAPS: tl.constexpr = KERNEL_S[0] * KERNEL_S[1] * KERNEL_S[2]
    c, k = i % padded, i // padded % TAPS
    r, g = i // (padded * TAPS) % rows, i // (padded * TAPS) // rows
    kd, kh, kw = place_in_box(k, KERNEL_S)
    w_ptr_I = w_ptr + g * strides_GRC[0] + r * strides_GRC[1] + c * strides_GRC[2]
    w_ptr_I += kd * strides_S[0] + kh * strides_S[1] + kw * strides_S[2]
    w = tl.load(w_ptr_I, mask=(i < numel) & (c < columns), other=0)
    if low is not None:
        w, w_low = parts_of_one_sign(w)
        tl.store(out_ptr + low + i, w_low, mask=i < numel)
    tl.store(out_ptr + i, w, mask=i < numel)


def filter_of(weight: torch.Tensor, sides: Sides, *, to_field: bool) -> Filter:
    """A weight as it lies; its rows are the channels of the result, those of the field where ``to_field``."""
    absent = 5 - weight.ndim
    stride_site, stride_field, *strides = weight.stride()
    strides_S = (0,) * absent + tuple(strides)
    stride_G = sides.sites * stride_site
    rows, columns = (stride_field, stride_site) if to_field else (stride_site, stride_field)
    return Filter(weight, (stride_G, rows, columns), strides_S)


def relaid_filter(weight: Filter, sides: Sides, kernel_S: Ints, *, to_field: bool, in_parts: bool = False) -> Filter:
    """A copy ``(groups, rows, *kernel, columns)``, with zeros up to a multiple of 16 columns."""
    w = weight.tensor
    rows, columns = (sides.field, sides.sites) if to_field else (sides.sites, sides.field)
    padded = triton.cdiv(columns, CHANNELS) * CHANNELS
    shape = (sides.groups, rows, *kernel_S, padded)
    numel = math.prod(shape)
    low = numel if in_parts else None
    out = torch.empty((2, *shape) if in_parts else shape, dtype=w.dtype, device=w.device)
    block = min(triton.next_power_of_2(numel), INTERPRETED_TILE) if INTERPRETED else 1024
    launch(
        filter_kernel,
        (triton.cdiv(numel, block),),
        w.device,
        out,
        w,
        rows,
        columns,
        padded,
        numel,
        low,
        weight.strides_GRC,
        weight.strides_S,
        KERNEL_S=kernel_S,
        INDEX=tl.int64 if max(out.numel(), _span(w)) >= 1 << 30 else tl.int32,
        BLOCK=block,
    )
    stride_G, stride_R, *strides_S, _ = out.stride()[in_parts:]
    return Filter(out, (stride_G, stride_R, 1), tuple(strides_S), low)


def _span(tensor: torch.Tensor) -> int:
    return sum(size * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def reach_type(*operands: Operand) -> tl.dtype:
    """int32 where every offset and every number of an element fits, with room for the last block; else int64."""
    reach = max(max(operand.reach(), operand.tensor.numel()) for operand in operands)
    return tl.int32 if reach < (1 << 31) - (1 << 22) else tl.int64


def kernel_sizes(windows: Sequence[Window]) -> Ints:
    """Depth, height and width of a window."""
    return tuple(window.kernel for window in windows)
