"""The database: its schema, who may hold it, and what happens when it is away."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection

from opsmith.errors import BadInput
from opsmith.serve.store import database as module
from opsmith.serve.store import queue
from opsmith.serve.store.database import Database, StoreAway, StoreDamaged
from opsmith.serve.store.reviews import files_to_review
from opsmith.serve.store.runs import list_judgements
from opsmith.serve.store.schema import metadata


def test_the_migrations_make_the_tables_of_the_schema(database_url: str) -> None:
    """Also when they are run again."""
    with contextlib.closing(Database(database_url)) as made:
        made.migrate()
        made.migrate()
        with made.reading() as connection:
            assert [] == compare_metadata(MigrationContext.configure(connection), metadata)


def test_a_kernel_that_could_be_reviewed_before_still_can(database_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Version 4 of the schema kept one file of each, and no name of it."""
    upgrade = command.upgrade
    with contextlib.closing(Database(database_url)) as made:
        with monkeypatch.context() as older:
            older.setattr(command, "upgrade", lambda config, _: upgrade(config, "0004"))
            made.migrate()
        with made.writing() as connection:
            run = "INSERT INTO runs (name, contender, suite, device_name, tasks_asked, facts, created_utc) VALUES "
            connection.exec_driver_sql(f"{run} ('r', 'c', 'smoke', 'd', 1, '{{}}', 'now')")
            connection.exec_driver_sql("INSERT INTO sources (hash, text) VALUES ('h', 'x = 1')")
            row = "INSERT INTO judgements (run_id, suite, task, source_hash, provenance, state, tries, created_utc,"
            values = "(1, 'smoke', 't', 'h', '{}', 'judged', 1, 'now', "
            for reviewed_hash in ("'00'", "NULL"):
                connection.exec_driver_sql(f"{row} reviewed_hash) VALUES {values} {reviewed_hash})")
        made.migrate()
        known, unknown = list_judgements(made, 1)
        assert [("kernel.py", "x = 1")] == [(each.path, each.text) for each in files_to_review(made, known, None)]
        assert [] == files_to_review(made, unknown, None)


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


def test_a_damaged_file_is_called_that(tmp_path: Path) -> None:
    """In one line that says what to do, while the server runs and when it starts; it is no database that is away."""
    path = tmp_path / "a.sqlite"
    with contextlib.closing(Database(f"sqlite:///{path}")) as made:
        made.migrate()
        with made.writing() as connection:
            for number in range(400):
                connection.exec_driver_sql("INSERT INTO sources (hash, text) VALUES (?, ?)", (str(number), "x" * 3000))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(4096 * 40)
        file.write(b"\xff" * 4096 * 200)
    with (
        contextlib.closing(Database(f"sqlite:///{path}")) as made,
        pytest.raises(StoreDamaged, match=r"malformed; stop the servers.*\.recover"),
        made.reading() as connection,
    ):
        connection.exec_driver_sql("SELECT sum(length(text)) FROM sources").all()
    path.write_bytes(b"no database" * 1000)
    with contextlib.closing(Database(f"sqlite:///{path}")) as made, pytest.raises(BadInput, match="not a database"):
        made.migrate()


def test_a_disk_that_is_full_is_a_database_that_is_away(tmp_path: Path) -> None:
    """What is there can be read, and the same request may be made again."""
    with contextlib.closing(Database(f"sqlite:///{tmp_path / 'a.sqlite'}")) as made:
        made.migrate()
        with pytest.raises(StoreAway, match="full"), made.writing() as connection:
            _fill(connection)
        with made.reading() as connection:
            assert [] == connection.exec_driver_sql("SELECT * FROM sources").all()


def _fill(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA max_page_count = 1")
    for number in range(100):
        connection.exec_driver_sql("INSERT INTO sources (hash, text) VALUES (?, zeroblob(9999))", (str(number),))
