"""Whole runs side by side: one row a task and run, with what changed since the first run."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from opsmith.core.case import CaseAddress
from opsmith.core.problems import counting_order
from opsmith.core.run import write_atomically
from opsmith.core.verdict import Part, Status
from opsmith.errors import BadInput
from opsmith.report.compare import Comparison, outcomes
from opsmith.report.outcome import Direction
from opsmith.report.results import Results
from opsmith.report.speed_changes import ChangedSpeed
from opsmith.report.strangers import one_line

#: Figures of a change of speed in the csv.
CHANGE_COLUMNS = ("before_us", "after_us", "ratio", "low", "high", "change")
#: Columns of the csv: one row a task, run and quantity; where a run did not time a task, one without a quantity.
COLUMNS = ("task", "run", "outcome", "why", "quantity", "speedup", *CHANGE_COLUMNS)


class RunCell(NamedTuple):
    """What one run found about a task.

    Attributes:
        outcome: its word; None where the run does not ask it.
        why: where the first verdict of that kind comes from and what it says; empty for a task that passed.
        speedups: quantity -> speedup, where it was timed.
        changes: quantity -> change of speed since the first run.
    """

    outcome: str | None
    why: str
    speedups: dict[str, float]
    changes: dict[str, ChangedSpeed]


def run_table(runs: Sequence[Results], comparisons: Sequence[Comparison]) -> dict[str, list[RunCell]]:
    """Task -> what each run found about it, in counting order.

    Args:
        runs: the first one is what the others are compared with.
        comparisons: of each further run.
    """
    tasks = sorted({task for run in runs for task in outcomes(run)}, key=counting_order)
    changes = [{}, *({(speed.op, speed.quantity): speed for speed in each.speeds} for each in comparisons)]
    return {
        task: [
            RunCell(
                _outcome(run, task),
                reasons.get(task, ""),
                _speedups(run, task),
                {quantity: of_run[task, quantity] for quantity in ("K", "E") if (task, quantity) in of_run},
            )
            for run, of_run, reasons in zip(runs, changes, map(_reasons, runs), strict=True)
        ]
        for task in tasks
    }


def has_changed(cells: Sequence[RunCell]) -> bool:
    """Whether a task has another outcome in some run, or is faster or slower with certainty."""
    return len({cell.outcome for cell in cells}) > 1 or any(
        change.change is not Direction.NEITHER for cell in cells for change in cell.changes.values()
    )


def write_table(path: Path, runs: Sequence[Results], comparisons: Sequence[Comparison]) -> None:
    """Write the whole table as csv.

    Raises:
        BadInput: ``path`` cannot be written.
    """
    stream = io.StringIO(newline="")
    writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for task, cells in run_table(runs, comparisons).items():
        for run, cell in zip(runs, cells, strict=True):
            writer.writerows(dict(zip(COLUMNS, row, strict=False)) for row in _rows(task, str(run.path), cell))
    try:
        write_atomically(path, stream.getvalue().encode())
    except OSError as exc:
        raise BadInput(f"cannot write the table to {path}: {exc.strerror or exc}; name another file") from exc


def _rows(task: str, run: str, cell: RunCell) -> Iterable[Sequence[object]]:
    if not cell.speedups:
        yield task, run, cell.outcome, cell.why
    for quantity, speedup in cell.speedups.items():
        change = cell.changes.get(quantity)
        figures = () if change is None else [getattr(change, column) for column in CHANGE_COLUMNS]
        yield task, run, cell.outcome, cell.why, quantity, speedup, *figures


def _outcome(run: Results, task: str) -> str | None:
    return outcomes(run).get(task)


def _reasons(run: Results) -> dict[str, str]:
    """Task that did not pass -> the source of the first case with its outcome, and what the verdict says of it."""
    found: dict[str, str] = {}
    for verdict in run.verdicts:
        if verdict.status != Status.PASSED and verdict.status == _outcome(run, verdict.op):
            source = "conduct" if verdict.part is Part.CONDUCT else CaseAddress.parse(verdict.case).source
            found.setdefault(verdict.op, f"{source}: {one_line(verdict.detail)}")
    return found


def _speedups(run: Results, task: str) -> dict[str, float]:
    op = run.summary.per_op.get(task)
    found = {} if op is None else {quantity: op.speedup(quantity) for quantity in ("K", "E")}
    return {quantity: speedup for quantity, speedup in found.items() if speedup is not None}
