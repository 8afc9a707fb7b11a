"""Scores of a run of whole models, column by column: every way to run them against eager."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from opsmith.core.columns import EAGER
from opsmith.core.run import ColumnResult, ColumnSummary, RunPlan
from opsmith.core.timing import Timing, Undecided
from opsmith.core.verdict import Status
from opsmith.report.conventions import count_labels, geometric_mean


def column_scores(plan: RunPlan, results: Iterable[ColumnResult]) -> dict[str, ColumnSummary]:
    """Column -> its scores, in the order in which columns were judged; none for a run of ops.

    The denominator of every column is what the plan asks: a case that a column has no result of did not pass. A void
    case is in none.

    Args:
        plan: ``plan.json``.
        results: ``columns.jsonl``.
    """
    by_column: dict[str, list[ColumnResult]] = {}
    void: set[str] = set()
    for result in results:
        of_column = by_column.setdefault(result.column, [])
        if result.verdict.status is Status.VOID:
            void.add(result.verdict.case)
        else:
            of_column.append(result)
    asked = sum(planned.cases for planned in plan.ops) - len(void)
    eager_bytes = {one.verdict.case: one.peak_bytes for one in by_column.get(EAGER, ()) if one.peak_bytes}
    return {column: _summary(asked, found, eager_bytes) for column, found in by_column.items()}


def timings(results: Iterable[ColumnResult], quantity: str) -> list[Timing]:
    """The timings of one quantity, ``K`` or ``E``."""
    return [
        timing
        for result in results
        if result.timed is not None
        for timing in result.timed.timings
        if timing.quantity == quantity
    ]


def undecided(results: Iterable[ColumnResult], quantity: str) -> list[Undecided]:
    """Of one quantity, why nothing can be said though it was timed."""
    return [
        one
        for result in results
        if result.timed is not None
        for one in result.timed.undecided
        if one.quantity == quantity
    ]


def _summary(asked: int, found: Sequence[ColumnResult], eager_bytes: Mapping[str, int]) -> ColumnSummary:
    statuses = Counter(result.verdict.status for result in found)
    first_calls = [result.timed.first_call_s for result in found if result.timed is not None]
    known_first_calls = [seconds for seconds in first_calls if seconds is not None]
    graphs = [result.graphs for result in found if result.graphs is not None]
    memory = [
        result.peak_bytes / eager_bytes[result.verdict.case]
        for result in found
        if result.peak_bytes and result.verdict.case in eager_bytes
    ]
    of_k, of_e = timings(found, "K"), timings(found, "E")
    return ColumnSummary(
        cases=asked,
        passed=statuses[Status.PASSED],
        statuses={status.value: statuses[status] for status in Status if statuses[status]},
        speedup_k=_geomean([timing.speedup for timing in of_k]),
        speedup_e=_geomean([timing.speedup for timing in of_e]),
        labels_k=count_labels(of_k, len(undecided(found, "K"))),
        labels_e=count_labels(of_e, len(undecided(found, "E"))),
        first_call_s=math.fsum(known_first_calls) if known_first_calls else None,
        graphs=sum(graphs) if graphs else None,
        memory=_geomean(memory),
    )


def _geomean(values: Sequence[float]) -> float | None:
    return geometric_mean(values) if values else None
