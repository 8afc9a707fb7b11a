"""Results in formats of 8 bits and fewer: each number within a step of eager's, and few of them off by one."""

from __future__ import annotations

import torch

from opsmith.aten.low_precision import dequantized
from opsmith.evaluation.comparisons import value
from opsmith.evaluation.criteria.judged_call import Finding
from opsmith.evaluation.criteria.results import near_the_work, position, wrong
from opsmith.evaluation.criteria.steps import most_off, steps_off
from opsmith.evaluation.criteria.tolerance import Tolerance


def compare(expected: torch.Tensor, got: torch.Tensor, tolerance: Tolerance, *, counted: bool) -> Finding:
    """Compare one result of the same shape and dtype on both sides.

    Args:
        expected: eager's result, of one of the formats.
        got: the kernel's.
        tolerance: a step of the format, or what another convention grants.
        counted: whether steps are counted, and not only the tolerance.
    """
    expected, got = near_the_work(expected), near_the_work(got)
    ours, theirs = dequantized(expected), dequantized(got)
    finding = value.compare(ours, theirs, tolerance, lambda: None)
    if not finding.passed or not counted:
        return finding
    steps = steps_off(expected, got)
    name = str(expected.dtype).removeprefix("torch.")
    off, far = int(torch.count_nonzero(steps)), int(torch.count_nonzero(steps > 1))
    most = most_off(expected.dtype, steps.numel())
    if far:
        worst = int(steps.argmax())
        return wrong(
            f"{far} of {steps.numel()} elements are more than a step of {name} off; worst at "
            f"{position(worst, ours.shape)}: expected {ours.flatten()[worst].item():.9g}, "
            f"got {theirs.flatten()[worst].item():.9g}",
            finding.figures,
        )
    if off > most:
        return wrong(
            f"{off} of {steps.numel()} elements are a step of {name} off, {most} at most come of roundings before",
            finding.figures,
        )
    return finding
