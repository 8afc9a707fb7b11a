"""Speed scores, each under the convention that it was published with.

The same speedups give very different headlines, depending on what a failure counts as and on what
is divided by. So every score here says both. ``K`` and ``E`` are scored apart, never mixed: the
names end in ``_k`` or ``_e``.

An op's speedup is the geometric mean over its timed cases; a speedup is reference time over
candidate time, so more than 1 is faster than eager.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from opsmith.core.run import Score

#: Speedup thresholds of ``perf@p`` and ``fast_p``.
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)


@dataclass(frozen=True, kw_only=True)
class TimedOp:
    """One op as the speed scores see it, for one quantity.

    Attributes:
        answered: a kernel was found.
        correct: it passes every case.
        failed: cases that did not pass.
        speedups: (speedup, occurrences in the suite) of each timed case.
    """

    answered: bool
    correct: bool
    failed: int
    speedups: tuple[tuple[float, int], ...]

    @property
    def speedup(self) -> float | None:
        """The op's speedup; None where nothing was timed."""
        return geometric_mean([speedup for speedup, _ in self.speedups]) if self.speedups else None

    @property
    def speedup_failures_as_one(self) -> float | None:
        """The op's speedup when every failed case counts as 1.0; None where nothing was timed or failed."""
        speedups = [speedup for speedup, _ in self.speedups] + [1.0] * self.failed
        return geometric_mean(speedups) if speedups else None


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of at least one positive number, independent of their order."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def speed_scores(ops: Sequence[TimedOp], quantity: str) -> dict[str, Score]:
    """Every speed score of one quantity, over all ops asked; none at all where nothing was timed.

    Args:
        ops: every op asked, answered or not.
        quantity: ``K`` or ``E``.
    """
    if not any(op.speedups for op in ops):
        return {}
    scores = _over_correct_ops(ops) | _thresholds(ops) | _failures_counted(ops)
    return {f"{name}_{quantity.lower()}": score for name, score in scores.items()}


def _over_correct_ops(ops: Sequence[TimedOp]) -> dict[str, Score]:
    timed = [op for op in ops if op.correct and op.speedups]
    if not timed:
        return {}
    speedups = [op.speedup for op in timed if op.speedup is not None]
    cases = [case for op in timed for case in op.speedups]
    occurrences = sum(count for _, count in cases)
    log_sum = math.fsum(count * math.log(speedup) for speedup, count in cases)
    return {
        "geomean": Score(
            value=geometric_mean(speedups),
            denominator=len(timed),
            convention="correct ops that were timed; geometric mean, failures left out",
        ),
        "median": Score(
            value=statistics.median(speedups),
            denominator=len(timed),
            convention="correct ops that were timed; median, failures left out",
        ),
        "geomean_count_weighted": Score(
            value=math.exp(log_sum / occurrences),
            denominator=occurrences,
            convention="occurrences of the timed cases of correct ops; geometric mean weighted by occurrences",
        ),
    }


def _thresholds(ops: Sequence[TimedOp]) -> dict[str, Score]:
    answered = sum(op.answered for op in ops)
    scores: dict[str, Score] = {}
    for p in THRESHOLDS:
        faster = sum(_is_faster(op, p) for op in ops)
        scores[f"perf@{p:g}"] = Score(
            value=faster / answered,
            denominator=answered,
            convention=f"ops answered; the share that is correct with a speedup above {p:g}",
        )
        scores[f"fast_{p:g}"] = Score(
            value=faster / len(ops),
            denominator=len(ops),
            convention=f"ops asked; the share that is correct with a speedup above {p:g}",
        )
    return scores


def _is_faster(op: TimedOp, p: float) -> bool:
    """Whether the op is correct with a speedup above ``p``.

    Any speedup exceeds 0, so a correct op that could not be timed counts there and nowhere else.
    """
    return op.correct and (p == 0 if op.speedup is None else op.speedup > p)


def _failures_counted(ops: Sequence[TimedOp]) -> dict[str, Score]:
    as_one = [op.speedup_failures_as_one for op in ops if op.answered]
    known = [speedup for speedup in as_one if speedup is not None]
    floored = [max(1.0, op.speedup) if op.correct and op.speedup is not None else 1.0 for op in ops]
    return {
        "geomean_failures_as_one": Score(
            value=geometric_mean(known),
            denominator=len(known),
            convention="ops answered that were timed or failed; geometric mean, a failed case counted as 1.0",
        ),
        "geomean_floored_at_one": Score(
            value=geometric_mean(floored),
            denominator=len(floored),
            convention="ops asked; geometric mean, an op that is slower, wrong, missing or untimed counted as 1.0",
        ),
    }
