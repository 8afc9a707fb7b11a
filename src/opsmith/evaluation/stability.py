"""Where eager does not agree with itself: which elements of a result its own repetitions explain."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import torch

from opsmith.core.case import OutputTensor
from opsmith.evaluation.comparisons.leaves import near_the_work
from opsmith.evaluation.inputs import element_bytes, tensor_from_bytes

#: How often eager is repeated when a candidate differs from it.
REPETITIONS = 16
#: Repetitions of eager that differ by more than this share of 1 + |value| read unwritten memory.
UNSTABLE = 0.05


def stabilised(mine: OutputTensor, other: OutputTensor, again: Sequence[OutputTensor]) -> OutputTensor:
    """The candidate's result with eager's elements where the difference is eager's own."""
    if all(each.data == mine.data for each in again):
        return other  # As nearly always, it has none.
    expected = tensor_from_bytes(mine.data, mine.dtype, mine.shape)
    repeated = [tensor_from_bytes(o.data, o.dtype, o.shape) for o in again if o.shape == mine.shape]
    if not repeated or expected.is_complex() or expected.dtype is torch.bool:
        return other
    got = tensor_from_bytes(other.data, other.dtype, other.shape)
    # Differences of half precision are exact in single, and half as large to hold.
    wide = torch.float32 if expected.dtype in (torch.float16, torch.bfloat16) else torch.float64
    stacked = torch.stack([near_the_work(each) for each in repeated]).to(wide)
    excused = _excused(near_the_work(expected).to(wide), near_the_work(got).to(wide), stacked).cpu()
    if not bool(excused.any()):
        return other
    return msgspec.structs.replace(other, data=element_bytes(torch.where(excused, expected, got)))


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
