"""Packed access: neighbours of a row that a lane loads or stores as one word, and unpacks or packs in its registers.

Triton itself joins accesses of elements that a thread has side by side in a tile. Where a lane wants its neighbours'
elements as well, as under a sliding window, each shift of the tile would be a load of its own, and of single elements.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.lanes import load_along_columns, store_along_columns
from ..common.launch import address_of

WORD_BYTES = 8


def longest_word(x: torch.Tensor) -> int:
    """How many neighbours of a row make a word, 4, 2 or 1, so that every row consists of whole ones."""
    itemsize = x.dtype.itemsize
    outer = [stride for stride, size in zip(x.stride()[:-1], x.shape[:-1], strict=True) if size > 1]
    for word in (4, 2):
        if (
            word * itemsize <= WORD_BYTES
            and x.stride(-1) == 1
            and not any(length % word for length in (x.shape[-1], *outer))
            and address_of(x) % (word * itemsize) == 0
        ):
            return word
    return 1


@triton.jit
def load_part(ptr: tl.tensor, mask: tl.tensor, PART: tl.constexpr, WORD: tl.constexpr) -> tl.tensor:
    """Element PART of the words at ``ptr``, 0 where the mask is not set. All parts of a word are one load."""
    ELEMENT: tl.constexpr = ptr.dtype.element_ty
    BITS: tl.constexpr = ELEMENT.primitive_bitwidth
    if WORD == 1:
        x = load_along_columns(ptr, mask)
    else:
        WHOLE: tl.constexpr = tl.uint64 if WORD * BITS == 64 else tl.uint32
        SINGLE: tl.constexpr = tl.uint32 if BITS == 32 else tl.uint16
        word = load_along_columns(ptr.to(tl.pointer_type(WHOLE), bitcast=True), mask)
        x = (word >> PART * BITS).to(SINGLE).to(ELEMENT, bitcast=True)
    return x


@triton.jit
def store_word(ptr: tl.tensor, x_P: tl.tuple, mask: tl.tensor, FIRST: tl.constexpr, WORD: tl.constexpr) -> None:
    """Entries FIRST to FIRST + WORD of ``x_P``, rounded to the type at ``ptr``, as one word."""
    ELEMENT: tl.constexpr = ptr.dtype.element_ty
    BITS: tl.constexpr = ELEMENT.primitive_bitwidth
    x = converted(x_P[FIRST], ELEMENT)
    if WORD == 1:
        store_along_columns(ptr, x, mask)
    else:
        WHOLE: tl.constexpr = tl.uint64 if WORD * BITS == 64 else tl.uint32
        SINGLE: tl.constexpr = tl.uint32 if BITS == 32 else tl.uint16
        word = x.to(SINGLE, bitcast=True).to(WHOLE)
        for part in tl.static_range(1, WORD):
            x = converted(x_P[FIRST + part], ELEMENT)
            word |= x.to(SINGLE, bitcast=True).to(WHOLE) << part * BITS
        store_along_columns(ptr.to(tl.pointer_type(WHOLE), bitcast=True), word, mask)
