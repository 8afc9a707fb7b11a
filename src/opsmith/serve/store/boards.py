"""What many judgements say together: leaderboards, the matrix of ops by dtypes, and run against run."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Row, Select, and_, case, func, select

from opsmith.report.conventions import THRESHOLDS
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import State, cells, judgements, runs

#: Where the curves of fast_p have their points.
CURVE = tuple(number / 10 for number in range(31))


class Place(msgspec.Struct, frozen=True, kw_only=True):
    """A run on a leaderboard.

    Each task counts once: of several kernels for it the mean over them counts. A task without a kernel counts as one
    whose kernel is wrong.

    Attributes:
        run_id: the run.
        name: its name.
        contender: a model or a backend.
        device_name: where its kernels ran.
        tasks_asked: the denominator.
        answered: tasks with a kernel.
        correct: tasks whose kernel is accepted.
        quantity: ``K`` or ``E``, of the speedups; None where nothing was timed.
        fast: p as text -> share of the tasks asked that are correct with a speedup above p.
        curve: the same for each p of :data:`CURVE`.
        geomean: geometric mean of the speedups of accepted kernels that were timed.
    """

    run_id: int
    name: str
    contender: str
    device_name: str
    tasks_asked: int
    answered: int
    correct: float
    quantity: str | None
    fast: dict[str, float]
    curve: tuple[float, ...]
    geomean: float | None


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of an op in one dtype."""

    task: str
    dtype: str
    judgement_id: int
    outcome: str
    cases: int
    passed: int
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """One side of a difference."""

    judgement_id: int
    outcome: str
    accepted: bool
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A task in two runs, by the kernel that was judged last in each; None where a run has none."""

    task: str
    before: Result | None
    after: Result | None
    change: str
    ratio: float | None


def leaderboard(database: Database, suite: str, *, limit: int = 100) -> list[Place]:
    """The runs of a suite, those with the most correct tasks first."""
    thresholds = sorted({*THRESHOLDS, *CURVE})
    with database.reading() as connection:
        rows = connection.execute(_board(suite, thresholds).limit(limit)).all()
    return [_place(row, thresholds) for row in rows]


def _board(suite: str, thresholds: Sequence[float]) -> Select[Any]:
    """Runs with sums over their tasks, of means over the kernels of each task."""
    timed = (
        select(judgements.c.run_id, func.count(judgements.c.speedup_k).label("k"))
        .where(judgements.c.suite == suite, judgements.c.state == State.JUDGED)
        .group_by(judgements.c.run_id)
        .subquery()
    )
    # K and E are never mixed: one quantity for the whole run.
    speedup = case((timed.c.k > 0, judgements.c.speedup_k), else_=judgements.c.speedup_e)
    right = judgements.c.accepted
    log = case((and_(right, speedup.is_not(None)), func.ln(speedup)))
    per_task = (
        select(
            judgements.c.run_id,
            func.max(timed.c.k).label("k"),
            func.max(case((judgements.c.kernel_hash.is_not(None), 1), else_=0)).label("answered"),
            _mean(right).label("correct"),
            func.sum(log).label("logs"),
            func.count(log).label("timed"),
            *(_mean(_exceeds(right, speedup, p)).label(f"p{number}") for number, p in enumerate(thresholds)),
        )
        .join(timed, timed.c.run_id == judgements.c.run_id)
        .where(judgements.c.suite == suite, judgements.c.state == State.JUDGED)
        .group_by(judgements.c.run_id, judgements.c.task)
        .subquery()
    )
    sums = [func.sum(per_task.c[name]).label(name) for name in per_task.c.keys() if name not in {"run_id", "k"}]  # noqa: SIM118 - not a dict
    board = select(per_task.c.run_id, func.max(per_task.c.k).label("k"), *sums).group_by(per_task.c.run_id).subquery()
    return (
        select(runs, *(column for column in board.c if column.name != "run_id"))
        .join(board, board.c.run_id == runs.c.id)
        .order_by((board.c.correct / runs.c.tasks_asked).desc(), runs.c.id)
    )


def _mean(condition: ColumnElement[bool]) -> ColumnElement[float]:
    return func.avg(case((condition, 1.0), else_=0.0))


def _exceeds(right: ColumnElement[bool], speedup: ColumnElement[Any], p: float) -> ColumnElement[bool]:
    # What is right and could not be timed exceeds 0 and nothing else.
    return right if p == 0 else and_(right, speedup > p)


def _place(row: Row[Any], thresholds: Sequence[float]) -> Place:
    shares = {p: getattr(row, f"p{number}") / row.tasks_asked for number, p in enumerate(thresholds)}
    return Place(
        run_id=row.id,
        name=row.name,
        contender=row.contender,
        device_name=row.device_name,
        tasks_asked=row.tasks_asked,
        answered=row.answered,
        correct=row.correct,
        quantity=("K" if row.k else "E") if row.timed else None,
        fast={f"{p:g}": shares[p] for p in THRESHOLDS},
        curve=tuple(shares[p] for p in CURVE),
        # PostgreSQL adds counts up to a decimal.
        geomean=math.exp(row.logs / int(row.timed)) if row.timed else None,
    )


def _last(run: int) -> Select[Any]:
    """The judgement of each task of a run that was made last."""
    return (
        select(func.max(judgements.c.id))
        .where(judgements.c.run_id == run, judgements.c.state == State.JUDGED)
        .group_by(judgements.c.task)
    )


def matrix(
    database: Database, run: int, *, text: str = "", outcome: str = "", page: int = 0, limit: int = 100
) -> tuple[list[Cell], int]:
    """What a run found about its ops by dtype.

    Args:
        database: has it.
        run: the run.
        text: in the op's name.
        outcome: of at least one dtype of the op.
        page: of ``limit`` ops each.
        limit: ops at most.

    Returns:
        the cells of this page's ops, sorted by op and dtype, and the number of ops on all pages.
    """
    wanted = and_(cells.c.run_id == run, cells.c.judgement_id.in_(_last(run)))
    if text:
        wanted = and_(wanted, cells.c.task.icontains(text, autoescape=True))
    chosen = wanted if not outcome else and_(wanted, cells.c.outcome == outcome)
    tasks = select(cells.c.task).where(chosen).distinct()
    columns = [cells.c[name] for name in Cell.__struct_fields__]
    with database.reading() as connection:
        total = connection.execute(select(func.count()).select_from(tasks.subquery())).scalar_one()
        shown = connection.execute(tasks.order_by(cells.c.task).offset(page * limit).limit(limit)).scalars().all()
        rows = connection.execute(
            select(*columns).where(wanted, cells.c.task.in_(shown)).order_by(cells.c.task, cells.c.dtype)
        )
        return [Cell(**row._mapping) for row in rows], int(total)


def dtypes_of(database: Database, run: int) -> list[str]:
    """Those in which a run has cells, sorted."""
    with database.reading() as connection:
        found = connection.execute(select(cells.c.dtype).where(cells.c.run_id == run).distinct())
        return sorted(found.scalars())


def outcomes_of(database: Database, run: int) -> dict[str, int]:
    """Outcome -> cells of a run's last judgements, the most frequent first."""
    with database.reading() as connection:
        found = connection.execute(
            select(cells.c.outcome, func.count().label("count"))
            .where(cells.c.run_id == run, cells.c.judgement_id.in_(_last(run)))
            .group_by(cells.c.outcome)
        ).all()
    return {row.outcome: row[1] for row in sorted(found, key=lambda row: (-row[1], row[0]))}


def differences(database: Database, before: int, after: int) -> list[Difference]:
    """Every task of two runs, sorted by name."""
    old, new = _results(database, before), _results(database, after)
    return [_difference(task, old.get(task), new.get(task)) for task in sorted(old.keys() | new.keys())]


def _results(database: Database, run: int) -> dict[str, Result]:
    names = [name for name in Result.__struct_fields__ if name != "judgement_id"]
    columns = [judgements.c.task, judgements.c.id, *(judgements.c[name] for name in names)]
    with database.reading() as connection:
        rows = connection.execute(select(*columns).where(judgements.c.id.in_(_last(run))))
        return {row.task: Result(judgement_id=row.id, **{name: getattr(row, name) for name in names}) for row in rows}


#: What became of a task from one run to the other, the most urgent first.
CHANGES = ("lost", "changed", "gained", "only before", "only after", "same")


def _difference(task: str, before: Result | None, after: Result | None) -> Difference:
    if before is None or after is None:
        change = "only before" if after is None else "only after"
    elif before.accepted != after.accepted:
        change = "gained" if after.accepted else "lost"
    else:
        change = "same" if before.outcome == after.outcome else "changed"
    return Difference(task=task, before=before, after=after, change=change, ratio=_ratio(before, after))


def _ratio(before: Result | None, after: Result | None) -> float | None:
    """How many times the speedup is what it was, in a quantity that both have; of accepted kernels only."""
    if before is None or after is None or not (before.accepted and after.accepted):
        return None
    for old, new in ((before.speedup_k, after.speedup_k), (before.speedup_e, after.speedup_e)):
        if old is not None and new is not None:
            return new / old
    return None


def counted(found: Iterable[Difference]) -> dict[str, int]:
    """Change -> number of tasks, those that occur, the most urgent first."""
    changes = [difference.change for difference in found]
    return {change: changes.count(change) for change in CHANGES if change in changes}
