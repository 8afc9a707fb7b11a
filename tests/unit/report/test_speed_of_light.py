"""The roofline conventions: SOL scores and achieved rates."""

from __future__ import annotations

import pytest
from tests.report_runs import timing

from opsmith.core.timing import Ceilings, Work
from opsmith.report.conventions import TimedOp, speed_scores
from opsmith.report.speed_of_light import gap_closed, rate_scores, sol_score

CEILINGS = Ceilings(
    device="H200", copy_gbps=4000.0, matmul_tflops={"bf16": 800.0}, l2_bytes=1, measured_utc="", torch="2.13"
)


@pytest.mark.parametrize(
    ("candidate", "score", "gap"),
    [(10.0, 1.0, 1.0), (20.0, 0.5, 0.0), (30.0, 1 / 3, -1.0), (15.0, 2 / 3, 0.5), (9.0, 1.0, 1.0)],
)
def test_the_score_is_one_at_the_speed_of_light_and_a_half_at_the_baseline(
    candidate: float, score: float, gap: float
) -> None:
    """As SOL-ExecBench defines it; what is faster than the bound is at the bound."""
    assert pytest.approx(score) == sol_score(candidate, 20.0, 10.0)
    assert pytest.approx(gap) == gap_closed(candidate, 20.0, 10.0)


@pytest.mark.parametrize(("candidate", "score"), [(10.0, 1.0), (11.0, 0.0)])
def test_a_baseline_at_the_speed_of_light_leaves_no_gap(candidate: float, score: float) -> None:
    """Nothing is divided by zero."""
    assert score == sol_score(candidate, 10.0, 10.0)
    assert gap_closed(candidate, 10.0, 10.0) is None


def op(*percents: float | None, correct: bool = True, speedup: float = 2.0) -> TimedOp:
    """An op whose timed cases have these percentages of their bounds."""
    timings = tuple((timing(speedup, percent_of_floor=percent), 1) for percent in percents)
    return TimedOp(answered=True, correct=correct, failed=0 if correct else 1, timings=timings)


def test_wrong_ops_score_nothing_and_those_without_a_bound_are_left_out() -> None:
    """At a speedup of 2 and half of the bound a quarter of the baseline's time is light: 1 / (1 + 1 / 3)."""
    found = speed_scores([op(50.0), op(50.0, correct=False), op(None)], "K")
    assert pytest.approx(0.75 / 2) == found["sol_score_k"].value
    assert 2 == found["sol_score_k"].denominator
    assert pytest.approx(2 / 3) == found["gap_closed_k"].value
    assert 1 == found["gap_closed_k"].denominator
    assert "0.5 at eager" in found["sol_score_k"].convention
    assert "sol_score_k" not in speed_scores([op(None), op(None, correct=False)], "K")


def test_rates_are_of_copies_and_of_products_apart() -> None:
    """A product's bytes say nothing about it, and a copy does no arithmetic."""
    moved = Work(least_bytes=1, traffic_bytes=2_000_000)
    product = Work(least_bytes=1, traffic_bytes=10**9, matmul_flops=4 * 10**9, matmul_dtype="bf16")
    one = timing(1.0)
    found = rate_scores([(one, moved), (one, product)], CEILINGS)
    gbps, tflops = 2_000_000 / one.candidate_us / 1e3, 4e9 / one.candidate_us / 1e6
    assert pytest.approx((gbps, tflops)) == (found["gbps"].value, found["tflops"].value)
    assert pytest.approx(100 * gbps / 4000) == found["percent_of_peak_gbps"].value
    assert pytest.approx(100 * tflops / 800) == found["percent_of_peak_tflops"].value


def test_without_ceilings_there_are_rates_and_no_peaks() -> None:
    """And nothing at all where no work is known."""
    found = rate_scores([(timing(1.0), Work(least_bytes=1, traffic_bytes=8))], None)
    assert ["gbps"] == list(found)
    assert {} == rate_scores([], CEILINGS)
