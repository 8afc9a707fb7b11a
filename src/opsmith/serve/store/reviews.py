"""Reviews in the tables: those that are made here, and those that came with a run. Rows are added and never changed."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, insert, or_, select

from opsmith.core.case import digest
from opsmith.reviews.changes import changed_files
from opsmith.reviews.records import Review, Standing, State, standing
from opsmith.serve.store.database import Database
from opsmith.serve.store.runs import JudgementRow, find_source
from opsmith.serve.store.schema import judgements, reviews
from opsmith.serve.store.sources import covered_texts
from opsmith.serve.store.tokens import Token


class CoveredFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file that a review of a kernel covers.

    Attributes:
        path: relative to the kernel's folder.
        text: of the file.
        before: its text in the version before; None where there is none, or it is not known.
        changed: since the version before; None where that is not known.
        is_new: the version before had no such file.
    """

    path: str
    text: str
    before: str | None = None
    changed: bool | None = None
    is_new: bool = False

    @property
    def content_hash(self) -> str:
        """As a kernel's record names the file's content."""
        return digest(self.text.encode())


def files_to_review(database: Database, row: JudgementRow, before: Review | None) -> list[CoveredFile]:
    """The files that a review of a kernel covers, that of the entry first; none where it cannot be reviewed.

    Args:
        database: has them.
        row: the kernel's judgement.
        before: the newest review of another version.
    """
    if row.reviewed_hash is None or row.source_hash is None or row.entry_file is None:
        return []
    source, imported = find_source(database, row.source_hash), covered_texts(database, row.reviewed_hash)
    texts = {row.entry_file: source, **imported}
    known = {} if before is None else covered_texts(database, before.content_hash)
    if before is not None and before.source:
        known[row.entry_file] = before.source
    changed = changed_files({path: digest(text.encode()) for path, text in texts.items()}, before)
    return [
        CoveredFile(
            path=path,
            text=text,
            before=known.get(path),
            changed=known[path] != text if path in known else changed[path],
            is_new=before is not None and bool(before.files) and path not in {*before.files, *known},
        )
        for path, text in texts.items()
    ]


def add_review(database: Database, review: Review, token: Token) -> None:
    """Keep a review that was made with a token."""
    with database.writing() as connection:
        keep_reviews(connection, [review], token_id=token.id)


def keep_reviews(connection: Connection, made: Iterable[Review], *, token_id: int | None = None) -> None:
    """Keep reviews; one that is there already stays as it is."""
    found = {review.id: review for review in made}
    known = set(connection.execute(select(reviews.c.id).where(reviews.c.id.in_(found))).scalars())
    rows = [
        {
            "id": review.id,
            "task": review.task,
            "content_hash": review.content_hash,
            "token_id": token_id,
            "when_utc": review.when_utc,
            "record": msgspec.json.encode(review).decode(),
        }
        for review in found.values()
        if review.id not in known
    ]
    if rows:
        connection.execute(insert(reviews), rows)


def list_reviews(database: Database, hashes: Sequence[str]) -> list[Review]:
    """The reviews of these contents, in the order in which they were made."""
    wanted = select(reviews.c.record).where(reviews.c.content_hash.in_(hashes)).order_by(reviews.c.when_utc)
    with database.reading() as connection:
        return [_review(record) for record in connection.execute(wanted).scalars()]


def standings(database: Database, rows: Sequence[JudgementRow]) -> dict[int, Standing]:
    """Judgement -> what people say of its kernel; of those whose kernel can be reviewed."""
    known = [row for row in rows if row.reviewed_hash is not None]
    hashes, tasks = {row.reviewed_hash for row in known}, {row.task for row in known}
    wanted = select(reviews.c.record).where(or_(reviews.c.content_hash.in_(hashes), reviews.c.task.in_(tasks)))
    with database.reading() as connection:
        found = [_review(record) for record in connection.execute(wanted).scalars()] if known else []
    return {row.id: standing(found, row.task, row.reviewed_hash) for row in known}


def count_approved(database: Database, runs: Sequence[int]) -> dict[int, int]:
    """Run -> tasks with a kernel that people approved; runs without any are not in it."""
    wanted = (
        select(judgements.c.run_id, judgements.c.task, judgements.c.reviewed_hash, reviews.c.record)
        .join(reviews, reviews.c.content_hash == judgements.c.reviewed_hash)
        .where(judgements.c.run_id.in_(runs))
    )
    found: defaultdict[tuple[int, str, str], list[Review]] = defaultdict(list)
    with database.reading() as connection:
        for row in connection.execute(wanted):
            found[row.run_id, row.task, row.reviewed_hash].append(_review(row.record))
    approved = {
        (run, task)
        for (run, task, content), made in found.items()
        if standing(made, task, content).state is State.APPROVED
    }
    return {run: sum(each == run for each, _ in approved) for run in {run for run, _ in approved}}


def _review(record: str) -> Review:
    return msgspec.json.decode(record, type=Review)
