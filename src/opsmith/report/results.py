"""A run, read once: what the tables, the page and the exports are made from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from opsmith.core.run import ColumnResult, RunDirectory, RunManifest, RunPlan, Summary, TimedCase
from opsmith.core.verdict import ErrorFigures, Part, Status, Verdict
from opsmith.report.repro import repro_command
from opsmith.report.scores import summarise
from opsmith.report.strangers import one_line, printable
from opsmith.reviews.of_run import standings
from opsmith.reviews.records import Standing

#: Evidence is kept to this many characters a case.
EVIDENCE_CHARACTERS = 2_000


class FailingCase(msgspec.Struct, frozen=True, kw_only=True):
    """A case that did not pass, with its text made printable.

    Attributes:
        op: the op.
        case: the case's address.
        dtype: short dtype name.
        status: the outcome.
        detail: what is wrong, in one line.
        inputs: the arguments in one line.
        evidence: further lines, joined.
        figures: distance from the reference, where values were compared.
        remark: what sets it apart from the suite's cases; empty for one of them.
        alike: how many more failing cases of the op say the same word for word.
        repro: the command that judges the case again.
    """

    op: str
    case: str
    dtype: str
    status: Status
    detail: str
    inputs: str
    evidence: str
    figures: ErrorFigures | None
    remark: str
    repro: str
    alike: int = 0


@dataclass(frozen=True, kw_only=True)
class Results:
    """Everything about one run, in memory.

    Attributes:
        path: the run directory as it was named.
        manifest: ``run.json``.
        plan: ``plan.json``.
        verdicts: every verdict, in the order found.
        timed_cases: what else is known of the cases whose timings count, sorted by op and case.
        columns: of whole models what was found of each way to run them, in the order found.
        summary: the scores.
        reviews: op -> what people said of its kernel; empty where nobody did.
    """

    path: Path
    manifest: RunManifest
    plan: RunPlan
    verdicts: tuple[Verdict, ...]
    timed_cases: tuple[TimedCase, ...]
    columns: tuple[ColumnResult, ...]
    summary: Summary
    reviews: Mapping[str, Standing] = field(default_factory=dict)

    @classmethod
    def read(cls, run: RunDirectory) -> Results:
        """Read and score a run directory.

        Raises:
            BadInput: a file is missing or damaged (:class:`~opsmith.errors.DamagedRun`).
        """
        manifest, plan, verdicts = run.manifest(), run.plan(), tuple(run.verdicts())
        timed_cases = _that_count(run.timed_cases(), verdicts)
        columns = tuple(run.column_results())
        return cls(
            path=run.path,
            manifest=manifest,
            plan=plan,
            verdicts=verdicts,
            timed_cases=timed_cases,
            columns=columns,
            summary=summarise(manifest, plan, verdicts, timed_cases, columns),
            reviews=standings(run.path, manifest, plan),
        )

    @property
    def failing_parts(self) -> dict[str, int]:
        """What did not pass, by kind: cases, variants, bad calls, and conduct of kernels; only kinds that occur."""
        kinds = Counter(_part(verdict) for verdict in self.verdicts if verdict.is_failure)
        return {kind: kinds[kind] for kind in ("case", "variant", "bad call", "kernel's conduct") if kinds[kind]}

    @property
    def failing_count(self) -> int:
        """Cases that did not pass, bad calls included."""
        return sum(verdict.is_failure for verdict in self.verdicts)

    def failing(self, limit: int, *, each_once: bool = False) -> list[FailingCase]:
        """At most ``limit`` cases that did not pass, sorted by op.

        Every failing op gets its first case in before any op gets a second one, so that one op
        with thousands of failures does not hide the others. Likewise every status of an op.

        Args:
            limit: of cases.
            each_once: of an op's cases that say the same, as all do of a file that does not load, only the first.
        """
        met: dict[str, Counter[Status]] = {}
        alike: Counter[tuple[str, str, str]] = Counter()
        ranked: list[tuple[tuple[int, int], Verdict]] = []
        for verdict in self.verdicts:
            if verdict.is_failure:
                alike[_said(verdict)] += 1
                if each_once and alike[_said(verdict)] > 1:
                    continue
                statuses = met.setdefault(verdict.op, Counter())
                statuses[verdict.status] += 1
                ranked.append(((statuses[verdict.status], list(statuses).index(verdict.status)), verdict))
        kept = sorted(ranked, key=lambda entry: entry[0])[:limit]
        kept.sort(key=lambda entry: (entry[1].op, entry[0]))
        planned = {op.op: op for op in self.plan.ops}
        return [
            FailingCase(
                op=verdict.op,
                case=verdict.case,
                dtype=verdict.dtype,
                status=verdict.status,
                detail=one_line(verdict.detail),
                inputs=one_line(verdict.inputs),
                evidence=printable("\n".join(verdict.evidence), EVIDENCE_CHARACTERS),
                figures=verdict.figures,
                remark=_remark(verdict),
                repro=repro_command(self.path, self.manifest, planned[verdict.op], verdict),
                alike=alike[_said(verdict)] - 1 if each_once else 0,
            )
            for _, verdict in kept
        ]


def _that_count(timed_cases: Iterable[TimedCase], verdicts: Sequence[Verdict]) -> tuple[TimedCase, ...]:
    """Those whose timings, or why there are none, are in a verdict; of a case that was timed again the last one."""
    counting = {(verdict.case, verdict.kernel) for verdict in verdicts if verdict.timings or verdict.undecided}
    last = {(timed.case, timed.kernel): timed for timed in timed_cases if (timed.case, timed.kernel) in counting}
    return tuple(sorted(last.values(), key=lambda timed: (timed.op, timed.case)))


def _said(verdict: Verdict) -> tuple[str, str, str]:
    return verdict.op, verdict.status, verdict.detail


def _part(verdict: Verdict) -> str:
    if verdict.part is Part.CASE:
        return "bad call" if verdict.expects_error else "case"
    return "variant" if verdict.part is Part.VARIANT else "kernel's conduct"


def _remark(verdict: Verdict) -> str:
    if verdict.part is Part.CONDUCT:
        return "about the kernel as a whole"
    if verdict.part is Part.VARIANT:
        return f"a variant: {verdict.variant}; not among the cases"
    return "a bad call; not among the cases" if verdict.expects_error else ""
