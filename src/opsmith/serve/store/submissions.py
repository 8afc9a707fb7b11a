"""Submissions: kernels put into the queue, once for each request however often it is sent."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta

import msgspec
from sqlalchemy import Connection, func, insert, select
from sqlalchemy.exc import IntegrityError

from opsmith.core.kernel import Provenance
from opsmith.errors import UsageError
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import FINAL, State, judgements, runs, submissions, tokens
from opsmith.serve.store.sources import keep_sources
from opsmith.serve.store.tokens import Token, now_utc


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel that is submitted for one task."""

    task: str
    source: str
    provenance: Provenance = Provenance()


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """What one request submits.

    Attributes:
        suite: whose tasks they are.
        run: name of the run that takes them; it is made if the token has none of that name in this suite.
        contender: who is compared with whom on leaderboards: a model or a backend.
        candidates: the kernels.
    """

    suite: str
    run: str
    contender: str
    candidates: tuple[Candidate, ...]


class SuiteFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What a run of this server's suite is judged by.

    Attributes:
        tasks_asked: how many tasks there are: the denominator of its scores.
        device_name: where kernels run.
        facts: options, environment and layers of the sandbox, as JSON.
        rules: names what decides the verdicts; servers on which it is the same may judge each other's submissions.
    """

    tasks_asked: int
    device_name: str
    facts: str
    rules: str


class OtherRules(UsageError):
    """A run of that name is judged under other options."""


class KeyUsed(UsageError):
    """A request's key was sent before, with another request."""


class QuotaExceeded(UsageError):
    """More kernels than the token may submit in 24 hours."""


def submit(
    database: Database, token: Token, wanted: Wanted, about: SuiteFacts, *, request_key: str | None
) -> tuple[str, bool]:
    """Put kernels into the queue.

    Args:
        database: takes them.
        token: whose they are.
        wanted: what is asked.
        about: the suite.
        request_key: names the request; sent again, it is the same submission.

    Returns:
        the submission's id, and whether it is new.

    Raises:
        KeyUsed: the key named another request.
        QuotaExceeded: the token's limit is reached.
        OtherRules: the run is judged under other options than this server's.
    """
    request = hashlib.sha256(msgspec.json.encode(wanted)).hexdigest()
    try:
        with database.writing() as connection:
            if request_key is not None and (known := _earlier(connection, token, request_key, request)):
                return known, False
            _check_quota(connection, token, len(wanted.candidates))
            return _enqueue(connection, token, wanted, about, request_key=request_key, request=request), True
    except IntegrityError:  # The same key, or the same run or source, from another connection at the same time.
        return submit(database, token, wanted, about, request_key=request_key)


def _earlier(connection: Connection, token: Token, request_key: str, request: str) -> str | None:
    row = connection.execute(
        select(submissions.c.id, submissions.c.request_digest).where(
            submissions.c.token_id == token.id, submissions.c.request_key == request_key
        )
    ).one_or_none()
    if row is None:
        return None
    if row.request_digest != request:
        raise KeyUsed(f"the key {request_key!r} was sent before with another request; choose a new key")
    return str(row.id)


def _check_quota(connection: Connection, token: Token, more: int) -> None:
    if token.kernels_a_day is None:
        return
    # Whoever counts at the same time waits for what is counted here; SQLite has one writer anyway.
    connection.execute(select(tokens.c.id).where(tokens.c.id == token.id).with_for_update())
    since = (datetime.now(UTC) - timedelta(days=1)).isoformat(timespec="milliseconds")
    taken = connection.execute(
        select(func.count()).where(judgements.c.token_id == token.id, judgements.c.created_utc > since)
    ).scalar_one()
    if taken + more > token.kernels_a_day:
        raise QuotaExceeded(
            f"{taken} kernels were submitted in the last 24 hours, {more} more exceed the {token.kernels_a_day} that "
            "this token may submit; try again later"
        )


def _enqueue(
    connection: Connection, token: Token, wanted: Wanted, about: SuiteFacts, *, request_key: str | None, request: str
) -> str:
    created = now_utc()
    run = _run_id(connection, token, wanted, about, created)
    submission = secrets.token_hex(16)
    connection.execute(
        insert(submissions).values(
            id=submission,
            run_id=run,
            token_id=token.id,
            request_key=request_key,
            request_digest=request,
            created_utc=created,
        )
    )
    hashes = keep_sources(connection, (candidate.source for candidate in wanted.candidates))
    connection.execute(
        insert(judgements),
        [
            {
                "run_id": run,
                "submission_id": submission,
                "token_id": token.id,
                "suite": wanted.suite,
                "rules": about.rules,
                "task": candidate.task,
                "source_hash": source_hash,
                "provenance": msgspec.json.encode(candidate.provenance).decode(),
                "state": State.QUEUED,
                "tries": 0,
                "created_utc": created,
            }
            for candidate, source_hash in zip(wanted.candidates, hashes, strict=True)
        ],
    )
    return submission


def _run_id(connection: Connection, token: Token, wanted: Wanted, about: SuiteFacts, created: str) -> int:
    known = connection.execute(
        select(runs.c.id, runs.c.rules).where(
            runs.c.owner_id == token.id, runs.c.suite == wanted.suite, runs.c.name == wanted.run
        )
    ).one_or_none()
    if known is not None:
        if known.rules not in {"", about.rules}:
            raise OtherRules(
                f"the run {wanted.run!r} was judged with other options, or timed on another device, than this server "
                "has; name another run"
            )
        return int(known.id)
    made = insert(runs).values(
        name=wanted.run,
        contender=wanted.contender,
        suite=wanted.suite,
        device_name=about.device_name,
        tasks_asked=about.tasks_asked,
        facts=about.facts,
        rules=about.rules,
        owner_id=token.id,
        created_utc=created,
    )
    return int(connection.execute(made.returning(runs.c.id)).scalar_one())


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """Where one judgement of a submission is.

    Attributes:
        id: of the judgement.
        task: the task.
        state: queued, judging, judged or abandoned.
        tries: how often judging was begun.
        claim: under which it is made, or was made last.
        outcome: in one word, once judged.
        accepted: every case passed and nothing is held against the kernel; None before.
        detail: what is wrong, in one line.
        summary: an :class:`~opsmith.core.run.OpSummary` as JSON, once judged.
    """

    id: int
    task: str
    state: State
    tries: int
    claim: str | None
    outcome: str | None
    accepted: bool | None
    detail: str | None
    summary: str | None

    @property
    def is_final(self) -> bool:
        """Whether nothing about it will change."""
        return self.state in FINAL


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """A submission and where it is."""

    id: str
    run_id: int
    created_utc: str
    standings: tuple[Standing, ...]

    @property
    def is_final(self) -> bool:
        """Whether all of it is judged."""
        return all(standing.is_final for standing in self.standings)


def find_submission(database: Database, submission: str) -> Submission | None:
    """A submission by its id; its judgements are in the order of the request."""
    with database.reading() as connection:
        row = connection.execute(select(submissions).where(submissions.c.id == submission)).one_or_none()
        if row is None:
            return None
        columns = [judgements.c[name] for name in Standing.__struct_fields__]
        found = connection.execute(
            select(*columns).where(judgements.c.submission_id == submission).order_by(judgements.c.id)
        )
        return Submission(
            id=row.id,
            run_id=row.run_id,
            created_utc=row.created_utc,
            standings=tuple(Standing(**{**standing._mapping, "state": State(standing.state)}) for standing in found),
        )
