"""Scores of module problems, level by level: fast_p, means as found and floored, pass@k.

``fast_p`` is the share of problems that are correct with a speedup above p (Ouyang and others, "KernelBench: Can LLMs
Write Efficient GPU Kernels?", 2025). ``pass@k`` is the chance that one of k samples is correct, estimated without bias
from n samples of which c are (Chen and others, "Evaluating Large Language Models Trained on Code", 2021).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterable, Mapping

from opsmith.core.op import TaskKind
from opsmith.core.problems import counting_order, level_of, split_sample
from opsmith.core.run import LevelScores, OpSummary, SpeedScores
from opsmith.core.verdict import Status
from opsmith.report.conventions import THRESHOLDS, floored_at_one, geometric_mean, is_faster
from opsmith.report.outcome import outcome

#: k of pass@k, as far as there are so many samples.
KS = (1, 2, 3, 5, 10, 20, 50, 100)
#: What the last line of the scores is called.
ALL = "all"

#: Problem -> its samples, by number; none where nobody answers.
Problems = Mapping[str, Mapping[int, OpSummary]]


def pass_at_k(samples: int, correct: int, k: int) -> float:
    """The chance that one of ``k`` samples is correct, where ``correct`` of ``samples`` are; ``k`` is at most those.

    It is one minus the share of the subsets of k samples that hold no correct one: 1 - C(n - c, k) / C(n, k).
    """
    return 1 - math.comb(samples - correct, k) / math.comb(samples, k)


def samples_by_problem(per_op: Mapping[str, OpSummary]) -> dict[str, dict[int, OpSummary]]:
    """The module problems of a run in counting order, each with its samples."""
    problems: dict[str, dict[int, OpSummary]] = {}
    for name in sorted(per_op, key=counting_order):
        if per_op[name].task_kind is TaskKind.MODULE:
            task, sample = split_sample(name)
            samples = problems.setdefault(task, {})
            if per_op[name].answered:
                samples[sample] = per_op[name]
    return problems


def correct_of(samples: Mapping[int, OpSummary]) -> int:
    """How many of a problem's samples are accepted."""
    return sum(sample.accepted for sample in samples.values())


def level_scores(per_op: Mapping[str, OpSummary], baseline: str, void: Collection[str] = ()) -> tuple[LevelScores, ...]:
    """Scores of every level in counting order, then of all; none for a run of ops.

    Args:
        per_op: what became of each task.
        baseline: of the run.
        void: problems that ask nothing; they are counted, and a level that has no others has no scores.
    """
    problems = samples_by_problem(per_op)
    levels: dict[str, Problems] = {}
    for level in dict.fromkeys(level_of(task) for task in problems):
        levels[level] = {task: samples for task, samples in problems.items() if level_of(task) == level}
    scores = [
        _of_level(level, of_level, baseline, sum(level_of(task) == level for task in void))
        for level, of_level in levels.items()
    ]
    return (*scores, _of_level(ALL, problems, baseline, len(void))) if scores else ()


def _of_level(level: str, problems: Problems, baseline: str, void: int) -> LevelScores:
    answered = [samples for samples in problems.values() if samples]
    fewest = min(map(len, answered), default=0)
    return LevelScores(
        level=level,
        problems=len(problems),
        answered=len(answered),
        samples=sum(map(len, answered)),
        correct=sum(map(correct_of, answered)),
        solved=sum(correct_of(samples) > 0 for samples in answered),
        void=void,
        policy=sum(outcome(sample) == Status.POLICY for samples in answered for sample in samples.values()),
        pass_at={
            str(k): math.fsum(pass_at_k(len(samples), correct_of(samples), k) for samples in answered) / len(problems)
            for k in KS
            if k <= fewest
        },
        speeds=tuple(
            [_speeds(problems, quantity, baseline) for quantity in ("K", "E") if _is_timed(answered, quantity)]
        ),
    )


def _is_timed(answered: Iterable[Mapping[int, OpSummary]], quantity: str) -> bool:
    return any(sample.speedup(quantity) is not None for samples in answered for sample in samples.values())


def _speeds(problems: Problems, quantity: str, baseline: str) -> SpeedScores:
    each = [[(sample.accepted, sample.speedup(quantity)) for sample in found.values()] for found in problems.values()]
    known = [[speedup for correct, speedup in found if correct and speedup is not None] for found in each]
    raw = [geometric_mean(speedups) for speedups in known if speedups]
    floored = [
        geometric_mean([floored_at_one(speedup, correct=correct) for correct, speedup in found] or [1.0])
        for found in each
    ]
    return SpeedScores(
        baseline=baseline,
        quantity=quantity,
        fast={
            f"{p:g}": math.fsum(
                sum(is_faster(speedup, p, correct=correct) for correct, speedup in found) / len(found)
                for found in each
                if found
            )
            / len(problems)
            for p in THRESHOLDS
        },
        timed=len(raw),
        geomean=geometric_mean(raw) if raw else None,
        median=statistics.median(raw) if raw else None,
        geomean_floored_at_one=geometric_mean(floored),
        median_floored_at_one=statistics.median(floored),
    )
