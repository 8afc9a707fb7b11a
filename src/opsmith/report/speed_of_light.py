"""Roofline conventions that people quote: SOL scores, and achieved rates against the device's peaks.

The speed of light of a case is the least time that its device needs for the work: the bound of ``percent_of_floor``,
from the ceilings that were measured on that device, not from a data sheet.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from opsmith.core.run import Score
from opsmith.core.timing import Ceilings, Timing, Work

if TYPE_CHECKING:
    from opsmith.report.conventions import TimedOp


def sol_score(candidate_us: float, baseline_us: float, light_us: float) -> float:
    """SOL-ExecBench's score: 1 at the speed of light, 0.5 at the baseline, towards 0 beyond it."""
    gap = baseline_us - light_us
    if gap <= 0:
        return 1.0 if candidate_us <= light_us else 0.0
    return 1 / (1 + max(candidate_us - light_us, 0.0) / gap)


def gap_closed(candidate_us: float, baseline_us: float, light_us: float) -> float | None:
    """The share of the way from the baseline to the speed of light; negative where it is slower than the baseline.

    None where there is no way.
    """
    gap = baseline_us - light_us
    return None if gap <= 0 else min((baseline_us - candidate_us) / gap, 1.0)


def light_scores(ops: Sequence[TimedOp], baseline: str) -> dict[str, Score]:
    """``sol_score`` and ``gap_closed`` of one quantity; none where no case has a bound.

    Args:
        ops: every op asked.
        baseline: what kernels were timed against, in words.
    """
    known = [(op, bounds) for op in ops if (bounds := list(_bounds(op))) or not op.correct]
    scored = [statistics.fmean(sol_score(*bound) for bound in bounds) if op.correct else 0.0 for op, bounds in known]
    if not any(bounds for _, bounds in known):
        return {}
    gaps = [gap_closed(*bound) for op, bounds in known if op.correct for bound in bounds]
    closed = [gap for gap in gaps if gap is not None]
    found = {
        "sol_score": Score(
            value=statistics.fmean(scored),
            denominator=len(scored),
            convention="ops asked, but for correct ones without a known bound; mean of SOL-ExecBench's score over the "
            f"timed cases of each, 0.5 at {baseline} and 1 at the roofline bound, 0 for an op that is not correct",
        )
    }
    if closed:
        found["gap_closed"] = Score(
            value=statistics.median(closed),
            denominator=len(closed),
            convention=f"timed cases of correct ops where {baseline} is slower than the roofline bound; median share "
            "of the gap between both that the kernel closes, failures left out",
        )
    return found


def _bounds(op: TimedOp) -> Iterable[tuple[float, float, float]]:
    """(candidate, baseline, speed of light) in microseconds of each timed case with a bound."""
    for timing, _ in op.timings:
        if timing.percent_of_floor is not None:
            yield timing.candidate_us, timing.reference_us, timing.candidate_us * timing.percent_of_floor / 100


def rate_scores(timed: Sequence[tuple[Timing, Work]], ceilings: Ceilings | None) -> dict[str, Score]:
    """Achieved GB/s and TFLOP/s, and both in percent of what the device was measured to reach.

    Args:
        timed: timed cases of correct ops whose work is known.
        ceilings: of the device; None: not measured.
    """
    copies = [(timing, work) for timing, work in timed if not work.matmul_flops]
    products = [(timing, work) for timing, work in timed if work.matmul_flops]
    copied = [work.traffic_bytes / timing.candidate_us / 1e3 for timing, work in copies]
    multiplied = [work.matmul_flops / timing.candidate_us / 1e6 for timing, work in products]
    peaks = {} if ceilings is None else ceilings.matmul_tflops
    of_products = [peaks.get(work.matmul_dtype or "") for _, work in products]
    of_copies: list[float | None] = [None if ceilings is None else ceilings.copy_gbps] * len(copies)
    return _rates(
        "gbps", "GB/s, unique bytes of arguments and results", "no matrix products", copied, of_copies
    ) | _rates("tflops", "TFLOP/s", "matrix products", multiplied, of_products)


def _rates(name: str, unit: str, which: str, rates: Sequence[float], peaks: Sequence[float | None]) -> dict[str, Score]:
    if not rates:
        return {}
    over = f"timed cases of correct ops that are {which}; median"
    found = {name: Score(value=statistics.median(rates), denominator=len(rates), convention=f"{over} of {unit}")}
    shares = [100 * rate / peak for rate, peak in zip(rates, peaks, strict=True) if peak]
    if shares:
        found[f"percent_of_peak_{name}"] = Score(
            value=statistics.median(shares),
            denominator=len(shares),
            convention=f"{over} of {unit}, in percent of the ceiling that was measured on the device",
        )
    return found
