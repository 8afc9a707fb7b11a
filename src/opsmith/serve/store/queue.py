"""The queue: a judgement is claimed for a while, and what was found goes in with its end, or not at all.

Whoever holds a claim renews it. A server that was killed does not, and its judgements are free again when their
claims run out; a server that is alone on a SQLite file when it starts frees them at once.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection

import msgspec
from sqlalchemy import ColumnElement, Connection, Row, TextClause, and_, case, func, insert, or_, select, update

from opsmith.core.run import OpSummary, TimedCase
from opsmith.core.timing import Ceilings
from opsmith.core.verdict import Verdict
from opsmith.report.outcome import outcome
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import CLAIMED, WAITS, State, cells, judgements, runs, sources, verdicts
from opsmith.serve.store.tokens import now_utc

#: A claim holds so long unless it is renewed.
CLAIM_S = 45.0
#: States of what somebody still has to judge.
UNDER_WAY = (State.QUEUED, State.JUDGING)
#: What brings the server down so often is not judged again.
MOST_TRIES = 5


class Claimed(msgspec.Struct, frozen=True, kw_only=True):
    """A judgement that this server may make.

    Attributes:
        id: of the judgement.
        claim: shows that it was given to this server.
        suite: the suite.
        task: the task.
        source: of the kernel.
    """

    id: int
    claim: str
    suite: str
    task: str
    source: str


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What judging found.

    Attributes:
        kernel_hash: names what was judged; None where there was nothing to judge.
        reviewed_hash: names what a review of it is about; None where it cannot be reviewed.
        entry_file: the file of its entry, where it can be.
        dsl: what it is written in.
        summary: the scores of the task.
        by_dtype: dtype -> the same of its cases.
        detail: why it is not accepted, in one line; empty otherwise.
        verdicts: all of them, in the order found.
        timed: what the clock says of the cases that were timed.
        device_s: seconds of judging and timing.
        ceilings: what the device was measured to reach; None where nothing was timed.
    """

    kernel_hash: str | None
    dsl: str | None
    summary: OpSummary
    by_dtype: dict[str, OpSummary]
    detail: str
    verdicts: tuple[Verdict, ...]
    timed: tuple[TimedCase, ...]
    device_s: float
    ceilings: Ceilings | None = None
    reviewed_hash: str | None = None
    entry_file: str | None = None


def claim_next(database: Database, suite: str, rules: str) -> Claimed | None:
    """Take a judgement that nobody makes: one whose claim has run out, else the oldest that waits; or None.

    One that was begun too often is abandoned instead, and the next one taken.

    Args:
        database: has the queue.
        suite: the suite.
        rules: what it must have been submitted under.
    """
    claim, now = secrets.token_hex(16), time.time()
    # No claim holds for that long: one that seems to was taken before a clock was set back.
    run_out = or_(judgements.c.claimed_until_s < now, judgements.c.claimed_until_s > now + 2 * CLAIM_S)
    while True:
        with database.writing() as connection:
            taken = _take(connection, claim, suite, rules, CLAIMED, run_out, first=judgements.c.claimed_until_s)
            taken = taken or _take(connection, claim, suite, rules, WAITS, first=judgements.c.id)
            if taken is None:
                return None
            if taken.state == State.JUDGING:
                source = connection.execute(
                    select(sources.c.text).where(sources.c.hash == taken.source_hash)
                ).scalar_one()
                return Claimed(id=taken.id, claim=claim, suite=suite, task=taken.task, source=source)


def _take(
    connection: Connection,
    claim: str,
    suite: str,
    rules: str,
    *among: TextClause | ColumnElement[bool],
    first: ColumnElement[float] | ColumnElement[int],
) -> Row[tuple[int, str, str, str]] | None:
    one = (
        select(judgements.c.id)
        .where(*among, judgements.c.suite == suite, judgements.c.rules == rules)
        .order_by(first)
        .limit(1)
        .with_for_update(skip_locked=True)
    )
    return connection.execute(
        update(judgements)
        .where(judgements.c.id == one.scalar_subquery())
        .values(
            state=case((judgements.c.tries < MOST_TRIES, State.JUDGING), else_=State.ABANDONED),
            claim=claim,
            claimed_until_s=time.time() + CLAIM_S,
            tries=judgements.c.tries + 1,
            judged_utc=case((judgements.c.tries < MOST_TRIES, None), else_=now_utc()),
            detail=case(
                (judgements.c.tries < MOST_TRIES, None),
                else_=f"the server ended {MOST_TRIES} times while it judged this kernel",
            ),
        )
        .returning(judgements.c.id, judgements.c.task, judgements.c.state, judgements.c.source_hash)
    ).one_or_none()


def adopt(database: Database, suite: str, rules: str) -> None:
    """Have what an older version has queued judged under these rules."""
    with database.writing() as connection:
        connection.execute(
            update(judgements)
            .where(judgements.c.suite == suite, judgements.c.rules == "", judgements.c.state.in_(UNDER_WAY))
            .values(rules=rules)
        )


def count_foreign(database: Database, suite: str, rules: str) -> int:
    """How many judgements of a suite wait for a server with other rules."""
    foreign = select(func.count()).where(WAITS, judgements.c.suite == suite, judgements.c.rules != rules)
    with database.reading() as connection:
        return int(connection.execute(foreign).scalar_one())


def renew(database: Database, claims: Collection[str]) -> None:
    """Hold claims for another while."""
    with database.writing() as connection:
        connection.execute(
            update(judgements)
            .where(judgements.c.claim.in_(claims), judgements.c.state == State.JUDGING)
            .values(claimed_until_s=time.time() + CLAIM_S)
        )


def release(database: Database, claim: str) -> None:
    """Give a judgement back that was not finished, as if it had not been begun."""
    with database.writing() as connection:
        connection.execute(
            update(judgements)
            .where(judgements.c.claim == claim, judgements.c.state == State.JUDGING)
            .values(state=State.QUEUED, claim=None, claimed_until_s=None, tries=judgements.c.tries - 1)
        )


def _is_held(claimed: Claimed) -> ColumnElement[bool]:
    """Whether a judgement is still this server's."""
    return and_(judgements.c.id == claimed.id, judgements.c.claim == claimed.claim, judgements.c.state == State.JUDGING)


def abandon(database: Database, claimed: Claimed, reason: str) -> bool:
    """Give a judgement up, whose kernel cannot be judged; returns whether it was still this server's."""
    with database.writing() as connection:
        found = connection.execute(
            update(judgements)
            .where(_is_held(claimed))
            .values(state=State.ABANDONED, claimed_until_s=None, judged_utc=now_utc(), detail=_storable(reason))
        )
        return bool(found.rowcount)


def release_all(database: Database) -> int:
    """Free what a server that is no more has claimed; for the one that is alone on the database.

    Returns:
        how many judgements were under way.
    """
    with database.writing() as connection:
        freed = connection.execute(
            update(judgements)
            .where(judgements.c.state == State.JUDGING)
            .values(state=State.QUEUED, claim=None, claimed_until_s=None)
        )
        return freed.rowcount


def complete(database: Database, claimed: Claimed, found: Found) -> bool:
    """Write what was found, if the judgement is still this server's; may be called again after a failure.

    Returns:
        whether it stands in the database as found; False where somebody else judges it by now.
    """
    with database.writing() as connection:
        held = connection.execute(
            update(judgements)
            .where(_is_held(claimed))
            .values(state=State.JUDGED, claimed_until_s=None, judged_utc=now_utc(), **summary_values(found))
            .returning(judgements.c.run_id)
        ).scalar_one_or_none()
        if held is None:
            stands = select(func.count()).where(
                judgements.c.id == claimed.id,
                judgements.c.claim == claimed.claim,
                judgements.c.state == State.JUDGED,
            )
            return bool(connection.execute(stands).scalar_one())
        if found.ceilings is not None:
            told = msgspec.json.encode(found.ceilings).decode()
            connection.execute(update(runs).where(runs.c.id == held, runs.c.ceilings.is_(None)).values(ceilings=told))
        if rows := verdict_rows(claimed.id, found):
            connection.execute(insert(verdicts), rows)
        if rows := cell_rows(claimed.id, held, claimed.task, found):
            connection.execute(insert(cells), rows)
        return True


def summary_values(found: Found) -> dict[str, object]:
    """The columns of a judgement that say what was found."""
    summary = found.summary
    return {
        "kernel_hash": found.kernel_hash,
        "reviewed_hash": found.reviewed_hash,
        "entry_file": found.entry_file,
        "dsl": found.dsl,
        "outcome": outcome(summary),
        "accepted": summary.accepted,
        "cases": summary.cases,
        "passed": summary.passed,
        "speedup_k": summary.speedup_k,
        "speedup_e": summary.speedup_e,
        "percent_of_floor": summary.percent_of_floor,
        "device_s": found.device_s,
        "detail": _storable(found.detail),
        "summary": msgspec.json.encode(summary).decode(),
    }


def verdict_rows(judgement: int, found: Found) -> list[dict[str, object]]:
    """The verdicts of a judgement, in the order found."""
    works = {timed.case: timed.work for timed in found.timed if timed.work is not None}
    return [
        {
            "judgement_id": judgement,
            "number": number,
            "status": verdict.status,
            "failing": verdict.is_failure,
            "record": _storable(msgspec.json.encode(verdict).decode()),
            "work": msgspec.json.encode(works[verdict.case]).decode() if verdict.case in works else None,
        }
        for number, verdict in enumerate(found.verdicts)
    ]


def cell_rows(judgement: int, run: int, task: str, found: Found) -> list[dict[str, object]]:
    """What was found, by dtype."""
    return [
        {
            "judgement_id": judgement,
            "dtype": dtype,
            "run_id": run,
            "task": task,
            "outcome": outcome(summary),
            "cases": summary.cases,
            "passed": summary.passed,
            "speedup_k": summary.speedup_k,
            "speedup_e": summary.speedup_e,
            "percent_of_floor": summary.percent_of_floor,
        }
        for dtype, summary in found.by_dtype.items()
    ]


def _storable(text: str) -> str:
    """Text of strangers as PostgreSQL takes it: it has no zero character, neither as such nor in its json."""
    return text.replace("\x00", "\ufffd").replace("\\u0000", "\\ufffd")
