"""Draws of categories by their weights, with and without replacement.

With replacement: each draw looks a uniform number up in the running sum of its row's weights, which is in float64, so
that the rounding of neighbouring sums does not give a category without weight a chance. Traffic: a sum of 8 bytes for
each weight, and ``log2(C)`` of them read for each draw.

Without replacement: a race. Category c arrives after an exponential time of rate ``weight[c]``, and the order of
arrival is that of draws one after another (Efraimidis and Spirakis, 2006). Speeds, the reciprocals of the times, are
sorted: a category without weight has the speed 0.

Suffixes: ``_C`` categories, ``_N`` rows, ``_S`` draws of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, pdl_prologue, require_served
from ..pointwise.exponentials import log_of
from ..scans.scans import cumsum
from ..sorting.sorting import topk
from .philox import COUNTER, draw_into, long_of, next_counter, source_for, unit_of, words_at

_BLOCK = 1024
#: What float32 can count to.
_MOST_CATEGORIES = 1 << 24


@triton.jit
def speed_of(unit: tl.tensor, weight: tl.tensor) -> tl.tensor:
    """The reciprocal of an exponential time of rate ``weight``."""
    return weight / -log_of(unit)


@triton.jit(do_not_specialize=COUNTER)
def lookup_kernel(
    out_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    seed_low: tl.tensor,
    seed_high: tl.tensor,
    count_low: tl.tensor,
    count_high: tl.tensor,
    N: tl.tensor,
    S: tl.tensor,
    C: tl.tensor,
    STEPS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[n, s]`` = the first category whose running sum exceeds ``u * sums[n, C - 1]``, by bisection."""
    pdl_prologue()
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < N * S
    w, x, _, _ = words_at(seed_low, seed_high, count_low, count_high, place)
    row_ptr = sums_ptr + place // S * C
    sought = unit_of(long_of(w, x)) * tl.load(row_ptr + C - 1, mask=inside, other=0)
    low, high = place * 0, place * 0 + C - 1
    for _ in tl.static_range(STEPS):
        middle = (low + high) // 2
        is_beyond = tl.load(row_ptr + middle, mask=inside, other=0) > sought
        low, high = tl.where(is_beyond | (low == high), low, middle + 1), tl.where(is_beyond, middle, high)
    tl.store(out_ptr + place, low, mask=inside)


def multinomial(
    self: torch.Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Indices of categories, ``num_samples`` for each row of weights, which need not add up to 1.

    What needs a look at the weights is not refused: negative ones, and too few that are positive.

    Args:
        self: weights of shape (C) or (N, C).
        num_samples: draws for each row.
        replacement: a category may be drawn again.
        generator: None stands for the device's own.

    Raises:
        ValueError: no such number of draws or of dimensions, or too many categories.
        TypeError: weights that are no floating-point numbers.
    """
    if not self.dtype.is_floating_point:
        raise TypeError(f"weights are floating-point numbers, not {self.dtype}")
    require_served(self, dtypes=FLOATS)
    if not 1 <= self.ndim <= 2:
        raise ValueError(f"weights have one or two dimensions, not {self.ndim}")
    categories = self.shape[-1]
    if num_samples <= 0 or not 0 < categories <= _MOST_CATEGORIES or (not replacement and num_samples > categories):
        raise ValueError(f"{num_samples} draws of {categories} categories are none that can be made")
    if replacement and num_samples > 1:
        return _with_replacement(self, num_samples, generator)
    dtype = torch.float64 if self.dtype == torch.float64 else torch.float32
    speeds = torch.empty(self.shape, dtype=dtype, device=self.device)
    draw_into((speeds,), source_for("open unit", dtype), speed_of, (self,), computed=self.dtype, generator=generator)
    return topk(speeds, num_samples)[1]


def _with_replacement(weights: torch.Tensor, draws: int, generator: torch.Generator | None) -> torch.Tensor:
    categories = weights.shape[-1]
    out = torch.empty((*weights.shape[:-1], draws), dtype=torch.int64, device=weights.device)
    if out.numel() == 0:
        return out
    sums = cumsum(weights, -1, dtype=torch.float64)
    block = min(triton.next_power_of_2(out.numel()), INTERPRETED_TILE) if INTERPRETED else _BLOCK
    launch(
        lookup_kernel,
        (triton.cdiv(out.numel(), block),),
        out.device,
        out,
        sums,
        *next_counter(generator, out.device),
        out.numel() // draws,
        draws,
        categories,
        STEPS=(categories - 1).bit_length(),
        BLOCK=block,
    )
    return out
