"""What got faster between two runs, and how certain that is.

Speedups are each run's own, against the reference of the same run, so that what the machine did on each day cancels.
The ratio of two of them is taken case by case and averaged, its interval put together from theirs: cases are timed
independently, so the distances from the estimates to the ends of their intervals add up in quadrature (Zou and Donner,
"Construction of confidence limits about effect measures: a general approach", 2008).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import msgspec

from opsmith.core.timing import Timing
from opsmith.report.conventions import geometric_mean
from opsmith.report.outcome import Direction, direction
from opsmith.report.results import Results


class ChangedSpeed(msgspec.Struct, frozen=True, kw_only=True):
    """An op, or a module problem, of which both runs timed a case.

    Attributes:
        op: the task's name.
        quantity: ``K`` or ``E``.
        cases: that both runs timed; every figure but the directions is of these.
        before: geometric mean of their speedups in the first run.
        after: the same in the other one.
        before_us: geometric mean of the kernel's times in the first run.
        after_us: the same in the other one.
        ratio: after over before: more than 1 got faster.
        low: lower end of the interval on it.
        high: upper end.
        change: what that shows; ``neither`` where the interval holds 1, or the noise of both runs explains it.
        direction_before: where the first run's cases point with certainty, against its reference.
        direction_after: the same of the other run.
    """

    op: str
    quantity: str
    cases: int
    before: float
    after: float
    before_us: float
    after_us: float
    ratio: float
    low: float
    high: float
    change: Direction
    direction_before: Direction
    direction_after: Direction


class RatioInterval(NamedTuple):
    """An estimate of a ratio, and the interval on it."""

    ratio: float
    low: float
    high: float


def changed_speeds(before: Results, after: Results) -> Iterable[ChangedSpeed]:
    """Every task of which both runs timed a case, in each quantity."""
    for quantity in ("K", "E"):
        old, new = timed_cases(before, quantity), timed_cases(after, quantity)
        for name in sorted(old.keys() & new.keys()):
            if shared := sorted(old[name].keys() & new[name].keys()):
                pairs = [(old[name][case], new[name][case]) for case in shared]
                labels = [run.summary.per_op[name].labels(quantity) for run in (before, after)]
                yield _changed(name, quantity, pairs, labels)


def timed_cases(run: Results, quantity: str) -> Mapping[str, Mapping[str, Timing]]:
    """Task -> address of each timed case that passed -> its timing."""
    found: defaultdict[str, dict[str, Timing]] = defaultdict(dict)
    for verdict in run.verdicts:
        for timing in verdict.timings:
            if timing.quantity == quantity:
                found[verdict.op][verdict.case] = timing
    return found


def _changed(
    name: str, quantity: str, pairs: Sequence[tuple[Timing, Timing]], labels: Sequence[Mapping[str, int]]
) -> ChangedSpeed:
    interval = ratio_interval(pairs)
    noise = max(old.noise + new.noise for old, new in pairs)
    olds, news = zip(*pairs, strict=True)
    return ChangedSpeed(
        op=name,
        quantity=quantity,
        cases=len(pairs),
        before=geometric_mean([timing.speedup for timing in olds]),
        after=geometric_mean([timing.speedup for timing in news]),
        before_us=geometric_mean([timing.candidate_us for timing in olds]),
        after_us=geometric_mean([timing.candidate_us for timing in news]),
        ratio=interval.ratio,
        low=interval.low,
        high=interval.high,
        change=_change(interval, noise),
        direction_before=direction(labels[0]),
        direction_after=direction(labels[1]),
    )


def ratio_interval(pairs: Sequence[tuple[Timing, Timing]]) -> RatioInterval:
    """The geometric mean of the cases' ratios of speedups, after over before, and its interval."""
    centre = math.fsum(math.log(new.speedup / old.speedup) for old, new in pairs)
    below = math.fsum(_distance(new.speedup, new.low) + _distance(old.high, old.speedup) for old, new in pairs)
    above = math.fsum(_distance(new.high, new.speedup) + _distance(old.speedup, old.low) for old, new in pairs)
    low, high = centre - math.sqrt(below), centre + math.sqrt(above)
    return RatioInterval(*(math.exp(value / len(pairs)) for value in (centre, low, high)))


def _distance(upper: float, lower: float) -> float:
    return math.log(upper / lower) ** 2


def _change(interval: RatioInterval, noise: float) -> Direction:
    if interval.low > 1 and interval.ratio > 1 + noise:
        return Direction.FASTER
    if interval.high < 1 and interval.ratio < 1 / (1 + noise):
        return Direction.SLOWER
    return Direction.NEITHER
