"""Run against run: what got right, what broke, and what got faster.

Cases are matched by op and address, so two runs of one suite compare even when their seeds
differ. Module problems are compared by level as well. Where device, torch, suite or the way of timing are not the
same, ``differences`` says so: a change of speed is then not one of the kernel alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from opsmith.core.problems import counting_order
from opsmith.core.run import LevelScores, Options
from opsmith.core.verdict import Status
from opsmith.report.levels import ALL
from opsmith.report.outcome import outcome
from opsmith.report.results import Results
from opsmith.report.speed_changes import ChangedSpeed, changed_speeds


class ChangedCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case that has another status; None where a run has no verdict for it."""

    op: str
    case: str
    before: Status | None
    after: Status | None


class ChangedOp(msgspec.Struct, frozen=True, kw_only=True):
    """An op that has another outcome; None where a run does not ask it."""

    op: str
    before: str | None
    after: str | None


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """What changed from one run to another.

    Attributes:
        before: the first run's directory.
        after: the other run's directory.
        differences: what is not the same about the two runs, one line each.
        ops: ``asked``, ``answered`` and ``correct`` as [before, after].
        cases: ``asked`` and ``passed`` as [before, after].
        gained: ops that are correct now and were not.
        lost: ops that were correct and are not any more.
        changed: other ops whose outcome changed, still not correct.
        changed_cases: every case whose status changed.
        speeds: every op of which both runs timed a case, by quantity, slowest change first.
        levels: of module problems, the scores of each level as [before, after]; None where a run does not ask it.
        void: the module problems that ask nothing, by name with the reason, as [before, after]; in no other figure.
    """

    before: str
    after: str
    differences: tuple[str, ...]
    ops: dict[str, tuple[int, int]]
    cases: dict[str, tuple[int, int]]
    gained: tuple[ChangedOp, ...]
    lost: tuple[ChangedOp, ...]
    changed: tuple[ChangedOp, ...]
    changed_cases: tuple[ChangedCase, ...]
    speeds: tuple[ChangedSpeed, ...]
    levels: dict[str, tuple[LevelScores | None, LevelScores | None]] = {}
    void: tuple[dict[str, str], dict[str, str]] = ({}, {})


def compare(before: Results, after: Results) -> Comparison:
    """Compare two runs, finished or not."""
    changed = _changed_ops(before, after)
    return Comparison(
        before=str(before.path),
        after=str(after.path),
        differences=tuple(_differences(before, after)),
        ops={name: (before.summary.ops[name], after.summary.ops[name]) for name in before.summary.ops},
        cases={name: (before.summary.cases[name], after.summary.cases[name]) for name in before.summary.cases},
        gained=tuple(op for op in changed if op.after == Status.PASSED),
        lost=tuple(op for op in changed if op.before == Status.PASSED),
        changed=tuple(op for op in changed if Status.PASSED not in {op.before, op.after}),
        changed_cases=_changed_cases(before, after),
        speeds=tuple(sorted(changed_speeds(before, after), key=lambda speed: (speed.quantity, speed.ratio, speed.op))),
        levels={level: (old, new) for level, (old, new) in scores_by_level([before, after]).items()},
        void=(before.summary.void, after.summary.void),
    )


def scores_by_level(runs: Sequence[Results]) -> dict[str, list[LevelScores | None]]:
    """Level -> its scores in each run; None where a run does not ask it. What all runs found together comes last."""
    found = [{scores.level: scores for scores in run.summary.levels} for run in runs]
    names = sorted({name for levels in found for name in levels}, key=lambda name: (name == ALL, counting_order(name)))
    return {name: [levels.get(name) for levels in found] for name in names}


def _differences(before: Results, after: Results) -> Iterable[str]:
    facts: dict[str, Callable[[Results], str]] = {
        "suite": lambda results: results.manifest.options.suite,
        "dtypes": lambda results: ", ".join(results.manifest.options.dtypes),
        "timed": lambda results: _method(results.manifest.options),
        "tolerance": lambda results: results.manifest.options.tolerance,
        "layout": lambda results: results.manifest.options.layout,
        "policy": lambda results: results.manifest.options.policy,
        "integrity": lambda results: results.manifest.options.integrity,
        "device": lambda results: results.manifest.environment.device_name,
        "torch": lambda results: results.manifest.environment.torch,
        "triton": lambda results: results.manifest.environment.triton or "none",
    }
    for name, fact in facts.items():
        if fact(before) != fact(after):
            yield f"{name}: {fact(before)} before, {fact(after)} after"


def _method(options: Options) -> str:
    return f"{options.timing} against {options.baseline}, caches {'warm' if options.warm else 'cold'}"


def _changed_ops(before: Results, after: Results) -> list[ChangedOp]:
    old, new = (outcomes(run) for run in (before, after))
    return [
        ChangedOp(op=name, before=old.get(name), after=new.get(name))
        for name in sorted(old.keys() | new.keys())
        if old.get(name) != new.get(name)
    ]


def outcomes(run: Results) -> dict[str, str]:
    """Task -> its word, void problems among them."""
    found = {name: outcome(op) for name, op in run.summary.per_op.items()}
    return found | dict.fromkeys(run.summary.void, Status.VOID)


def _changed_cases(before: Results, after: Results) -> tuple[ChangedCase, ...]:
    old, new = ({(verdict.op, verdict.case): verdict.status for verdict in run.verdicts} for run in (before, after))
    return tuple(
        ChangedCase(op=key[0], case=key[1], before=old.get(key), after=new.get(key))
        for key in sorted(old.keys() | new.keys())
        if old.get(key) != new.get(key)
    )
