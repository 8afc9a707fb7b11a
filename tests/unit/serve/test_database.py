"""The database: its schema, who may hold it, and what happens when it is away."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext

from opsmith.errors import BadInput
from opsmith.serve.store import database as module
from opsmith.serve.store import queue
from opsmith.serve.store.database import Database, StoreAway
from opsmith.serve.store.schema import metadata


def test_the_migrations_make_the_tables_of_the_schema(tmp_path: Path) -> None:
    """Also when they are run again."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'a.sqlite'}")) as made:
        made.migrate()
        made.migrate()
        with made.reading() as connection:
            assert [] == compare_metadata(MigrationContext.configure(connection), metadata)


@pytest.mark.parametrize("url", ["mysql://a/b", "sqlite://", "sqlite:///:memory:", "nonsense", ""])
def test_another_kind_of_database_is_refused(url: str) -> None:
    """In one line that says what to write."""
    with pytest.raises(BadInput, match=r"sqlite:///FILE"):
        Database(url)


def test_a_server_knows_whether_it_is_alone_on_a_file(tmp_path: Path) -> None:
    """Only then is nobody judging what is claimed; a second one waits until the first has made the tables."""
    url = f"sqlite:///{tmp_path / 'a.sqlite'}"
    order: list[str] = []

    def start_second(database: Database) -> None:
        with database.starting() as is_alone:
            order.append(f"second, alone: {is_alone}")

    with contextlib.closing(Database(url)) as first, contextlib.closing(Database(url)) as second:
        with first.starting() as is_alone:
            thread = threading.Thread(target=start_second, args=(second,))
            thread.start()
            thread.join(0.2)
            order.append(f"first, alone: {is_alone}")
        thread.join()
    assert ["first, alone: True", "second, alone: False"] == order
    with contextlib.closing(Database(url)) as third, third.starting() as is_alone:
        assert is_alone


def test_a_file_whose_folder_is_missing_is_refused_in_one_line(tmp_path: Path) -> None:
    """The user's mistake, and no traceback."""
    with (
        contextlib.closing(Database(f"sqlite:///{tmp_path / 'missing' / 'a.sqlite'}")) as made,
        pytest.raises(BadInput, match="No such file"),
        made.starting(),
    ):
        pass


def test_what_an_older_version_has_queued_is_adopted(tmp_path: Path) -> None:
    """It was submitted before options were written down, and is judged by the first server that starts."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'a.sqlite'}")) as made:
        made.migrate()
        with made.writing() as connection:
            run = "INSERT INTO runs (name, contender, suite, device_name, tasks_asked, facts, created_utc) VALUES "
            connection.exec_driver_sql(f"{run} ('r', 'c', 'smoke', 'd', 1, '{{}}', 'now')")
            kept = "INSERT INTO sources (hash, text) VALUES ('h', 'x')"
            connection.exec_driver_sql(kept)
            row = "INSERT INTO judgements (run_id, suite, task, source_hash, provenance, state, tries, created_utc)"
            connection.exec_driver_sql(f"{row} VALUES (1, 'smoke', 't', 'h', '{{}}', 'queued', 0, 'now')")
        assert queue.claim_next(made, "smoke", "mine") is None
        assert 1 == queue.count_foreign(made, "smoke", "mine")
        queue.adopt(made, "smoke", "mine")
        assert 0 == queue.count_foreign(made, "smoke", "mine")
        assert queue.claim_next(made, "smoke", "mine") is not None


def test_a_file_of_a_newer_version_is_left_alone(tmp_path: Path) -> None:
    """It is not migrated backwards."""
    path = tmp_path / "a.sqlite"
    with contextlib.closing(Database(f"sqlite:///{path}")) as made:
        made.migrate()
        with contextlib.closing(sqlite3.connect(path)) as connection, connection:
            connection.execute("UPDATE alembic_version SET version_num = '9999'")
        with pytest.raises(BadInput, match="another version of opsmith"):
            made.migrate()


def test_a_database_that_is_locked_is_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asked may ask again, and the lock leaves nothing behind."""
    monkeypatch.setattr(module, "BUSY_TIMEOUT_S", 0.05)
    path = tmp_path / "a.sqlite"
    with contextlib.closing(Database(f"sqlite:///{path}")) as made:
        made.migrate()
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN EXCLUSIVE")
            with pytest.raises(StoreAway), made.writing():
                pass
            other.execute("ROLLBACK")
        with made.writing() as connection:
            connection.exec_driver_sql("DELETE FROM runs")
