"""Results in formats of 8 bits and fewer: each within a step of eager's, and few of them off by one.

A step is what one rounding moves a number by: 12.5 % in E4M3, 25 % in E5M2, 50 % in E2M1. Two right kernels differ by
it where what they round lies next to the middle of two numbers, which is rare. A kernel that rounds in another way, or
computes in too low a precision before, is off by a step in a large share of all places.
"""

from __future__ import annotations

import torch

from opsmith.aten.low_precision import FORMATS, dequantized, places
from opsmith.evaluation.comparisons import value
from opsmith.evaluation.criteria.judged_call import Finding
from opsmith.evaluation.criteria.results import near_the_work, position, wrong
from opsmith.evaluation.criteria.tolerance import Tolerance

#: Times the numbers that a format has to a factor of two: the share of elements that may be a step off. It is what two
#: roundings to bfloat16 on the way move: one in 16 in E4M3, one in 64 in E2M1. Truncation moves half of all.
ROUNDED_BEFORE = 2.0**-7
#: And how many may be in any case.
FEW_OFF = 2


def compare(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance, *, counted: bool) -> Finding:
    """Compare one result of the same shape and dtype on both sides.

    Args:
        expected: eager's result, of one of the formats.
        got: the kernel's.
        tolerance: a step of the format, or what another convention grants.
        counted: whether the share of elements that differ counts.
    """
    ours, theirs = (near_the_work(dequantized(side)) for side in (expected, got))
    finding = value.compare(ours, theirs, tolerance, lambda: None)
    if not finding.passed or not counted:
        return finding
    name = str(expected.dtype).removeprefix("torch.")
    steps = (places(near_the_work(expected)) - places(near_the_work(got))).abs()
    steps = steps.masked_fill(ours.isnan() & theirs.isnan(), 0)  # Some formats have two.
    off, far = int(torch.count_nonzero(steps)), int(torch.count_nonzero(steps > 1))
    if far:
        worst = int(steps.argmax())
        return wrong(
            f"{far} of {ours.numel()} elements are more than a step of {name} off; worst at "
            f"{position(worst, ours.shape)}: expected {ours.flatten()[worst].item():.9g}, "
            f"got {theirs.flatten()[worst].item():.9g}",
            finding.figures,
        )
    most = max(FEW_OFF, int(ROUNDED_BEFORE / (FORMATS[expected.dtype].step or 1) * ours.numel()))
    if off <= most:
        return finding
    return wrong(
        f"{off} of {ours.numel()} elements are a step of {name} off, {most} at most come of other roundings before",
        finding.figures,
    )
