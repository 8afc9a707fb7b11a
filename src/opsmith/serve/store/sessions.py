"""Browsers that are signed in: sessions, which end by themselves, of which only digests are kept."""

from __future__ import annotations

import contextlib
import hashlib
import secrets
import time

from sqlalchemy import ColumnElement, and_, delete, insert, select, update

from opsmith.serve.store.database import Database, StoreAway
from opsmith.serve.store.schema import sessions, tokens
from opsmith.serve.store.tokens import Token, token_of

#: A session ends so long after it was last used, and so long after it was begun.
IDLE_S = 8 * 3600.0
ABSOLUTE_S = 7 * 24 * 3600.0
#: That it is used is written down so often, at most.
NOTED_S = 60.0


def begin_session(database: Database, token: Token) -> str:
    """Sign in with a token; returns the session's id, which is not kept. Sessions that are over are forgotten."""
    made, now = secrets.token_urlsafe(32), time.time()
    with database.writing() as connection:
        connection.execute(delete(sessions).where(~_holds(now)))
        values = {"digest": _digest(made), "token_id": token.id, "begun_s": now, "used_s": now}
        connection.execute(insert(sessions).values(values))
    return made


def find_session(database: Database, session: str, *, uses: bool = True) -> Token | None:
    """The token that a session was begun with; None where it is over, or its token was revoked.

    Args:
        database: has the sessions.
        session: its id.
        uses: whether it is not idle by being asked for.
    """
    digest, now = _digest(session), time.time()
    with database.reading() as connection:
        row = connection.execute(
            select(tokens, sessions.c.used_s)
            .join(sessions, sessions.c.token_id == tokens.c.id)
            .where(sessions.c.digest == digest, tokens.c.revoked_utc.is_(None), _holds(now))
        ).one_or_none()
    if row is None:
        return None
    if uses and not 0 <= now - row.used_s < NOTED_S:
        with contextlib.suppress(StoreAway), database.writing() as connection:  # Looking works all the same.
            connection.execute(update(sessions).where(sessions.c.digest == digest).values(used_s=now))
    return token_of(row)


def end_session(database: Database, session: str) -> None:
    """Sign out."""
    with database.writing() as connection:
        connection.execute(delete(sessions).where(sessions.c.digest == _digest(session)))


def _holds(now: float) -> ColumnElement[bool]:
    """Of a session: neither idle for too long nor too old; one of a later time was begun by a wrong clock."""
    began = sessions.c.begun_s
    return and_(sessions.c.used_s > now - IDLE_S, began > now - ABSOLUTE_S, began < now + IDLE_S)


def _digest(session: str) -> str:
    return hashlib.sha256(session.encode()).hexdigest()
