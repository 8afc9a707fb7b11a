"""The tables.

::

    tokens ──< submissions ──< judgements >── sources
                   │              │ │
               runs ┴─────────────┘ ├──< verdicts    one for each case, in the order found
                                    └──< cells       the same, added up by dtype

    reviews and covered_files belong to the judgements with their ``content_hash`` as ``reviewed_hash``.

A judgement is one kernel, judged or to be judged, for one task. It is the queue's unit: its verdicts and cells are
written in the transaction that makes it ``judged``, so it has all of them or none. ``rules`` names the options that it
was submitted under, see :func:`opsmith.serve.judging.rules_of`; it is empty in what an older version wrote.
"""

from __future__ import annotations

import enum

from sqlalchemy import (
    Boolean,
    Column,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
    text,
)

#: Names of constraints follow from what they constrain, so that a migration can name them on every database.
metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "fk": "fk_%(table_name)s_%(column_0_name)s",
        "pk": "pk_%(table_name)s",
    }
)

#: Characters of a path: PostgreSQL's indices take 2,700 bytes.
MOST_PATH_CHARACTERS = 500
#: Numbers of rows: what PostgreSQL's integers hold.
MOST_ROWS = 2**31 - 1


class State(enum.StrEnum):
    """Where a judgement is; only the last two are final."""

    QUEUED = "queued"
    JUDGING = "judging"
    JUDGED = "judged"
    ABANDONED = "abandoned"


FINAL = (State.JUDGED, State.ABANDONED)

#: As text: a database uses an index of some rows only where it sees which rows are asked for before it has the values.
WAITS = text(f"state = '{State.QUEUED}'")
CLAIMED = text(f"state = '{State.JUDGING}'")

tokens = Table(
    "tokens",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(100), nullable=False, unique=True),
    Column("role", String(20), nullable=False),
    Column("digest", String(64), nullable=False, unique=True),
    Column("kernels_a_day", Integer),
    Column("created_utc", String(32), nullable=False),
    Column("revoked_utc", String(32)),
)

#: Browsers that are signed in, by the digest of what their cookie holds; times in seconds since 1970.
sessions = Table(
    "sessions",
    metadata,
    Column("digest", String(64), primary_key=True),
    Column("token_id", ForeignKey("tokens.id"), nullable=False),
    Column("begun_s", Float, nullable=False),
    Column("used_s", Float, nullable=False),
)

runs = Table(
    "runs",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("name", String(300), nullable=False),
    Column("contender", String(300), nullable=False),
    Column("suite", String(100), nullable=False),
    Column("device_name", String(300), nullable=False),
    Column("tasks_asked", Integer, nullable=False),
    Column("facts", Text, nullable=False),
    Column("rules", String(32), nullable=False, server_default=""),
    Column("ceilings", Text),
    Column("owner_id", ForeignKey("tokens.id")),
    Column("origin", String(64), unique=True),
    Column("created_utc", String(32), nullable=False),
    UniqueConstraint("owner_id", "suite", "name"),
    Index(None, "suite"),
)

submissions = Table(
    "submissions",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("token_id", ForeignKey("tokens.id"), nullable=False),
    Column("request_key", String(200)),
    Column("request_digest", String(64), nullable=False),
    Column("created_utc", String(32), nullable=False),
    UniqueConstraint("token_id", "request_key"),
)

sources = Table(
    "sources",
    metadata,
    Column("hash", String(64), primary_key=True),
    Column("text", Text, nullable=False),
)

judgements = Table(
    "judgements",
    metadata,
    Column("id", Integer, primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("submission_id", ForeignKey("submissions.id")),
    Column("token_id", ForeignKey("tokens.id")),
    Column("suite", String(100), nullable=False),
    Column("rules", String(32), nullable=False, server_default=""),
    Column("task", String(300), nullable=False),
    Column("source_hash", ForeignKey("sources.hash")),
    Column("provenance", Text, nullable=False),
    Column("state", String(20), nullable=False),
    Column("claim", String(32)),
    Column("claimed_until_s", Float),
    Column("tries", Integer, nullable=False),
    Column("created_utc", String(32), nullable=False),
    Column("judged_utc", String(32)),
    Column("kernel_hash", String(64)),
    Column("reviewed_hash", String(64), index=True),
    Column("entry_file", Text),
    Column("dsl", String(40)),
    Column("outcome", String(40)),
    Column("accepted", Boolean),
    Column("cases", Integer),
    Column("passed", Integer),
    Column("speedup_k", Float),
    Column("speedup_e", Float),
    Column("percent_of_floor", Float),
    Column("device_s", Float),
    Column("detail", Text),
    Column("summary", Text),
    Index(None, "state", "suite", "id"),
    # Whoever asks for work looks at what waits, however much is judged.
    Index("ix_judgements_waiting", "suite", "rules", "id", sqlite_where=WAITS, postgresql_where=WAITS),
    Index("ix_judgements_claimed", "suite", "rules", "claimed_until_s", sqlite_where=CLAIMED, postgresql_where=CLAIMED),
    Index(None, "run_id", "task"),
    Index(None, "submission_id"),
    Index(None, "token_id", "created_utc"),
)

verdicts = Table(
    "verdicts",
    metadata,
    Column("judgement_id", ForeignKey("judgements.id"), primary_key=True),
    Column("number", Integer, primary_key=True),
    Column("status", String(40), nullable=False),
    Column("failing", Boolean, nullable=False),
    Column("record", Text, nullable=False),
    Column("work", Text),
    Index(None, "judgement_id", "failing"),
)

#: What people say; the record is a line of ``reviews.jsonl``.
reviews = Table(
    "reviews",
    metadata,
    Column("id", String(32), primary_key=True),
    Column("task", String(300), nullable=False, index=True),
    Column("content_hash", String(64), nullable=False, index=True),
    Column("token_id", ForeignKey("tokens.id")),
    Column("when_utc", String(40), nullable=False),
    Column("record", Text, nullable=False),
)

#: What a review of some content covers besides the entry's file, whose name is no part of the content.
covered_files = Table(
    "covered_files",
    metadata,
    Column("content_hash", String(64), primary_key=True),
    Column("path", String(MOST_PATH_CHARACTERS), primary_key=True),
    Column("source_hash", ForeignKey("sources.hash"), nullable=False),
)

cells = Table(
    "cells",
    metadata,
    Column("judgement_id", ForeignKey("judgements.id"), primary_key=True),
    Column("dtype", String(40), primary_key=True),
    Column("run_id", ForeignKey("runs.id"), nullable=False),
    Column("task", String(300), nullable=False),
    Column("outcome", String(40), nullable=False),
    Column("cases", Integer, nullable=False),
    Column("passed", Integer, nullable=False),
    Column("speedup_k", Float),
    Column("speedup_e", Float),
    Column("percent_of_floor", Float),
    Index(None, "run_id", "task"),
)
