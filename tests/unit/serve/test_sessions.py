"""Browsers that are signed in: what their cookie holds, and when it is worth nothing any more."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import func, select, update
from tests.service import Running, service_in

from opsmith.serve.access import COOKIE
from opsmith.serve.store import database as database_module
from opsmith.serve.store.schema import sessions
from opsmith.serve.store.sessions import ABSOLUTE_S, IDLE_S, NOTED_S, find_session
from opsmith.serve.store.tokens import Role, revoke_token


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A service that judges nothing."""
    with service_in(tmp_path, judging=False) as made:
        yield made


def signed_in(running: Running) -> TestClient:
    """A browser of a reader's."""
    client = TestClient(running.app, follow_redirects=False)
    assert 303 == client.post("/login", content=f"token={running.secrets[Role.READER]}").status_code
    return client


def looks(client: TestClient) -> bool:
    """Whether it is shown the page of runs."""
    answer = client.get("/")
    assert answer.status_code in {200, 303}
    return answer.status_code == 200


def grow_older(running: Running, **seconds: float) -> None:
    """Have all sessions begun or used so much earlier."""
    earlier = {name: sessions.c[name] - value for name, value in seconds.items()}
    with running.service.database.writing() as connection:
        connection.execute(update(sessions).values(earlier))


@pytest.mark.slow
def test_a_cookie_holds_no_token_and_the_database_no_cookie(running: Running) -> None:
    """Neither says what the other one is good for."""
    client = signed_in(running)
    session = client.cookies[COOKIE]
    assert looks(client)
    assert running.secrets[Role.READER] not in session
    with running.service.database.reading() as connection:
        [row] = connection.execute(select(sessions)).all()
    assert session not in row
    assert not looks(TestClient(running.app, follow_redirects=False, cookies={COOKIE: running.secrets[Role.READER]}))
    assert 401 == running.client(None, session).get("/api/runs").status_code


@pytest.mark.slow
def test_a_session_ends_when_it_is_idle_and_when_it_is_old(running: Running) -> None:
    """Whatever the browser keeps; being used puts off the one, and not the other."""
    client = signed_in(running)
    grow_older(running, used_s=IDLE_S - 60)
    assert looks(client)
    grow_older(running, used_s=IDLE_S - 60)
    assert looks(client)
    grow_older(running, used_s=IDLE_S + NOTED_S)
    assert not looks(client)
    client = signed_in(running)
    grow_older(running, begun_s=ABSOLUTE_S)
    assert not looks(client)
    signed_in(running)
    with running.service.database.reading() as connection:
        assert 1 == connection.execute(select(func.count()).select_from(sessions)).scalar_one()


def test_a_session_ends_with_its_token_and_when_its_browser_signs_out(running: Running) -> None:
    """On the server: a copy of the cookie is worth nothing afterwards."""
    client, other = signed_in(running), signed_in(running)
    copy = TestClient(running.app, follow_redirects=False, cookies={COOKIE: client.cookies[COOKIE]})
    client.post("/logout")
    assert (False, True) == (looks(copy), looks(other))
    revoke_token(running.service.database, "a reader")
    assert not looks(other)


def test_looking_works_where_nothing_can_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That it was used is not worth a page."""
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.05)
    with service_in(tmp_path, judging=False) as running:
        client = signed_in(running)
        grow_older(running, used_s=NOTED_S)
        with contextlib.closing(sqlite3.connect(running.service.database.files[0], isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert looks(client)


def test_a_page_that_is_left_open_is_idle(running: Running) -> None:
    """What it is told by itself is no use of it."""
    client = signed_in(running)
    grow_older(running, used_s=IDLE_S / 2)
    with running.service.database.reading() as connection:
        before = connection.execute(select(sessions.c.used_s)).scalar_one()
    assert find_session(running.service.database, client.cookies[COOKIE], uses=False) is not None
    with running.service.database.reading() as connection:
        assert before == connection.execute(select(sessions.c.used_s)).scalar_one()
