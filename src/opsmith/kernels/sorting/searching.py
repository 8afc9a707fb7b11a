"""Places in sorted sequences, and counts of values in bins: searchsorted, bucketize, histc.

A search is a bisection: each element reads ``log2 n`` boundaries, which the caches hold.

A histogram reads each element once and writes each bin, ``(numel + bins) * itemsize`` bytes. One program counts a small
tensor and stores the counts: one launch. Otherwise each program adds its counts to zeroed ones, which takes two:
atomic operations on whole numbers, so that the result does not depend on their order. Types without them (of 8 and 16
bits; float32 of more than 2^24 elements) are counted in int32 and converted.

Suffixes: ``_D`` one entry per dimension, ``_R`` per dimension of the rows of boundaries.
"""

from __future__ import annotations

import builtins

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand
from ..common.indexing import Geometry, converted, index_type, merge_dims, number, offset_of
from ..common.launch import (
    ELEMENT_TYPE,
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.promotion import promoted
from ..copies.rearrangements import copy_into, fill
from ..reductions.extrema import aminmax

BLOCK = INTERPRETED_TILE if INTERPRETED else 512

# ---------------------------------------------------------------- bisection


@triton.jit
def search_kernel(
    out_ptr: tl.tensor,
    x: tl.tensor,
    sequence_ptr: tl.tensor,
    sorter_ptr: tl.tensor,
    shape_D: tl.tuple,
    x_strides_D: tl.tuple,
    shape_R: tl.tuple,
    sequence_strides_R: tl.tuple,
    sorter_strides_R: tl.tuple,
    sequence_stride: tl.tensor,
    sorter_stride: tl.tensor,
    numel: tl.tensor,
    columns: tl.tensor,
    length: tl.tensor,
    steps: tl.tensor,
    NUMBER: tl.constexpr,
    RIGHT: tl.constexpr,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[i]``: how many elements of row ``i // columns`` come before ``x[i]``, or, if RIGHT, before or with it."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    if NUMBER:
        value = number(x, READ).to(COMPUTE)
    else:
        value = converted(tl.load(x + offset_of(i, shape_D, x_strides_D), mask=i < numel, other=0), READ).to(COMPUTE)
    row = i // columns
    first = sequence_ptr + offset_of(row, shape_R, sequence_strides_R)
    low = tl.zeros([BLOCK], INDEX)
    high = low + length
    for _ in range(steps):
        middle = (low + high) // 2
        asked = (i < numel) & (middle < high)
        at = middle
        if sorter_ptr is not None:
            at_row = sorter_ptr + offset_of(row, shape_R, sorter_strides_R)
            at = tl.load(at_row + middle * sorter_stride, mask=asked, other=0).to(INDEX)
        boundary = converted(tl.load(first + at * sequence_stride, mask=asked, other=0), READ).to(COMPUTE)
        behind = (boundary > value) if RIGHT else (boundary >= value)
        low = tl.where(asked & (behind == 0), middle + 1, low)
        high = tl.where(asked & behind, middle, high)
    tl.store(out_ptr + i, low.to(out_ptr.dtype.element_ty), mask=i < numel)


def _search(
    x: Operand, sequence: torch.Tensor, sorter: torch.Tensor | None, *, right: bool, out_int32: bool
) -> torch.Tensor:
    tensors = [x] if isinstance(x, torch.Tensor) else []
    require_served(sequence, sorter, *tensors)
    common = promoted([x, sequence])
    shape = tuple(x.shape) if isinstance(x, torch.Tensor) else ()
    if sequence.ndim != 1 and (not shape or tuple(sequence.shape[:-1]) != shape[:-1]):
        raise ValueError(f"sequences of shape {list(sequence.shape)} are not those of elements of shape {list(shape)}")
    out = torch.empty(shape, dtype=torch.int32 if out_int32 else torch.int64, device=sequence.device)
    if not out.numel():
        return out
    strides = x.stride() if isinstance(x, torch.Tensor) else ()
    elements = merge_dims(shape, [strides], reversed(range(len(shape))))
    kept = range(sequence.ndim - 2, -1, -1)
    other = sequence if sorter is None else sorter
    rows = merge_dims(tuple(sequence.shape), [sequence.stride(), other.stride()], kept)
    length = sequence.shape[-1]
    along = Geometry((max(length, 1),), ((sequence.stride(-1),), (other.stride(-1),)))
    compute = compute_type(common)
    block = min(triton.next_power_of_2(out.numel()), BLOCK)
    launch(
        search_kernel,
        (triton.cdiv(out.numel(), block),),
        out.device,
        out,
        x if isinstance(x, torch.Tensor) else number_bits(x, compute),
        sequence,
        sorter,
        elements.shape_D,
        *elements.strides_ID,
        rows.shape_D,
        *rows.strides_ID,
        sequence.stride(-1),
        other.stride(-1),
        out.numel(),
        shape[-1] if sequence.ndim > 1 else out.numel(),
        length,
        loop_bound(length.bit_length()),
        NUMBER=not isinstance(x, torch.Tensor),
        RIGHT=right,
        READ=ELEMENT_TYPE[common],
        COMPUTE=compute,
        INDEX=index_type(elements, rows, along),
        BLOCK=block,
    )
    return out


def searchsorted(
    sorted_sequence: torch.Tensor,
    self: Operand,
    *,
    out_int32: bool = False,
    right: bool = False,
    side: str | None = None,
    sorter: torch.Tensor | None = None,
) -> torch.Tensor:
    """Where each element belongs in its row of ``sorted_sequence``, before its equals or, if ``right``, behind them.

    Args:
        sorted_sequence: rows, or one row for all elements.
        self: a tensor with the same leading dimensions, or a number for one row.
        out_int32: whether the result is int32, not int64.
        right: behind equals.
        side: "left" or "right", the same in words.
        sorter: the order in which the sequence is sorted.

    Raises:
        ValueError: ``side`` and ``right`` contradict each other, or shapes that do not match.
        TypeError: a sorter that is not int64.
    """
    if side not in (None, "left", "right") or (side == "left" and right):
        raise ValueError(f"side={side!r} and right={right} name no side")
    if sorter is not None and sorter.dtype != torch.int64:
        raise TypeError(f"the sorter is int64, not {sorter.dtype}")
    if sorter is not None and sorter.shape != sorted_sequence.shape:
        raise ValueError(f"the sorter has shape {list(sorter.shape)}, the sequence {list(sorted_sequence.shape)}")
    if not sorted_sequence.ndim:
        raise ValueError("a sequence has a dimension")
    return _search(self, sorted_sequence, sorter, right=right or side == "right", out_int32=out_int32)


def bucketize(self: Operand, boundaries: torch.Tensor, *, out_int32: bool = False, right: bool = False) -> torch.Tensor:
    """As :func:`searchsorted` of one row of boundaries."""
    if boundaries.ndim != 1:
        raise ValueError(f"boundaries have one dimension, not {boundaries.ndim}")
    return _search(self, boundaries, None, right=right, out_int32=out_int32)


# ---------------------------------------------------------------- histograms

_COUNTED = (torch.float32, torch.float64, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


#: Up to so many bins a program counts by itself: ``tl.histogram`` takes time in proportion to them.
_MOST_COUNTED_BINS = 512
#: What one program counts sooner than two launches take.
_MOST_ALONE, _MOST_ALONE_TIMES_BINS = 1 << 12, 1 << 18
#: How many programs that count by themselves share a multiprocessor: a large tensor has no more of them.
_PROGRAMS = 16
#: Every whole number up to this is a float32.
_EXACT_IN_FLOAT32 = 1 << 24


@triton.jit
def histogram_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    low_ptr: tl.tensor,
    high_ptr: tl.tensor,
    shape_D: tl.tuple,
    strides_D: tl.tuple,
    low_bits: tl.tensor,
    high_bits: tl.tensor,
    numel: tl.tensor,
    bins: tl.tensor,
    steps: tl.tensor,
    COUNTED: tl.constexpr,
    ALONE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Count ``steps`` tiles of elements between low and high in bins, of which the last holds high itself.

    The program that is ALONE stores its counts, others add them to ``out``; without COUNTED, a power of two that is no
    less than the bins, each element is added by itself. Integers are counted in whole numbers, so that none is rounded
    into a neighbouring bin.
    """
    pdl_prologue()
    if low_ptr is None:
        low = number(low_bits, COMPUTE)
        high = number(high_bits, COMPUTE)
    else:
        low = tl.load(low_ptr + tl.arange(0, 1)).to(COMPUTE)
        high = tl.load(high_ptr + tl.arange(0, 1)).to(COMPUTE)
        flat = low == high
        low = tl.where(flat, low - 1, low)
        high = tl.where(flat, high + 1, high)
    if COUNTED is not None:
        total = tl.zeros([COUNTED], tl.int32)
    for step in range(steps):
        i = (tl.program_id(0).to(INDEX) * steps + step) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + offset_of(i, shape_D, strides_D), mask=i < numel, other=0).to(COMPUTE)
        counts = (i < numel) & (x >= low) & (x <= high)
        share = tl.where(counts, x - low, 0) * bins
        bin_ = (share / (high - low) if COMPUTE.is_floating() else share // (high - low)).to(tl.int32)
        bin_ = tl.minimum(bin_, bins - 1)
        if COUNTED is not None:
            total += tl.histogram(bin_, COUNTED, mask=counts)
        else:
            one = tl.full([BLOCK], 1, out_ptr.dtype.element_ty)
            tl.atomic_add(out_ptr + bin_, one, mask=counts, sem="relaxed")
    if COUNTED is not None:
        bin_B = tl.arange(0, COUNTED)
        total_B = total.to(out_ptr.dtype.element_ty)
        if ALONE:
            tl.store(out_ptr + bin_B, total_B, mask=bin_B < bins)
        else:
            tl.atomic_add(out_ptr + bin_B, total_B, mask=total > 0, sem="relaxed")


def histc(self: torch.Tensor, bins: int = 100, min: float = 0, max: float = 0) -> torch.Tensor:  # noqa: A002
    """How many elements lie in each of ``bins`` equal parts of [min, max], or of their own range if both are equal.

    Of integers the ends are cut to whole numbers, as in eager, which serves them on a GPU only.

    Raises:
        NotImplementedError: a half type, whose edges eager rounds to it, or bools.
        ValueError: no bins, or ``max`` below ``min``.
    """
    require_served(self, dtypes=_COUNTED)
    if not self.is_floating_point():
        min, max = int(min), int(max)  # noqa: A001
    if bins <= 0 or max < min:
        raise ValueError(f"there are no {bins} bins from {min} to {max}")
    out = torch.empty(bins, dtype=self.dtype, device=self.device)
    numel = self.numel()
    counted = triton.next_power_of_2(bins) if bins <= _MOST_COUNTED_BINS else None
    alone = counted is not None and 0 < numel <= _MOST_ALONE and numel * counted <= _MOST_ALONE_TIMES_BINS
    counts = out if alone or _adds_exactly(out.dtype, numel) else torch.empty_like(out, dtype=torch.int32)
    if not alone:
        fill(counts, 0)
    if numel:
        low, high = aminmax(self) if min == max else (None, None)
        geometry = merge_dims(tuple(self.shape), [self.stride()], sorted(range(self.ndim), key=self.stride))
        compute = _histogram_type(self.dtype, bins, min, max)
        # At least one element for each thread: ``tl.histogram`` would count copies of it.
        block = builtins.max(triton.next_power_of_2(numel), 128) if alone else BLOCK
        tiles = triton.cdiv(numel, block)
        steps = 1 if counted is None else triton.cdiv(tiles, _PROGRAMS * multiprocessors(self.device))
        launch(
            histogram_kernel,
            (triton.cdiv(tiles, steps),),
            self.device,
            counts,
            self,
            low,
            high,
            geometry.shape_D,
            *geometry.strides_ID,
            number_bits(min, compute),
            number_bits(max, compute),
            numel,
            bins,
            loop_bound(steps),
            COUNTED=counted,
            ALONE=alone,
            COMPUTE=compute,
            # The last program's tiles reach that far beyond the elements.
            INDEX=index_type(geometry, Geometry((steps * block,), ())),
            BLOCK=block,
            num_warps=builtins.max(4, block // 256),
        )
    if counts is not out:
        copy_into(out, counts)
    return out


def _adds_exactly(dtype: torch.dtype, most: int) -> bool:
    """Whether atomic operations count up to ``most`` in this type."""
    return dtype.itemsize >= 4 and (dtype != torch.float32 or most <= _EXACT_IN_FLOAT32)


def _histogram_type(dtype: torch.dtype, bins: int, low: float, high: float) -> tl.dtype:
    """What bins are computed in: of integers int32 where ``(x - low) * bins`` fits, whose division is far shorter."""
    if dtype.is_floating_point:
        return compute_type(dtype)
    known = low < high and dtype.itemsize <= 4
    fits = low >= -(1 << 31) and high < 1 << 31 and (high - low) * bins < 1 << 31
    return tl.int32 if known and fits else tl.int64
