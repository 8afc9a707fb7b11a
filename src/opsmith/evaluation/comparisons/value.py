"""Floating results: within a tolerance of eager's, else within the oracle's.

Elementwise, never by norm. An element passes only on ``<=``: a comparison with NaN is false, so
NaN never slips through. NaN is equal to NaN, and an infinity only to itself.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial

import torch

from opsmith.core.verdict import ErrorFigures, Status
from opsmith.evaluation.comparisons import exact
from opsmith.evaluation.criteria.judged_call import Finding, Result
from opsmith.evaluation.criteria.results import as_tensor, in_double, near_the_work, position, wrong
from opsmith.evaluation.criteria.tolerance import Tolerance
from opsmith.evaluation.oracle.error_bound import (
    CEILING,
    CEILING_WIDE,
    SLACK,
    SLACK_WIDE,
    TRUST,
    TRUST_WIDE,
    Opinion,
    half_a_step,
)

#: How far two orders of one sum are apart at most, in standard deviations of the walk that one takes. Of half a million
#: simulated sums of 2 to 2,048 terms the farthest two were 7.6 apart.
ORDER_SLACK = 6.0 * math.sqrt(2)
#: So many sums show in which type eager adds up. They come to 0.7 to 1.4 walks in the result's, and fewer in a wider.
ENOUGH_SUMS = 16
#: Of the magnitudes of a normal distribution.
MEDIAN_TO_RMS = 1.4826
_NARROW = (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2)


def compare(
    reference: Result,
    candidate: Result,
    tolerance: Tolerance,
    ask: Callable[[], Opinion | None],
    *,
    believed_within: float = 0.0,
) -> Finding:
    """Compare one result of the same shape and dtype on both sides.

    Args:
        reference: eager's result.
        candidate: the kernel's.
        tolerance: what is granted around eager's.
        ask: gives the oracle's opinion on this result; called only where the plain comparison fails.
        believed_within: so near to eager's result the oracle is believed in any case.
    """
    judge = partial(_appeal, tolerance=tolerance, believed_within=believed_within)
    expected, got = as_tensor(reference), as_tensor(candidate)
    if expected is None or got is None or not (expected.is_floating_point() or expected.is_complex()):
        if tolerance == (0.0, 0.0) or expected is None or got is None:
            return exact.compare(reference, candidate)
        expected, got = expected.double(), got.double()
    if expected.numel() == 0:
        return Finding(status=Status.PASSED, figures=_figures(0.0, 0.0, 0, 0, tolerance))
    expected, got = near_the_work(expected), near_the_work(got)
    wide_expected, wide_got = _widen(expected), _widen(got)
    distance = (wide_got - wide_expected).abs()
    magnitude = wide_expected.abs()
    max_abs = distance.max().item()  # NaN or inf if any element of either side is.
    if not math.isfinite(max_abs):
        return _compare_special(expected, got, tolerance, judge, ask)
    passed = distance <= magnitude.mul(tolerance.rtol).add_(tolerance.atol)
    max_rel = distance.div_(magnitude).nan_to_num_(0.0, 0.0, 0.0).max().item()
    elements = expected.numel()
    mismatched = elements - int(torch.count_nonzero(passed))
    if mismatched == 0:
        return Finding(status=Status.PASSED, figures=_figures(max_abs, max_rel, 0, elements, tolerance))
    return judge(expected, got, passed, (max_abs, max_rel), ask())


def _widen(tensor: torch.Tensor) -> torch.Tensor:
    """Half types in float32, where their difference is exact enough for any tolerance."""
    if tensor.dtype in _NARROW:
        return tensor.float()
    return tensor.to(torch.complex64) if tensor.dtype is torch.complex32 else tensor


def _figures(
    max_abs: float, max_rel: float, mismatched: int, elements: int, tolerance: Tolerance, excused: int = 0
) -> ErrorFigures:
    return ErrorFigures(
        max_abs=max_abs,
        max_rel=max_rel,
        mismatched=mismatched,
        elements=elements,
        rtol=tolerance.rtol,
        atol=tolerance.atol,
        oracle_excused=excused,
    )


def _compare_special(
    expected: torch.Tensor,
    got: torch.Tensor,
    tolerance: Tolerance,
    judge: Callable[..., Finding],
    ask: Callable[[], Opinion | None],
) -> Finding:
    """The slow way, for results with NaN or infinities on either side."""
    wide_expected, wide_got = in_double(expected), in_double(got)
    passed = _close(wide_expected, wide_got, wide_expected.abs() * tolerance.rtol + tolerance.atol)
    finite = torch.isfinite(wide_expected) & torch.isfinite(wide_got)
    distance = torch.where(finite, (wide_got - wide_expected).abs(), 0.0)
    limit = torch.finfo(torch.float64).max
    max_abs = distance.nan_to_num(0.0, limit, limit).max().item()
    max_rel = (distance / wide_expected.abs()).nan_to_num(0.0, 0.0, 0.0).max().item()
    mismatched = passed.numel() - int(torch.count_nonzero(passed))
    if mismatched == 0:
        return Finding(status=Status.PASSED, figures=_figures(max_abs, max_rel, 0, passed.numel(), tolerance))
    return judge(expected, got, passed, (max_abs, max_rel), ask())


def _close(expected: torch.Tensor, got: torch.Tensor, allowed: torch.Tensor) -> torch.Tensor:
    """Within ``allowed`` where ``expected`` is finite, the same special value where it is not.

    A complex number with one infinite or NaN part is compared part by part.
    """
    if expected.is_complex():
        parts = _close(torch.view_as_real(expected), torch.view_as_real(got), allowed.unsqueeze(-1)).all(-1)
        whole = torch.isfinite(expected) & ((got - expected).abs() <= allowed)
        return whole | (~torch.isfinite(expected) & parts) | (expected.isnan() & got.isnan())
    within = torch.isfinite(expected) & ((got - expected).abs() <= allowed)
    return within | (got == expected) | (expected.isnan() & got.isnan())


def _appeal(
    expected: torch.Tensor,
    got: torch.Tensor,
    passed: torch.Tensor,
    distances: tuple[float, float],
    opinion: Opinion | None,
    *,
    tolerance: Tolerance,
    believed_within: float,
) -> Finding:
    """Let the oracle excuse elements that are out of tolerance, and report what remains."""
    dtype, shape = expected.dtype, expected.shape
    expected, got = in_double(expected).flatten(), in_double(got).flatten()
    failed = (~passed.flatten()).nonzero().squeeze(1)
    allowed = expected.abs() * tolerance.rtol + tolerance.atol
    excused = 0
    if opinion is not None and opinion.value.shape == shape:
        accepted, around_oracle = _accept(expected, got, failed, dtype, tolerance, opinion, believed_within)
        excused = int(torch.count_nonzero(accepted))
        allowed[failed] = torch.maximum(allowed[failed], around_oracle)
        failed = failed[~accepted]
        if opinion.orders is not None and failed.numel():
            by_order, around_order = _accept_orders(expected, got, failed, dtype, tolerance, opinion)
            excused += int(torch.count_nonzero(by_order))
            allowed[failed] = torch.maximum(allowed[failed], around_order)
            failed = failed[~by_order]
    figures = _figures(*distances, failed.numel(), expected.numel(), tolerance, excused)
    if failed.numel() == 0:
        return Finding(status=Status.PASSED, figures=figures)
    excess = ((got[failed] - expected[failed]).abs() / allowed[failed]).nan_to_num(math.inf, math.inf)
    worst = int(failed[excess.argmax()])
    detail = (
        f"{failed.numel()} of {expected.numel()} elements are off; worst at {position(worst, shape)}: "
        f"expected {expected[worst].item():.9g}, got {got[worst].item():.9g}, "
        f"allowed +-{allowed[worst].item():.3g}"
    )
    return wrong(detail, figures)


def _accept(
    expected: torch.Tensor,
    got: torch.Tensor,
    failed: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
    opinion: Opinion,
    believed_within: float,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the ``failed`` elements the oracle accepts, and the error that it grants them."""
    truth = in_double(opinion.value).to(expected.device).flatten()
    unit = truth.abs() * tolerance.rtol + tolerance.atol
    unit = unit.clamp(min=half_a_step(dtype))
    if opinion.slack is not None:
        unit = unit + opinion.slack.to(expected.device).flatten()
    truth, expected, got = _at_the_edge(truth, expected, got, dtype, tolerance)
    trust, ceiling = TRUST.get(dtype, TRUST_WIDE), CEILING.get(dtype, CEILING_WIDE)
    eager_off = (expected - truth).abs() / unit
    comparable = eager_off[torch.isfinite(truth) & torch.isfinite(expected)]
    usual = comparable.clamp(max=trust).square().sum().div(max(comparable.numel(), 1)).sqrt()
    if bool((comparable > trust).any()):
        # Of errors without bound the mean square is that of the few largest.
        usual = MEDIAN_TO_RMS * comparable.median()
    scale = torch.maximum(eager_off[failed].nan_to_num(0.0, 0.0), usual)
    granted = unit[failed] * (SLACK.get(dtype, SLACK_WIDE) * scale).clamp(1.0, ceiling)
    truth, expected, got, eager_off = truth[failed], expected[failed], got[failed], eager_off[failed]
    # Where eager itself is no number there is nothing to be as bad as: one unit, no more.
    granted = torch.where(torch.isfinite(expected), granted, unit[failed])
    believed = (eager_off <= trust) | ~torch.isfinite(expected) | ((expected - truth).abs() <= believed_within)
    near = torch.isfinite(truth) & ((got - truth).abs() <= granted)
    if opinion.rounding is not None and bool((near & ~believed).any()):
        explained = opinion.rounding(dtype).to(expected.device).flatten()[failed]
        believed |= (expected - truth).abs() <= explained
    near &= believed
    same_special = ~torch.isfinite(truth) & _close(truth, got, unit[failed])
    return near | same_special, granted.nan_to_num(0.0, 0.0)


def _accept_orders(
    expected: torch.Tensor,
    got: torch.Tensor,
    failed: torch.Tensor,
    dtype: torch.dtype,
    tolerance: Tolerance,
    opinion: Opinion,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Which of the ``failed`` elements are another order of eager's sum, and by how much orders may be apart.

    If eager has rounded less than each addition in ``dtype`` would, then it adds in a wider type, and its order
    explains less. Terms may be more accurate than eager's before they are added up as roughly: then the sum is near
    float64's and not eager's.
    """
    walk = None if opinion.orders is None else opinion.orders()
    if walk is None:
        return torch.zeros_like(failed, dtype=torch.bool), torch.zeros_like(got[failed].abs())
    truth = in_double(opinion.value).to(expected.device).flatten()
    walk = walk.to(expected.device).flatten() * torch.finfo(dtype).eps
    steps = ((expected - truth).abs() / walk)[(walk > 0) & torch.isfinite(truth) & torch.isfinite(expected)]
    usual = float(steps.square().mean().sqrt()) if steps.numel() >= ENOUGH_SUMS else 1.0
    plain = expected[failed].abs() * tolerance.rtol + tolerance.atol
    apart = walk[failed] * (ORDER_SLACK * min(2.0 * usual, 1.0)) + plain
    off = torch.minimum((got[failed] - expected[failed]).abs(), (got[failed] - truth[failed]).abs())
    return off.isfinite() & (off <= apart), apart.nan_to_num(0.0, 0.0)


def _at_the_edge(
    truth: torch.Tensor, expected: torch.Tensor, got: torch.Tensor, dtype: torch.dtype, tolerance: Tolerance
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Bring float64's wider range down to the result's.

    A truth beyond the dtype's largest number is an infinity there. Within a tolerance of that
    edge both the infinity and the largest number are right.
    """
    if dtype.is_complex or dtype is torch.float64:
        return truth, expected, got
    largest = torch.finfo(dtype).max
    edge = (truth.abs() / largest - 1.0).abs() <= tolerance.rtol
    truth = torch.where((truth.abs() > largest) & ~edge, truth.sign() * math.inf, truth)
    saturated = [torch.where(edge, side.clamp(-largest, largest), side) for side in (truth, expected, got)]
    return saturated[0], saturated[1], saturated[2]
