"""isin: which elements are among others.

The others are sorted, and each element is looked for by bisection: it reads ``log2 n`` of them, which the caches hold,
and itself, ``numel * (itemsize + 1)`` bytes with the result.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_into_several, served_promotion
from ..common.indexing import converted, index_type, offset_of
from ..common.launch import (
    ELEMENT_TYPE,
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import copied, fill
from ..indexing.masking import row_major
from ..pointwise.comparisons import eq, eq_of, ne, ne_of
from ..reductions.reductions import all_default, any_default
from .sorting import sort_rows

BLOCK = INTERPRETED_TILE if INTERPRETED else 512


@triton.jit
def found_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    sorted_ptr: tl.tensor,
    shape_D: tl.tuple,
    x_strides_D: tl.tuple,
    numel: tl.tensor,
    length: tl.tensor,
    steps: tl.tensor,
    INVERT: tl.constexpr,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[i]``: whether ``x[i]`` is among the sorted elements, of which NaN, equal to nothing, come last."""
    pdl_prologue()
    i = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    x = converted(tl.load(x_ptr + offset_of(i, shape_D, x_strides_D), mask=i < numel, other=0), READ).to(COMPUTE)
    low = tl.zeros([BLOCK], tl.int32)
    high = low + length
    for _ in range(steps):
        middle = (low + high) // 2
        asked = (i < numel) & (middle < high)
        element = converted(tl.load(sorted_ptr + middle, mask=asked, other=0), READ).to(COMPUTE)
        low, high = tl.where(asked & (element < x), middle + 1, low), tl.where(asked & (element < x), high, middle)
    inside = (i < numel) & (low < length)
    found = inside & (converted(tl.load(sorted_ptr + low, mask=inside, other=0), READ).to(COMPUTE) == x)
    tl.store(out_ptr + i, found != INVERT, mask=i < numel)


def isin(
    elements: torch.Tensor,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,  # noqa: ARG001 - Saves eager a step.
    invert: bool = False,
) -> torch.Tensor:
    """Whether each element is, or if ``invert`` is not, among ``test_elements``, in the promoted type."""
    require_served(elements, test_elements)
    common = served_promotion([elements, test_elements])
    out = torch.empty(elements.shape, dtype=torch.bool, device=elements.device)
    if not out.numel():
        return out
    length = test_elements.numel()
    if not length:
        fill(out, invert)
        return out
    tests = (test_elements if test_elements.is_contiguous() else copied(test_elements)).view(-1)
    in_order = torch.empty_like(tests)
    sort_rows(in_order, torch.empty(length, dtype=torch.int64, device=tests.device), tests, 0, descending=False)
    geometry = row_major(*layout_of(elements))
    launch(
        found_kernel,
        (triton.cdiv(out.numel(), BLOCK),),
        out.device,
        out,
        elements,
        in_order,
        geometry.shape_D,
        *geometry.strides_ID,
        out.numel(),
        length,
        loop_bound(length.bit_length()),
        INVERT=invert,
        READ=ELEMENT_TYPE[common],
        COMPUTE=compute_type(common),
        INDEX=index_type(geometry),
        BLOCK=BLOCK,
    )
    return out


def isin_number(
    elements: torch.Tensor,
    test_element: float,
    *,
    assume_unique: bool = False,  # noqa: ARG001 - As above.
    invert: bool = False,
) -> torch.Tensor:
    """Whether each element is, or is not, a number."""
    common = served_promotion([elements, test_element])
    out = torch.empty(elements.shape, dtype=torch.bool, device=elements.device)
    function = ne_of if invert else eq_of
    map_into_several((out,), function, [elements, test_element], [common] * 2, rounds_numbers=True)
    return out


def number_isin(
    element: float,
    test_elements: torch.Tensor,
    *,
    assume_unique: bool = False,  # noqa: ARG001 - As above.
    invert: bool = False,
) -> torch.Tensor:
    """Whether a number is, or is not, among ``test_elements``."""
    return all_default(ne(test_elements, element)) if invert else any_default(eq(test_elements, element))
