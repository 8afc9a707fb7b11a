"""Where eager does not agree with itself: which elements of a result its own repetitions explain."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from opsmith.aten.low_precision import is_low
from opsmith.evaluation.criteria.results import bits_of, near_the_work

#: How often eager is repeated when a candidate differs from it.
REPETITIONS = 16
#: Repetitions of eager that differ by more than this share of 1 + |value| read unwritten memory.
UNSTABLE = 0.05


def stabilised(expected: torch.Tensor, got: torch.Tensor, repeated: Sequence[torch.Tensor]) -> torch.Tensor | None:
    """The candidate's result with eager's elements where the difference is eager's own; None where that is nowhere.

    Args:
        expected: eager's result.
        got: the candidate's, of the same shape and dtype.
        repeated: eager's other results, at least two of them, likewise.
    """
    if expected.is_complex() or expected.dtype is torch.bool or is_low(expected):
        return None
    expected, got = near_the_work(expected), near_the_work(got)
    # Differences of half precision are exact in single, and half as large to hold.
    wide = torch.float32 if expected.dtype in (torch.float16, torch.bfloat16) else torch.float64
    stacked = torch.stack([near_the_work(each).to(wide) for each in repeated])
    excused = _excused(expected.to(wide), got.to(wide), stacked)
    if not bool(excused.any()):
        return None
    return torch.where(excused, bits_of(expected), bits_of(got)).view(expected.dtype)


def _excused(expected: torch.Tensor, got: torch.Tensor, repeated: torch.Tensor) -> torch.Tensor:
    """Elements whose distance from ``expected`` eager's own repetitions ``[R, *shape]`` explain.

    The bound is a multiple of what the repetitions spread over, at the element and over all that
    vary. The multiple is twice what it takes to let each repetition pass by the spread of the
    others: sums by atomic additions in half precision have long tails.
    """
    distance = (repeated - expected).abs()
    same = ((repeated == expected) | (repeated.isnan() & expected.isnan())).all(0)
    # Nobody wrote what differs by this much, or is a number here and a NaN there.
    unwritten = ~same & ~(distance.amax(0) <= UNSTABLE * (1 + expected.abs()))
    distance = torch.where(same | unwritten, 0.0, distance)
    largest, second = distance.topk(2, dim=0).values
    varying = largest[largest > 0]
    if not varying.numel():
        return unwritten
    common = varying.square().mean().sqrt()
    of_others = torch.where(distance == largest, second, largest)
    multiple = max(4.0, 2 * float((distance / (of_others + common)).amax()))
    # Also where all of them agree: what came out in one order 17 times may yet come out in another.
    explained: torch.Tensor = (got - expected).abs() <= multiple * (largest + common)
    return unwritten | explained
