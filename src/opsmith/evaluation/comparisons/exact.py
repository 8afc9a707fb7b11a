"""Results that have one right answer, bit for bit: integers, bools, copies, selections, views.

NaN equals NaN whatever its payload, and -0.0 equals 0.0 unless an op keeps signs.
"""

from __future__ import annotations

import torch

from opsmith.aten.low_precision import readable
from opsmith.core.verdict import ErrorFigures, Status
from opsmith.evaluation.criteria.judged_call import Finding, Result
from opsmith.evaluation.criteria.results import PASSED, as_tensor, near_the_work, position, wrong


def compare(reference: Result, candidate: Result, *, keeps_signs: bool = False) -> Finding:
    """Compare one result of the same shape and dtype on both sides; zeros with their signs if ``keeps_signs``."""
    expected, got = as_tensor(reference), as_tensor(candidate)
    if expected is None or got is None:
        return PASSED if reference == candidate else wrong(f"expected {reference!r}, got {candidate!r}")
    expected, got = _comparable(near_the_work(expected)), _comparable(near_the_work(got))
    keeps_signs = keeps_signs and expected.is_floating_point()
    if torch.equal(expected, got) and not keeps_signs:
        return Finding(status=Status.PASSED, figures=_figures(expected.numel(), 0))
    differs = different(expected, got)
    if keeps_signs:
        differs |= (expected == 0) & (got == 0) & (expected.signbit() != got.signbit())
    mismatched = int(torch.count_nonzero(differs))
    if mismatched == 0:
        return Finding(status=Status.PASSED, figures=_figures(expected.numel(), 0))
    first = int(differs.flatten().to(torch.uint8).argmax())
    detail = (
        f"{mismatched} of {expected.numel()} elements differ where only equality is right; first at "
        f"{position(first, expected.shape)}: expected {expected.flatten()[first].item()}, "
        f"got {got.flatten()[first].item()}"
    )
    return wrong(detail, _figures(expected.numel(), mismatched, expected, got))


def _comparable(tensor: torch.Tensor) -> torch.Tensor:
    """Formats of 8 bits and complex32 have no comparison of their own; widening them loses nothing."""
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else readable(tensor)


def different(expected: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """Where two tensors of one shape differ, NaN being equal to NaN."""
    differs = expected != got
    if expected.is_floating_point() or expected.is_complex():
        differs &= ~(expected.isnan() & got.isnan())
    return differs


def _figures(
    elements: int, mismatched: int, expected: torch.Tensor | None = None, got: torch.Tensor | None = None
) -> ErrorFigures:
    max_abs = max_rel = 0.0
    if expected is not None and got is not None:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        expected, got = expected.to(wide), got.to(wide)
        distance = (expected - got).abs()
        max_abs = distance.nan_to_num(0.0, 0.0, 0.0).max().item()
        max_rel = (distance / expected.abs()).nan_to_num(0.0, 0.0, 0.0).max().item()
    return ErrorFigures(max_abs=max_abs, max_rel=max_rel, mismatched=mismatched, elements=elements, rtol=0.0, atol=0.0)
