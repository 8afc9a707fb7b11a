"""The scores of a run: pure functions of what was asked and what was found.

The denominators come from the plan, never from the verdicts, so that a missing, crashed or
unsupported op counts as not correct.

A module problem that is void is in none of them. One that could not be asked stays in them.

An op that has bad calls only is not among the ops asked: with no result to compare, a kernel that
raises on everything would be correct. Its bad calls count in ``error_cases`` all the same.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from opsmith.core.call_text import dtypes_in
from opsmith.core.dtypes import of_call
from opsmith.core.op import TaskKind
from opsmith.core.problems import counting_order, split_sample
from opsmith.core.run import ColumnResult, OpSummary, PlannedOp, RunManifest, RunPlan, Score, Summary, TimedCase
from opsmith.core.timing import Ceilings, Timing, Work
from opsmith.core.verdict import HELD_AGAINST, Part, Status, Verdict
from opsmith.errors import DamagedRun
from opsmith.report.column_scores import column_scores
from opsmith.report.conventions import TimedOp, count_labels, geometric_mean, speed_scores
from opsmith.report.levels import level_scores
from opsmith.report.outcome import outcome
from opsmith.report.strangers import one_line

#: Different reasons for which problems could not be asked, that notes tell.
MOST_REASONS = 3
#: Scores that count ops on one side of a threshold.
_SHARES = ("perf@", "fast_")


@dataclass
class Tally:
    """What the verdicts say about one op, added up.

    Attributes:
        statuses: verdicts by status, bad calls left out.
        bad_calls: the same for bad calls.
        variants: the same for variants of the suite's cases, which are counted apart.
        conduct: verdicts on the kernel as a whole, by status.
        fails: a verdict of any kind alone keeps the op from being accepted.
        is_wrong: a verdict of any kind but a declined call does.
        passed_in: dtype -> cases that passed.
        declined_in: dtypes of which it declines a case whose tensors are of that dtype.
        timings: quantity (``K`` or ``E``) -> (timing, occurrences) of each timed case.
        undecided: quantity -> cases that were timed and of which nothing can be said.
        first_calls_s: seconds of the first call of each timed case, where they are known.
        works: quantity -> (timing, what the call has to do) of each timed case of which that is known.
        void: why a model asks nothing, which eager's first call shows.
        derived: a verdict says that the functional kernel answered.
        layout_differs: verdicts that note a dense permutation of eager's layout.
    """

    statuses: Counter[Status] = field(default_factory=Counter)
    bad_calls: Counter[Status] = field(default_factory=Counter)
    variants: Counter[Status] = field(default_factory=Counter)
    conduct: Counter[Status] = field(default_factory=Counter)
    fails: bool = False
    is_wrong: bool = False
    passed_in: Counter[str] = field(default_factory=Counter)
    declined_in: set[str] = field(default_factory=set)
    timings: defaultdict[str, list[tuple[Timing, int]]] = field(default_factory=lambda: defaultdict(list))
    undecided: Counter[str] = field(default_factory=Counter)
    first_calls_s: list[float] = field(default_factory=list)
    works: defaultdict[str, list[tuple[Timing, Work]]] = field(default_factory=lambda: defaultdict(list))
    void: str | None = None
    derived: bool = False
    layout_differs: int = 0

    def add(self, verdict: Verdict) -> None:
        self.fails |= verdict.counts_against
        self.is_wrong |= verdict.counts_against and verdict.status is not Status.UNSUPPORTED
        if verdict.part is Part.CONDUCT:
            self.conduct[verdict.status] += 1
            return
        if verdict.part is Part.VARIANT:
            self.variants[verdict.status] += 1
            return
        if verdict.expects_error:
            self.bad_calls[verdict.status] += 1
            return
        self.statuses[verdict.status] += 1
        self.passed_in[verdict.dtype] += verdict.status is Status.PASSED
        if verdict.status is Status.UNSUPPORTED and of_call(dtypes_in(verdict.inputs)) <= {verdict.dtype}:
            self.declined_in.add(verdict.dtype)
        if verdict.status is Status.VOID:
            self.void = verdict.detail
        self.derived |= verdict.derived
        self.layout_differs += verdict.layout_differs
        for timing in verdict.timings:
            self.timings[timing.quantity].append((timing, verdict.count))
        self.undecided.update(one.quantity for one in verdict.undecided)

    def speedup(self, quantity: str) -> float | None:
        """The geometric mean over the timed cases; None where nothing was timed."""
        speedups = [timing.speedup for timing, _ in self.timings[quantity]]
        return geometric_mean(speedups) if speedups else None

    def labels(self, quantity: str) -> dict[str, int]:
        return count_labels((timing for timing, _ in self.timings[quantity]), self.undecided[quantity])

    @property
    def accepted_for(self) -> tuple[str, ...]:
        """See :class:`~opsmith.core.run.OpSummary`; all cases have a verdict."""
        if self.is_wrong or not self.fails:
            return ()
        return tuple(sorted(dtype for dtype in +self.passed_in if dtype not in self.declined_in))

    @property
    def percent_of_floor(self) -> float | None:
        """The median of K's, where one of them is known, else of E's."""
        for quantity in ("K", "E"):
            percents = [timing.percent_of_floor for timing, _ in self.timings[quantity]]
            if known := [percent for percent in percents if percent is not None]:
                return statistics.median(known)
        return None

    @property
    def rank_spread_us(self) -> float | None:
        """See :class:`~opsmith.core.run.OpSummary`."""
        spreads = [timing.candidate_spread for timing, _ in self.timings["E"]]
        known = [spread.first_us for spread in spreads if spread is not None]
        return statistics.median(known) if known else None


def summarise(
    manifest: RunManifest,
    plan: RunPlan,
    verdicts: Iterable[Verdict],
    timed_cases: Iterable[TimedCase] = (),
    columns: Iterable[ColumnResult] = (),
) -> Summary:
    """Score a run, finished or not.

    The result does not depend on the order of the verdicts, nor of the timed cases.

    Args:
        manifest: ``run.json``.
        plan: ``plan.json``.
        verdicts: with their timings.
        timed_cases: what else is known of those that were timed, one for a case.
        columns: of whole models what was found of each way to run them.

    Raises:
        DamagedRun: a verdict is about an op that the plan does not ask.
    """
    tallies = _tally(plan, verdicts)
    for timed in timed_cases:
        if timed.first_call_s is not None:
            tallies[timed.op].first_calls_s.append(timed.first_call_s)
        if timed.work is not None:
            for timing in timed.timings:
                tallies[timed.op].works[timing.quantity].append((timing, timed.work))
    settled = [_settled(planned, tallies[planned.op]) for planned in plan.ops]
    asked = [planned for planned in settled if planned.counts]
    void = {split_sample(planned.op)[0]: planned.void for planned in settled if planned.void is not None}
    per_op = {planned.op: _summarise_op(planned, tallies[planned.op]) for planned in asked}
    answered = [op for op in per_op.values() if op.answered]
    correct = sum(op.accepted for op in per_op.values())
    clean = not any(_count(tally, status) for tally in tallies.values() for status in HELD_AGAINST)
    statuses: Counter[Status] = sum((tallies[planned.op].statuses for planned in asked), Counter())
    return Summary(
        suite=manifest.options.suite,
        backend=manifest.options.backend,
        device=manifest.options.device,
        dtypes=manifest.options.dtypes,
        ops={"asked": len(asked), "answered": len(answered), "correct": correct},
        cases={"asked": sum(op.cases for op in per_op.values()), "passed": statuses[Status.PASSED]},
        error_cases=_add_bad_calls(plan, tallies),
        accepted=bool(answered) and correct == len(answered) and clean,
        per_op=per_op,
        scores=_scores(
            per_op,
            tallies,
            manifest.options.baseline,
            None if manifest.clock is None else manifest.clock.ceilings,
            is_itself=(manifest.options.backend, manifest.options.baseline) == ("aten", "eager"),
        ),
        statuses=_ordered(statuses),
        notes=(*manifest.notes, *_notes(manifest, plan)),
        levels=level_scores(per_op, manifest.options.baseline, void),
        columns=column_scores(plan, columns),
        policy=sum(outcome(op) == Status.POLICY for op in per_op.values()),
        void=dict(sorted(void.items(), key=lambda entry: counting_order(entry[0]))),
        accepted_for=_accepted_for(answered, manifest.options.dtypes),
    )


def _accepted_for(answered: Sequence[OpSummary], dtypes: Sequence[str]) -> tuple[str, ...]:
    """The dtypes of a run in which every op that was answered is accepted, if some are in no other."""
    if all(op.accepted for op in answered):
        return ()
    return tuple(dtype for dtype in dtypes if all(op.accepted or dtype in op.accepted_for for op in answered))


def _settled(planned: PlannedOp, tally: Tally) -> PlannedOp:
    """The plan of a task without those of its cases that turned out to ask nothing."""
    if planned.kind is not TaskKind.MODEL or tally.void is None:
        return planned
    cases = planned.cases - tally.statuses.pop(Status.VOID)
    return msgspec.structs.replace(planned, cases=cases, void=None if cases else tally.void)


def _tally(plan: RunPlan, verdicts: Iterable[Verdict]) -> dict[str, Tally]:
    tallies = {planned.op: Tally() for planned in plan.ops}
    for verdict in verdicts:
        if verdict.op not in tallies:
            raise DamagedRun(
                f"verdicts.jsonl judges {verdict.op}, which plan.json does not ask; judge again in a new run"
            )
        tallies[verdict.op].add(verdict)
    return tallies


def summarise_op(planned: PlannedOp, verdicts: Iterable[Verdict]) -> OpSummary:
    """Score one op by its verdicts, which carry their timings."""
    tally = Tally()
    for verdict in verdicts:
        tally.add(verdict)
    return _summarise_op(planned, tally)


def summarise_by_dtype(planned: PlannedOp, verdicts: Iterable[Verdict]) -> dict[str, OpSummary]:
    """Score one op's cases dtype by dtype, sorted; as many are planned as have a verdict.

    What is about the kernel as a whole counts in every dtype.
    """
    conduct: list[Verdict] = []
    found: defaultdict[str, list[Verdict]] = defaultdict(list)
    for verdict in verdicts:
        (conduct if verdict.part is Part.CONDUCT else found[verdict.dtype]).append(verdict)
    summaries = {}
    for dtype, of_dtype in sorted(found.items()):
        cases = [verdict.expects_error for verdict in of_dtype if verdict.part is Part.CASE]
        part = msgspec.structs.replace(planned, cases=cases.count(False), error_cases=cases.count(True))
        summaries[dtype] = summarise_op(part, [*of_dtype, *conduct])
    return summaries


def _summarise_op(planned: PlannedOp, tally: Tally) -> OpSummary:
    passed = tally.statuses[Status.PASSED]
    answered = planned.kernel is not None
    return OpSummary(
        accepted=answered and 0 < passed == planned.cases == tally.statuses.total() and not tally.fails,
        answered=answered,
        cases=planned.cases,
        passed=passed,
        statuses=_ordered(tally.statuses),
        error_cases={"asked": planned.error_cases, "raised": tally.bad_calls[Status.PASSED]},
        dishonest=_count(tally, Status.DISHONEST),
        policy=_count(tally, Status.POLICY),
        variants=_ordered(tally.variants),
        derived=tally.derived or (planned.kernel is not None and planned.kernel.derived_from is not None),
        layout_differs=tally.layout_differs,
        speedup_k=tally.speedup("K"),
        speedup_e=tally.speedup("E"),
        labels_k=tally.labels("K"),
        labels_e=tally.labels("E"),
        first_call_s=math.fsum(tally.first_calls_s) if tally.first_calls_s else None,
        percent_of_floor=tally.percent_of_floor,
        rank_spread_us=tally.rank_spread_us,
        dsl=planned.kernel.dsl if planned.kernel else None,
        task_kind=planned.kind,
        void=planned.void,
        not_asked=planned.not_asked,
        accepted_for=tally.accepted_for if answered and planned.cases == tally.statuses.total() else (),
    )


def _count(tally: Tally, status: Status) -> int:
    """Verdicts of a status, wherever they were found."""
    return sum(counted[status] for counted in (tally.statuses, tally.bad_calls, tally.variants, tally.conduct))


def _ordered(statuses: Mapping[Status, int]) -> dict[str, int]:
    """In the enum's order, whatever order the verdicts came in, so that equal runs have equal bytes."""
    return {status.value: statuses[status] for status in Status if statuses.get(status)}


def _add_bad_calls(plan: RunPlan, tallies: Mapping[str, Tally]) -> dict[str, int]:
    asked = sum(planned.error_cases for planned in plan.ops)
    return {"asked": asked, "raised": sum(tally.bad_calls[Status.PASSED] for tally in tallies.values())}


def _scores(
    per_op: Mapping[str, OpSummary],
    tallies: Mapping[str, Tally],
    baseline: str,
    ceilings: Ceilings | None,
    *,
    is_itself: bool,
) -> dict[str, Score]:
    if not per_op:
        return {}
    correct = sum(op.accepted for op in per_op.values())
    scores = {
        "correct_share": Score(
            value=correct / len(per_op),
            denominator=len(per_op),
            convention="ops asked; the share that passes every case, unanswered ops counted as not correct",
        )
    }
    for quantity in ("K", "E"):
        timed = [
            TimedOp(
                answered=op.answered,
                correct=op.accepted,
                failed=op.cases - op.passed,
                timings=tuple(tallies[name].timings[quantity]),
                undecided=tallies[name].undecided[quantity],
                works=tuple(tallies[name].works[quantity]),
            )
            for name, op in per_op.items()
        ]
        of_quantity = speed_scores(timed, quantity, baseline=baseline, ceilings=ceilings)
        # The reference beside itself is neither faster nor slower; which side of 1 it comes to lie on is chance.
        scores |= {name: score for name, score in of_quantity.items() if not (is_itself and name.startswith(_SHARES))}
    return scores


def _reasons(plan: RunPlan) -> Iterable[str]:
    """Why problems could not be asked, each reason once with the first problem that has it."""
    first: dict[str, str] = {}
    for planned in plan.ops:
        if planned.not_asked is not None:
            # Of a reason that differs by its place alone one is enough.
            first.setdefault(planned.not_asked.rpartition(": ")[2], f"{planned.op}: {planned.not_asked}")
    yield from [one_line(told) for told in first.values()][:MOST_REASONS]


def _notes(manifest: RunManifest, plan: RunPlan) -> Iterable[str]:
    if manifest.finished_utc is None:
        yield "the run is not finished: cases without a verdict count as not passed"
    if bad_calls_only := sum(not planned.cases and planned.not_asked is None for planned in plan.ops):
        ops = "1 further op has" if bad_calls_only == 1 else f"{bad_calls_only:,} further ops have"
        yield f"{ops} bad calls only; not among the ops asked"
    if not_asked := {split_sample(planned.op)[0] for planned in plan.ops if planned.not_asked is not None}:
        yield f"could not be asked, and counted as not correct: {', '.join(sorted(not_asked, key=counting_order))}"
        yield from _reasons(plan)
    if plan.skipped:
        entries = "1 sample" if len(plan.skipped) == 1 else f"{len(plan.skipped):,} samples"
        yield f"{entries} of the suite could not be turned into cases; plan.json has the reasons"
