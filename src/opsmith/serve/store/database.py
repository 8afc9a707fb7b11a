"""The connection to SQLite or PostgreSQL: transactions, errors of a database that is away, and its schema.

SQLite serves the servers of one machine; PostgreSQL serves any, whose clocks agree to within a few seconds.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from alembic import command
from alembic.config import Config
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, event
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, InterfaceError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from opsmith.errors import BadInput, InternalError, MissingDependency

#: A writer of SQLite waits so long for another one.
BUSY_TIMEOUT_S = 20.0
#: Numbers of opsmith's own among PostgreSQL's advisory locks.
_MIGRATION_LOCK, _TURN_LOCK = 7_205_113, 7_205_114
#: What SQLite says of a file that is damaged, or none of its own.
_DAMAGED = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB)
_MENDED = "stop the servers, put a copy in its place or mend it with `sqlite3 FILE .recover`, and start them again"
#: What PostgreSQL says where a standby has taken over, or has not yet.
_READ_ONLY = "25006"


class StoreAway(InternalError):
    """The database does not answer; the same request may be made again."""


class StoreDamaged(InternalError):
    """The database cannot be read: its file is damaged."""


class Database:
    """Transactions on one database.

    Args:
        url: ``sqlite:///file`` or ``postgresql://user@host/name``.

    Raises:
        BadInput: the URL is none, or of another kind of database.
        MissingDependency: the driver is not installed.
    """

    def __init__(self, url: str) -> None:
        self._url = _parsed(url)
        self.is_sqlite = self._url.get_backend_name() == "sqlite"
        self._lock: int | None = None
        try:
            if self.is_sqlite:
                self._engine = create_engine(self._url, connect_args={"timeout": BUSY_TIMEOUT_S}, pool_size=20)
                event.listen(self._engine, "connect", _prepare_sqlite)
                event.listen(self._engine, "begin", _begin_sqlite)
            else:
                # A connection that was cut while nobody used it is replaced before it is used.
                self._engine = create_engine(self._url, pool_pre_ping=True, pool_size=20, max_overflow=20)
        except ModuleNotFoundError as exc:
            raise MissingDependency(exc.name or "psycopg", extra="serve") from exc
        self._writer = self._engine.execution_options(writes=True)

    @contextlib.contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that sees one state of the database.

        Raises:
            StoreAway: the database does not answer.
        """
        with _told_apart(), self._engine.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that is committed as a whole, or not at all.

        Raises:
            StoreAway: the database does not answer; whether it was committed is not known.
        """
        with _told_apart(), self._writer.begin() as connection:
            yield connection

    @contextlib.contextmanager
    def writing_in_turn(self) -> Iterator[Connection]:
        """As :meth:`writing`, while nobody else is in this block, on any server.

        Raises:
            StoreAway: the database does not answer; whether it was committed is not known.
        """
        with self.writing() as connection:
            if not self.is_sqlite:  # It has one writer anyway.
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_TURN_LOCK})")
            yield connection

    @property
    def files(self) -> list[Path]:
        """Where a SQLite database lies; nothing of another one."""
        path = self._url.database
        if not self.is_sqlite or path is None:
            return []
        return [Path(f"{path}{ending}").absolute() for ending in ("", "-wal", "-shm", ".lock")]

    @contextlib.contextmanager
    def starting(self) -> Iterator[bool]:
        """Become one of the servers of this database, until this process ends; others that start wait for the block.

        Yields:
            whether no other server has it, as far as can be known: that of SQLite's file, on this machine.

        Raises:
            BadInput: the folder of a SQLite file is not there, or may not be written to.
        """
        path = self._url.database
        if not self.is_sqlite or path is None:
            yield False
            return
        try:
            self._lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise BadInput(f"{path} cannot be used: {exc.strerror}") from exc
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            is_alone = True
        except BlockingIOError:
            fcntl.flock(self._lock, fcntl.LOCK_SH)
            is_alone = False
        yield is_alone
        fcntl.flock(self._lock, fcntl.LOCK_SH)

    def migrate(self) -> None:
        """Bring the tables to this version's schema.

        Raises:
            BadInput: there is no such database, or a newer opsmith wrote it.
        """
        config = Config()
        config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
        try:
            with self._writer.begin() as connection:
                if not self.is_sqlite:  # Several servers may start at a time.
                    connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
                config.attributes["connection"] = connection
                command.upgrade(config, "head")
        except CommandError as exc:
            raise BadInput(f"{self} was written by another version of opsmith: {exc}; use that version") from exc
        except (DBAPIError, sqlite3.Error) as exc:
            raise BadInput(f"{self} cannot be used: {_reason(exc)}") from exc

    def close(self) -> None:
        """Give back every connection, and the file."""
        self._engine.dispose()
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __str__(self) -> str:
        return self._url.render_as_string(hide_password=True)


def _parsed(text: str) -> URL:
    try:
        url = make_url(text)
        backend = url.get_backend_name()
    except (ArgumentError, NoSuchModuleError) as exc:
        raise BadInput(f"{text!r} is no database URL; write sqlite:///FILE or postgresql://USER@HOST/NAME") from exc
    if backend == "postgresql":
        return url.set(drivername="postgresql+psycopg")
    if backend != "sqlite" or not url.database or url.database == ":memory:":
        raise BadInput(f"--db takes sqlite:///FILE or postgresql://USER@HOST/NAME, not {text!r}")
    return url


def _prepare_sqlite(connection: Any, _record: object) -> None:
    connection.isolation_level = None  # Transactions are begun below, and not by the driver.
    for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
        connection.execute(f"PRAGMA {pragma}")
    connection.create_function("ln", 1, _logarithm, deterministic=True)  # Not every build of SQLite has it.


def _logarithm(value: float | None) -> float | None:
    return None if value is None else math.log(value)


def _begin_sqlite(connection: Connection) -> None:
    # A transaction that reads first and writes later could not be taken up again when another one wrote in between.
    writes = connection.get_execution_options().get("writes")
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


@contextlib.contextmanager
def _told_apart() -> Iterator[None]:
    """Tell a database that is away, or damaged, from a statement that is wrong."""
    try:
        yield
    except PoolTimeout as exc:
        raise StoreAway(_reason(exc)) from exc
    except (DBAPIError, sqlite3.Error) as exc:
        cause = exc.orig if isinstance(exc, DBAPIError) else exc
        if getattr(cause, "sqlite_errorcode", 0) & 0xFF in _DAMAGED:
            raise StoreDamaged(f"the database is damaged: {_reason(exc)}; {_MENDED}") from exc
        invalidated = isinstance(exc, DBAPIError) and exc.connection_invalidated
        is_away = isinstance(exc, OperationalError | InterfaceError | sqlite3.OperationalError)
        if is_away or invalidated or getattr(cause, "sqlstate", None) == _READ_ONLY:
            raise StoreAway(_reason(exc)) from exc
        raise


def _reason(exc: Exception) -> str:
    return str(getattr(exc, "orig", None) or exc).strip().partition("\n")[0]
