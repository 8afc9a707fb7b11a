"""Runs, judgements and verdicts as they are looked at: a page at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from sqlalchemy import Connection, Row, Select, and_, func, or_, select

from opsmith.core.kernel import Provenance
from opsmith.core.run import OpSummary
from opsmith.core.timing import Work
from opsmith.core.verdict import Verdict
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import FINAL, State, judgements, runs, sources, verdicts

_VERDICT = msgspec.json.Decoder(Verdict)
_WORK = msgspec.json.Decoder(Work)


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes:
        id: of the run.
        name: as its owner calls it, or the directory that it was read from.
        contender: a model or a backend.
        suite: the suite.
        device_name: where kernels ran.
        created_utc: ISO 8601 time.
        tasks_asked: the denominator of its scores.
        facts: how it was judged, as JSON.
        ceilings: what its device was measured to reach, as JSON; None where nothing was timed.
        kernels: judgements asked.
        judged: those that are final.
        accepted: those whose kernel is accepted.
        outcomes: outcome -> judgements that are final.
    """

    id: int
    name: str
    contender: str
    suite: str
    device_name: str
    created_utc: str
    tasks_asked: int
    facts: str
    ceilings: str | None = None
    kernels: int = 0
    judged: int = 0
    accepted: int = 0
    outcomes: dict[str, int] = {}

    @property
    def is_final(self) -> bool:
        """Whether nothing of it is waiting."""
        return self.judged == self.kernels


class JudgementRow(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement, without its verdicts."""

    id: int
    run_id: int
    submission_id: str | None
    task: str
    state: State
    tries: int
    outcome: str | None
    accepted: bool | None
    cases: int | None
    passed: int | None
    speedup_k: float | None
    speedup_e: float | None
    percent_of_floor: float | None
    device_s: float | None
    dsl: str | None
    detail: str | None
    kernel_hash: str | None
    reviewed_hash: str | None
    entry_file: str | None
    source_hash: str | None
    provenance: Provenance
    created_utc: str
    judged_utc: str | None
    summary: OpSummary | None


class StoredVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict with its number and the work of its case."""

    number: int
    verdict: Verdict
    work: Work | None


def suites_with_runs(database: Database) -> list[str]:
    """Sorted."""
    with database.reading() as connection:
        return list(connection.execute(select(runs.c.suite).distinct().order_by(runs.c.suite)).scalars())


def list_runs(
    database: Database, *, suite: str | None = None, text: str = "", before: int | None = None, limit: int = 50
) -> list[RunRow]:
    """Runs, the newest first.

    Args:
        database: has them.
        suite: of this suite only.
        text: in the name or the contender.
        before: older than this run.
        limit: at most so many.
    """
    wanted = select(runs).order_by(runs.c.id.desc()).limit(limit)
    if suite:
        wanted = wanted.where(runs.c.suite == suite)
    if text:
        wanted = wanted.where(or_(runs.c.name.icontains(text, autoescape=True),
                                  runs.c.contender.icontains(text, autoescape=True)))  # fmt: skip
    if before is not None:
        wanted = wanted.where(runs.c.id < before)
    with database.reading() as connection:
        return _counted(connection, connection.execute(wanted).all())


def find_run(database: Database, run: int) -> RunRow | None:
    """A run by its id."""
    with database.reading() as connection:
        found = _counted(connection, connection.execute(select(runs).where(runs.c.id == run)).all())
    return found[0] if found else None


def _counted(connection: Connection, rows: Sequence[Row[Any]]) -> list[RunRow]:
    numbers = [row.id for row in rows]
    counts: dict[int, list[Row[Any]]] = {number: [] for number in numbers}
    for found in connection.execute(
        select(judgements.c.run_id, judgements.c.state, judgements.c.outcome, judgements.c.accepted, func.count())
        .where(judgements.c.run_id.in_(numbers))
        .group_by(judgements.c.run_id, judgements.c.state, judgements.c.outcome, judgements.c.accepted)
    ):
        counts[found.run_id].append(found)
    return [_run(row, counts[row.id]) for row in rows]


def _run(row: Row[Any], counts: Sequence[Row[Any]]) -> RunRow:
    outcomes: dict[str, int] = {}
    for found in counts:
        if found.state in FINAL:
            word = found.outcome or State.ABANDONED.value
            outcomes[word] = outcomes.get(word, 0) + found[-1]
    return RunRow(
        id=row.id,
        name=row.name,
        contender=row.contender,
        suite=row.suite,
        device_name=row.device_name,
        created_utc=row.created_utc,
        tasks_asked=row.tasks_asked,
        facts=row.facts,
        ceilings=row.ceilings,
        kernels=sum(found[-1] for found in counts),
        judged=sum(outcomes.values()),
        accepted=sum(found[-1] for found in counts if found.accepted),
        outcomes=outcomes,
    )


_SORTS: Mapping[str, Any] = {
    "task": judgements.c.task,
    "outcome": judgements.c.outcome,
    "passed": judgements.c.passed * 1.0 / func.nullif(judgements.c.cases, 0),
    "k": judgements.c.speedup_k,
    "e": judgements.c.speedup_e,
    "floor": judgements.c.percent_of_floor,
    "newest": judgements.c.id,
}
SORTS = tuple(_SORTS)


class Filter(msgspec.Struct, frozen=True, kw_only=True):
    """Which judgements of a run are looked at."""

    text: str = ""
    outcome: str = ""
    sort: str = "newest"
    descending: bool = True


def list_judgements(database: Database, run: int, *, after: int | None = None, limit: int = 100) -> list[JudgementRow]:
    """Judgements of a run in the order of submission, after one of them."""
    wanted = select(judgements).where(judgements.c.run_id == run).order_by(judgements.c.id).limit(limit)
    if after is not None:
        wanted = wanted.where(judgements.c.id > after)
    with database.reading() as connection:
        return [_judgement(row) for row in connection.execute(wanted)]


def filter_judgements(
    database: Database, run: int, asked: Filter, *, page: int = 0, limit: int = 50
) -> tuple[list[JudgementRow], int]:
    """One page of a run's judgements as a filter asks, and how many there are; absent figures come last."""
    column = _SORTS[asked.sort]
    order = column.desc() if asked.descending else column.asc()
    with database.reading() as connection:
        wanted = _filtered(select(judgements), run, asked)
        total = connection.execute(_filtered(select(func.count()), run, asked)).scalar_one()
        rows = connection.execute(
            wanted.order_by(order.nulls_last(), judgements.c.id).offset(page * limit).limit(limit)
        )
        return [_judgement(row) for row in rows], int(total)


def _filtered(wanted: Select[Any], run: int, asked: Filter) -> Select[Any]:
    wanted = wanted.where(judgements.c.run_id == run)
    if asked.text:
        wanted = wanted.where(judgements.c.task.icontains(asked.text, autoescape=True))
    if asked.outcome:
        waiting = judgements.c.state == asked.outcome
        wanted = wanted.where(or_(judgements.c.outcome == asked.outcome, waiting))
    return wanted


def find_judgement(database: Database, judgement: int) -> JudgementRow | None:
    """A judgement by its id."""
    with database.reading() as connection:
        row = connection.execute(select(judgements).where(judgements.c.id == judgement)).one_or_none()
    return None if row is None else _judgement(row)


def find_source(database: Database, source_hash: str) -> str:
    """The text of a kernel."""
    with database.reading() as connection:
        return str(connection.execute(select(sources.c.text).where(sources.c.hash == source_hash)).scalar_one())


def _judgement(row: Row[Any]) -> JudgementRow:
    values = {name: getattr(row, name) for name in JudgementRow.__struct_fields__}
    values["state"] = State(row.state)
    values["provenance"] = msgspec.json.decode(row.provenance, type=Provenance)
    values["summary"] = None if row.summary is None else msgspec.json.decode(row.summary, type=OpSummary)
    return JudgementRow(**values)


def list_verdicts(
    database: Database, judgement: int, *, status: str = "", failing: bool = False, start: int = 0, limit: int = 100
) -> list[StoredVerdict]:
    """Verdicts of a judgement from a number on, in the order found."""
    wanted = and_(verdicts.c.judgement_id == judgement, verdicts.c.number >= start)
    if status:
        wanted = and_(wanted, verdicts.c.status == status)
    if failing:
        wanted = and_(wanted, verdicts.c.failing)
    with database.reading() as connection:
        rows = connection.execute(select(verdicts).where(wanted).order_by(verdicts.c.number).limit(limit))
        return [_verdict(row) for row in rows]


def _verdict(row: Row[Any]) -> StoredVerdict:
    work = None if row.work is None else _WORK.decode(row.work)
    return StoredVerdict(number=row.number, verdict=_VERDICT.decode(row.record), work=work)


def list_timed(database: Database, judgement: int) -> list[StoredVerdict]:
    """The verdicts of a judgement that have timings, in the order found."""
    timed = verdicts.c.record.contains('"timings":')
    with database.reading() as connection:
        rows = connection.execute(
            select(verdicts).where(verdicts.c.judgement_id == judgement, timed).order_by(verdicts.c.number)
        )
        found = [_verdict(row) for row in rows]
    return [each for each in found if each.verdict.timings]


def statuses_of(database: Database, judgement: int) -> dict[str, int]:
    """Status -> verdicts of a judgement, the most frequent first."""
    with database.reading() as connection:
        found = connection.execute(
            select(verdicts.c.status, func.count().label("times"))
            .where(verdicts.c.judgement_id == judgement)
            .group_by(verdicts.c.status)
        ).all()
    return {row.status: row.times for row in sorted(found, key=lambda row: (-row.times, row.status))}


def count_queue(database: Database) -> dict[str, int]:
    """State -> judgements of all runs."""
    with database.reading() as connection:
        found = connection.execute(select(judgements.c.state, func.count()).group_by(judgements.c.state))
        return dict.fromkeys(State, 0) | {row.state: row[1] for row in found}
