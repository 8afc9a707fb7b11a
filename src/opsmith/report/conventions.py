"""Speed scores, each under the convention that it was published with.

The same speedups give very different headlines, depending on what a failure counts as and on what
is divided by. So every score here says both. ``K`` and ``E`` are scored apart, never mixed: the
names end in ``_k`` or ``_e``.

An op's speedup is the geometric mean over its timed cases; a speedup is reference time over
candidate time, so more than 1 is faster than eager, or than another baseline that the convention
then names.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from opsmith.core.run import Score
from opsmith.core.timing import Ceilings, Label, Timing, Work
from opsmith.report.speed_of_light import light_scores, rate_scores

#: Speedup thresholds of ``perf@p`` and ``fast_p``.
THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)

#: ``Options.baseline`` -> what kernels were timed against, in words.
BASELINES = {
    "eager": "eager",
    "compile": "torch.compile",
    "max-autotune": "torch.compile in mode max-autotune",
    "cudagraphs": "eager in a CUDA graph",
}

_LABEL_MEANINGS = {
    Label.FASTER: "faster beyond 1 %, the noise and the interval",
    Label.SLOWER: "slower beyond 1 %, the noise and the interval",
    Label.SAME: "the same within the bound of the timing mode",
    Label.UNDECIDED: "none of the other three",
}


@dataclass(frozen=True, kw_only=True)
class TimedOp:
    """One op as the speed scores see it, for one quantity.

    Attributes:
        answered: a kernel was found.
        correct: it passes every case.
        failed: cases that did not pass.
        timings: (timing, occurrences in the suite) of each timed case; identical cases are timed once.
        undecided: cases that were timed and of which nothing can be said.
        works: (timing, what the call has to do) of each timed case of which that is known.
    """

    answered: bool
    correct: bool
    failed: int
    timings: tuple[tuple[Timing, int], ...]
    undecided: int = 0
    works: tuple[tuple[Timing, Work], ...] = ()

    @property
    def speedups(self) -> list[float]:
        """Of each timed case, in no particular order."""
        return [timing.speedup for timing, _ in self.timings]

    @property
    def speedup(self) -> float | None:
        """The op's speedup; None where nothing was timed."""
        return geometric_mean(self.speedups) if self.timings else None

    @property
    def speedup_failures_as_one(self) -> float | None:
        """The op's speedup when every failed case counts as 1.0; None where nothing was timed or failed."""
        speedups = self.speedups + [1.0] * self.failed
        return geometric_mean(speedups) if speedups else None


def geometric_mean(values: Sequence[float]) -> float:
    """The geometric mean of at least one positive number, independent of their order."""
    return math.exp(math.fsum(map(math.log, values)) / len(values))


def count_labels(timings: Iterable[Timing], undecided: int = 0) -> dict[str, int]:
    """Label -> number of timings, those that occur, in the order of the enum.

    Args:
        timings: with a time.
        undecided: so many without one.
    """
    counts = Counter(timing.label for timing in timings)
    counts[Label.UNDECIDED] += undecided
    return {label.value: counts[label] for label in Label if counts[label]}


def speed_scores(
    ops: Sequence[TimedOp], quantity: str, *, baseline: str = "eager", ceilings: Ceilings | None = None
) -> dict[str, Score]:
    """Every speed score of one quantity, over all ops asked; none at all where nothing was timed.

    Args:
        ops: every op asked, answered or not.
        quantity: ``K`` or ``E``.
        baseline: what kernels were timed against, a key of :data:`BASELINES`.
        ceilings: of the device; None: not measured.
    """
    if not any(op.timings for op in ops):
        return {}
    scores = _over_correct_ops(ops) | _thresholds(ops) | _failures_counted(ops) | _shares_of_labels(ops)
    if baseline != "eager":
        scores = {name: _against(score, BASELINES[baseline]) for name, score in scores.items()}
    scores |= _rooflines(ops) | light_scores(ops, BASELINES[baseline])
    scores |= rate_scores([each for op in ops if op.correct for each in op.works], ceilings)
    return {f"{name}_{quantity.lower()}": score for name, score in scores.items()}


def _against(score: Score, baseline: str) -> Score:
    return msgspec.structs.replace(score, convention=f"{score.convention}; speedup over {baseline}")


def _over_correct_ops(ops: Sequence[TimedOp]) -> dict[str, Score]:
    timed = [op for op in ops if op.correct and op.timings]
    if not timed:
        return {}
    speedups = [geometric_mean(op.speedups) for op in timed]
    cases = [case for op in timed for case in op.timings]
    occurrences = sum(count for _, count in cases)
    log_sum = math.fsum(count * math.log(timing.speedup) for timing, count in cases)
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
        faster = sum(is_faster(op.speedup, p, correct=op.correct) for op in ops)
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


def is_faster(speedup: float | None, p: float, *, correct: bool) -> bool:
    """Whether something is correct with a speedup above ``p``: what ``perf@p`` and ``fast_p`` count.

    Any speedup exceeds 0, so what is correct and could not be timed (None) counts there and nowhere else.
    """
    return correct and (p == 0 if speedup is None else speedup > p)


def floored_at_one(speedup: float | None, *, correct: bool) -> float:
    """What somebody gets who uses a kernel only where it is correct and faster."""
    return max(1.0, speedup) if correct and speedup is not None else 1.0


def _failures_counted(ops: Sequence[TimedOp]) -> dict[str, Score]:
    as_one = [op.speedup_failures_as_one for op in ops if op.answered]
    known = [speedup for speedup in as_one if speedup is not None]
    floored = [floored_at_one(op.speedup, correct=op.correct) for op in ops]
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


def _shares_of_labels(ops: Sequence[TimedOp]) -> dict[str, Score]:
    labels = count_labels((timing for op in ops for timing, _ in op.timings), sum(op.undecided for op in ops))
    timed = sum(labels.values())
    return {
        label.value.lower(): Score(
            value=labels.get(label, 0) / timed,
            denominator=timed,
            convention=f"timed cases of all ops, each once; the share labelled {label}, {meaning}",
        )
        for label, meaning in _LABEL_MEANINGS.items()
    }


def _rooflines(ops: Sequence[TimedOp]) -> dict[str, Score]:
    """No baseline: the device's own ceilings are what is compared with."""
    known = [timing.percent_of_floor for op in ops for timing, _ in op.timings]
    percents = [percent for percent in known if percent is not None]
    if not percents:
        return {}
    return {
        "percent_of_floor": Score(
            value=statistics.median(percents),
            denominator=len(percents),
            convention="timed cases whose roofline bound is known; median of the least time that the device needs, in "
            "percent of the kernel's time",
        )
    }
