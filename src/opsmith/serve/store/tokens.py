"""Who may do what: tokens, of which only digests are kept."""

from __future__ import annotations

import enum
import hashlib
import secrets
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Row, insert, select, update
from sqlalchemy.exc import IntegrityError

from opsmith.errors import BadInput, UnknownName
from opsmith.serve.store.database import Database
from opsmith.serve.store.schema import tokens

#: What every token begins with, so that scanners of leaked secrets can find it.
PREFIX = "opsmith_"


class Role(enum.StrEnum):
    """All may look, an admin may do everything; who submits kernels does not review them, nor the other way."""

    READER = "reader"
    SUBMITTER = "submitter"
    REVIEWER = "reviewer"
    ADMIN = "admin"

    def includes(self, other: Role) -> bool:
        """Whether this role may do what ``other`` may."""
        return other in {Role.READER, self} or self is Role.ADMIN


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its secret.

    Attributes:
        id: in the database.
        name: of whoever holds it.
        role: what it may do.
        kernels_a_day: how many kernels may be submitted with it in 24 hours; None for any number.
        created_utc: ISO 8601 time.
        revoked_utc: since when it is void, or None.
    """

    id: int
    name: str
    role: Role
    kernels_a_day: int | None
    created_utc: str
    revoked_utc: str | None


def now_utc() -> str:
    """ISO 8601, to the millisecond, so that texts sort as times do."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def create_token(database: Database, name: str, role: Role, *, kernels_a_day: int | None = None) -> tuple[Token, str]:
    """Make a token.

    Returns:
        the token and its secret, which is not kept.

    Raises:
        BadInput: there is a token of that name.
    """
    secret = PREFIX + secrets.token_urlsafe(32)
    values = {
        "name": name,
        "role": role,
        "digest": _digest(secret),
        "kernels_a_day": kernels_a_day,
        "created_utc": now_utc(),
    }
    try:
        with database.writing() as connection:
            row = connection.execute(insert(tokens).values(values).returning(tokens)).one()
    except IntegrityError as exc:
        raise BadInput(f"there is a token named {name!r}, perhaps a revoked one; choose another name") from exc
    return token_of(row), secret


def find_token(database: Database, secret: str) -> Token | None:
    """The token of a secret; None where there is none or it was revoked."""
    if not secret.startswith(PREFIX):
        return None
    with database.reading() as connection:
        row = connection.execute(
            select(tokens).where(tokens.c.digest == _digest(secret), tokens.c.revoked_utc.is_(None))
        ).one_or_none()
    return None if row is None else token_of(row)


def is_valid(database: Database, token: Token) -> bool:
    """Whether a token was not revoked since it was found."""
    wanted = select(tokens.c.id).where(tokens.c.id == token.id, tokens.c.revoked_utc.is_(None))
    with database.reading() as connection:
        return connection.execute(wanted).one_or_none() is not None


def list_tokens(database: Database) -> list[Token]:
    """Every token, revoked ones too, in the order in which they were made."""
    with database.reading() as connection:
        return [token_of(row) for row in connection.execute(select(tokens).order_by(tokens.c.id))]


def revoke_token(database: Database, name: str) -> Token:
    """Make a token void; its submissions stay.

    Raises:
        UnknownName: there is no valid token of that name.
    """
    with database.writing() as connection:
        row = connection.execute(
            update(tokens)
            .where(tokens.c.name == name, tokens.c.revoked_utc.is_(None))
            .values(revoked_utc=now_utc())
            .returning(tokens)
        ).one_or_none()
    if row is None:
        raise UnknownName("token", name, [token.name for token in list_tokens(database) if not token.revoked_utc])
    return token_of(row)


def _digest(secret: str) -> str:
    # A secret is 32 random bytes: nothing is gained by a slow hash.
    return hashlib.sha256(secret.encode()).hexdigest()


def token_of(row: Row[Any]) -> Token:
    """The token of a row of the table."""
    return Token(
        id=row.id,
        name=row.name,
        role=Role(row.role),
        kernels_a_day=row.kernels_a_day,
        created_utc=row.created_utc,
        revoked_utc=row.revoked_utc,
    )
