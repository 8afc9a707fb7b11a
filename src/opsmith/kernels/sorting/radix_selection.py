"""The first k elements of long rows, in no order: radix selection.

The key of the k-th element is found digit by digit, the upper one first: the elements that agree with it so far are
counted by their next digit, and the bin in which the k-th lies is the next digit (T. Alabi, J. Blanchard, B. Gordon,
R. Steinbach, "Fast k-selection algorithms for graphics processing units", 2012). Then all elements before that key are
taken, and of those equal to it the first ones of the row. Several programs share a row; the counts of each digit
are in memory, and each launch reads from those of the digits before it what is known.

Keys have four digits, two of which are enough for half types: so many times a row is read, and once more to take its
elements, ``(digits + 1) * n * itemsize`` bytes.

Suffixes: ``_R`` one entry per row, ``_T`` elements of a tile, ``_B`` bins, ``_P`` programs of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import offset_of
from ..common.launch import INTERPRETED, launch, loop_bound, multiprocessors, pdl_prologue
from ..common.ordering import WHOLE, packed, sort_key
from ..copies.rearrangements import fill
from .sorted_rows import Sorting

#: Elements of a tile: 16 a thread of 8 warps.
TILE = 1 << 15 if INTERPRETED else 4096
#: Programs of 8 warps for each multiprocessor.
RESIDENT = 4
#: Values of a digit of 8 bits.
_BINS = tl.constexpr(256)

# ---------------------------------------------------------------- the kernels


@triton.jit
def upper_digits(key: tl.tensor, DIGITS: tl.constexpr) -> tl.tensor:
    """The first DIGITS digits of a key of 32 bits, as a number that is not negative and in the order of the keys."""
    return (key.to(tl.uint32, bitcast=True) ^ 0x80000000) >> (32 - 8 * DIGITS)


@triton.jit
def row_counts(counts_ptr: tl.tensor, row: tl.tensor, DIGITS: tl.constexpr) -> tl.tensor:
    """Where the counts of a row begin: those of each digit, and then how many elements are taken."""
    return counts_ptr + row * (DIGITS * _BINS + _BINS)


@triton.jit
def found_digits(counts_ptr: tl.tensor, wanted: tl.tensor, KNOWN: tl.constexpr) -> tl.tuple:
    """The first KNOWN digits of the key of element ``wanted``, and its number, from 1, among those that have them."""
    bin_B = tl.arange(0, _BINS)
    found = tl.full([], 0, tl.uint32)
    for digit in tl.static_range(KNOWN):
        count_B = tl.load(counts_ptr + digit * _BINS + bin_B)
        before_B = tl.cumsum(count_B, axis=0) < wanted
        found = (found << 8) + tl.sum(before_B.to(tl.int32), axis=0).to(tl.uint32)
        wanted -= tl.sum(tl.where(before_B, count_B, 0), axis=0)
    return found, wanted


@triton.jit
def count_digits_kernel(
    counts_ptr: tl.tensor,
    own_counts_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    x_stride: tl.tensor,
    count: tl.tensor,
    keep: tl.tensor,
    programs: tl.tensor,
    steps: tl.tensor,
    DESCENDING: tl.constexpr,
    INDEX: tl.constexpr,
    DIGITS: tl.constexpr,
    KNOWN: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Count each value of digit KNOWN in ``steps`` tiles, of the elements that have the known digits.

    Of the last digit the program's own counts are kept as well, as ``own_counts[row, program]``.
    """
    pdl_prologue()
    row = (tl.program_id(0) // programs).to(INDEX)
    program = (tl.program_id(0) % programs).to(INDEX)
    row_counts_ptr = row_counts(counts_ptr, row, DIGITS)
    found, _ = found_digits(row_counts_ptr, keep, KNOWN)
    row_ptr = x_ptr + offset_of(row, shape_R, x_strides_R)
    count_B = tl.zeros([_BINS], tl.int32)
    for step in range(steps):
        position_T = (program * steps + step) * BLOCK + tl.arange(0, BLOCK)
        inside_T = position_T < count
        key_T = sort_key(tl.load(row_ptr + position_T * x_stride, mask=inside_T, other=0), WHOLE, DESCENDING)
        digits_T = upper_digits(key_T, KNOWN + 1)
        if KNOWN > 0:
            inside_T &= (digits_T >> 8) == found
        count_B += tl.histogram((digits_T & 0xFF).to(tl.int32), _BINS, mask=inside_T)
    bin_B = tl.arange(0, _BINS)
    tl.atomic_add(row_counts_ptr + KNOWN * _BINS + bin_B, count_B, mask=count_B > 0, sem="relaxed")
    if KNOWN + 1 == DIGITS:
        tl.store(own_counts_ptr + (row * programs + program) * _BINS + bin_B, count_B)


@triton.jit
def take_kernel(
    packed_ptr: tl.tensor,
    counts_ptr: tl.tensor,
    own_counts_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    x_stride: tl.tensor,
    count: tl.tensor,
    keep: tl.tensor,
    programs: tl.tensor,
    steps: tl.tensor,
    DESCENDING: tl.constexpr,
    INDEX: tl.constexpr,
    DIGITS: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_P: tl.constexpr,
) -> None:
    """Write the first ``keep`` elements of the row that are in ``steps`` tiles, packed.

    Those before the key of the last one have places in the order in which programs come; behind them are those that
    are equal to it, in the order of the row.
    """
    pdl_prologue()
    row = (tl.program_id(0) // programs).to(INDEX)
    program = (tl.program_id(0) % programs).to(INDEX)
    row_counts_ptr = row_counts(counts_ptr, row, DIGITS)
    last, ties = found_digits(row_counts_ptr, keep, DIGITS)
    p = tl.arange(0, BLOCK_P)
    earlier_P = own_counts_ptr + (row * programs + p) * _BINS + (last & 0xFF).to(tl.int32)
    tie = tl.sum(tl.load(earlier_P, mask=p < program, other=0), axis=0)
    row_ptr = x_ptr + offset_of(row, shape_R, x_strides_R)
    out_ptr = packed_ptr + row * keep
    for step in range(steps):
        position_T = (program * steps + step) * BLOCK + tl.arange(0, BLOCK)
        inside_T = position_T < count
        key_T = sort_key(tl.load(row_ptr + position_T * x_stride, mask=inside_T, other=0), WHOLE, DESCENDING)
        digits_T = upper_digits(key_T, DIGITS)
        before_T = inside_T & (digits_T < last)
        ties_T = inside_T & (digits_T == last)
        # Both are counted in one number: a tile has fewer than 2^16 elements.
        counted_T = before_T.to(tl.int32) + (ties_T.to(tl.int32) << 16)
        counted = tl.sum(counted_T, axis=0)
        if counted > 0:
            upto_T = tl.cumsum(counted_T, axis=0)
            first = tl.atomic_add(row_counts_ptr + DIGITS * _BINS, counted & 0xFFFF, sem="relaxed")
            tie_T = tie + (upto_T >> 16) - 1
            slot_T = tl.where(before_T, first + (upto_T & 0xFFFF) - 1, keep - ties + tie_T)
            tl.store(out_ptr + slot_T, packed(key_T, position_T), mask=before_T | (ties_T & (tie_T < ties)))
        tie += counted >> 16


# ---------------------------------------------------------------- the host side


def select_first(sorting: Sorting) -> torch.Tensor:
    """The first elements of each row, packed, in no order: ``keep`` for each of the rows.

    Args:
        sorting: what is wanted, of a type of at most 32 bits.
    """
    rows, count, device = sorting.rows(), sorting.length(), sorting.x.device
    digits = 2 if sorting.x.dtype in (torch.float16, torch.bfloat16) else 4
    tiles = triton.cdiv(count, TILE)
    steps = min(triton.cdiv(tiles * rows, RESIDENT * multiprocessors(device)), tiles)
    programs = triton.cdiv(tiles, steps)
    counts = torch.empty(rows * (digits + 1) * _BINS.value, dtype=torch.int32, device=device)
    own_counts = torch.empty(rows * programs * _BINS.value, dtype=torch.int32, device=device)
    selected = sorting.empty_packed(sorting.keep)
    fill(counts, 0)
    x = (sorting.x, sorting.geometry.shape_D, sorting.geometry.strides_ID[0], sorting.x.stride(sorting.axis))
    arguments = (*x, count, sorting.keep, programs)
    constants = {"DESCENDING": sorting.descending, "INDEX": sorting.offset_type(), "DIGITS": digits, "num_warps": 8}
    grid, whole, halves = (rows * programs,), loop_bound(steps), loop_bound(2 * steps)
    for known in range(digits):
        operands = (counts, own_counts, *arguments, whole)
        launch(count_digits_kernel, grid, device, *operands, KNOWN=known, BLOCK=TILE, **constants)
    # Taking needs more registers for an element than counting: half a tile at a time.
    constants |= {"BLOCK": TILE // 2, "BLOCK_P": triton.next_power_of_2(programs)}
    launch(take_kernel, grid, device, selected, counts, own_counts, *arguments, halves, **constants)
    return selected
