"""Connections as clients and attackers make them: real ones, to a server on loopback."""

from __future__ import annotations

import contextlib
import json
import logging
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import pytest
from tests.service import Running, kernel, service_in, wait_until

from opsmith.errors import BadInput
from opsmith.serve import connections as module
from opsmith.serve.access import COOKIE, counted_as
from opsmith.serve.connections import Connections, parse_proxies
from opsmith.serve.pages import views
from opsmith.serve.server import Server
from opsmith.serve.settings import Limits
from opsmith.serve.store.tokens import Role, create_token, revoke_token

#: What nobody here exceeds by accident.
WIDE: dict[str, Any] = {"requests_per_s": 1e4, "burst": 10_000, "refused_per_minute": 10_000}


@contextlib.contextmanager
def serving(running: Running, proxies: tuple[str, ...] = ()) -> Iterator[str]:
    """Serve behind a port of this machine; its URL."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server = Server(running.service, proxies)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [taken]})
        thread.start()
        wait_until(lambda: server.started)
        try:
            yield f"http://127.0.0.1:{taken.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def served(folder: Path, *, proxies: tuple[str, ...] = (), **limits: Any) -> Iterator[tuple[Running, str]]:
    """A service behind a port of this machine, and its URL."""
    with service_in(folder, limits=Limits(**(WIDE | limits))) as running, serving(running, proxies) as url:
        yield running, url


def connected(url: str) -> socket.socket:
    """A connection on which nothing was said yet."""
    return socket.create_connection(("127.0.0.1", int(url.rpartition(":")[2])), timeout=10)


def answer(connection: socket.socket) -> bytes:
    """All that is answered until the server closes the connection; nothing where it aborts it."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while data := connection.recv(1 << 16):
            said += data
    return said


def healthy(connection: socket.socket) -> bool:
    """Whether ``/healthz``, which was asked for, is answered, to the last byte."""
    said = b""
    while data := connection.recv(1 << 16):
        said += data
        if said.endswith(b'"ok"}'):
            return b"200 OK" in said
    return False


@pytest.mark.slow
def test_bad_tokens_do_not_lock_out_good_ones(tmp_path: Path) -> None:
    """Of the same address: a colleague's script with an old token costs nobody else a request."""
    with service_in(tmp_path, limits=Limits(refused_per_minute=6)) as running:  # One comes back in 10 s.
        guesser = running.client(None, "opsmith_guess")
        assert 429 == [guesser.get("/api/runs").status_code for _ in range(9)][-1]
        assert 200 == running.client().get("/api/runs").status_code
        page = running.client(None)
        assert 429 == page.get("/").status_code
        assert (
            303
            == page.post("/login", content=f"token={running.secrets[Role.READER]}", follow_redirects=False).status_code
        )
        assert 200 == page.get("/").status_code


@pytest.mark.slow
def test_a_client_cannot_choose_its_address(tmp_path: Path) -> None:
    """A header is believed from proxies that the server was told of, and from nobody else."""
    for proxies, last in (((), 429), (("127.0.0.0/8",), 401)):
        folder = tmp_path / str(last)
        folder.mkdir()
        with served(folder, proxies=proxies, refused_per_minute=2) as (_, url), httpx2.Client(base_url=url) as http:
            told = [http.get("/api/runs", headers={"X-Forwarded-For": f"10.0.0.{n}"}).status_code for n in range(5)]
            assert [401, 401, last] == [*told[:2], told[4]]


def test_addresses_are_counted_as_clients_have_them() -> None:
    """One of IPv6 has a whole network of them."""
    assert ["192.0.2.1", "192.0.2.1"] == [counted_as(each) for each in ("192.0.2.1", "::ffff:192.0.2.1")]
    assert 1 == len({counted_as(f"2001:db8::{number:x}") for number in range(9)})
    assert "unix" == counted_as("unix")
    assert ("10.0.0.0/8", "192.0.2.1/32") == parse_proxies(["10.0.0.0/8", "192.0.2.1"])
    with pytest.raises(BadInput, match="--trusted-proxy"):
        parse_proxies(["proxy.example"])


def test_whoever_says_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before its headers, within them, within its body, and between requests; others are served all the while."""
    monkeypatch.setattr(module, "HEADERS_S", 1.0)
    begun = b"GET /healthz HTTP/1.1\r\nHost: x\r\n"
    body = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\ntoken="
    with served(tmp_path, request_s=1.0) as (_, url), contextlib.ExitStack() as held:
        quiet, slow, late, idle, other = (held.enter_context(connected(url)) for _ in range(5))
        slow.sendall(begun)
        late.sendall(body)
        idle.sendall(begun + b"\r\n")
        assert healthy(idle)
        idle.sendall(b"GET")
        started = time.monotonic()
        other.sendall(begun + b"\r\n")
        assert healthy(other)
        assert [b"", b"", b""] == [answer(each) for each in (quiet, slow, idle)]
        assert b"408 Request Timeout" in answer(late)
        assert time.monotonic() - started < 8


@pytest.mark.slow
def test_whoever_takes_nothing_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that asks and never reads keeps neither the connection nor what was made for it."""
    monkeypatch.setattr(module, "TAKEN_S", 0.3)
    closed: list[str] = []
    monkeypatch.setattr(Connections, "give_back", lambda _, address: closed.append(address))
    with served(tmp_path) as (running, url), connected(url) as connection:
        source = kernel("right " + "x" * 1_000_000)
        made = running.client().post("/api/submissions", json={"tasks": ["relu.default"], "source": source}).json()
        path = f"/api/judgements/{made['tasks'][0]['judgement']}/source"
        token = running.secrets[Role.READER]
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n".encode() * 20)
        wait_until(lambda: closed)


def test_an_address_has_so_many_connections(tmp_path: Path) -> None:
    """One more is closed at once, and there is room again when one of them ends; a proxy has any number."""
    with served(tmp_path, connections=3) as (_, url), contextlib.ExitStack() as held:
        first = connected(url)
        for _ in range(2):
            held.enter_context(connected(url))
        time.sleep(0.1)
        with connected(url) as further:
            assert b"" == answer(further)
        first.close()
        wait_until(lambda: _is_answered(url))
    counted = Connections(1, ["127.0.0.1/32"])
    assert [True, True, True, False] == [counted.take(each) for each in ("127.0.0.1", "127.0.0.1", "::1", "::1")]
    counted.give_back("::1")
    assert counted.take("::1")


def _is_answered(url: str) -> bool:
    with connected(url) as connection, contextlib.suppress(ConnectionError):
        connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
        return healthy(connection)
    return False


def test_connections_leave_files_for_judging(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many addresses they come from."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (8, 8))
    counted = Connections(100)
    assert 4 == sum(counted.take(f"192.0.2.{number}") for number in range(9))


@pytest.mark.slow
def test_logins_that_are_given_up_are_no_errors(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """A browser that is closed in between leaves no traceback in the log."""
    begun = b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 50\r\n\r\ntoken="
    caplog.set_level(logging.WARNING)
    with served(tmp_path) as (running, url):
        for _ in range(20):
            with connected(url) as connection:
                connection.sendall(begun)
        wait_until(lambda: 'route="/login",status="400"} 20.0' in running.service.metrics.text().decode())
    assert [] == caplog.records


def test_a_number_that_no_row_has_is_refused(tmp_path: Path) -> None:
    """In every query, by every database: nothing ends in a 500, nor in the middle of a stream."""
    with service_in(tmp_path, judging=False) as running:
        client = running.client()
        client.post("/login", content=f"token={running.secrets[Role.READER]}", follow_redirects=False)
        for path in ("/?before={}", "/compare?before={}&after=1", "/live?run={}", "/api/runs?after={}", "/runs/{}"):
            for number in ("99999999999999999999", "-2", "2147483648", "9" * 5000, "x"):
                assert 422 == client.get(path.format(number)).status_code, (path, number)


def test_what_no_database_keeps_is_refused(tmp_path: Path) -> None:
    """PostgreSQL has no zero character; and an event's number is one, or the beginning."""
    with service_in(tmp_path) as running:
        client = running.client()
        client.post("/login", content=f"token={running.secrets[Role.READER]}", follow_redirects=False)
        for path in ("/?text=%00", "/?suite=%00", "/leaderboard?suite=%00", "/kernels/1?status=%00"):
            assert 422 == client.get(path).status_code
        body = {"kernels": [{"task": "relu.default", "source": kernel("right")}], "wait_s": 10}
        made = client.post("/api/rewards", json=body).json()["submission"]
        for last in (f"1.a.{'9' * 30}", f"{'9' * 5000}.end", f"1.a.{2**31}"):
            stream = client.get(f"/api/submissions/{made}/events", headers={"Last-Event-ID": last}).text
            assert (1, 1) == (stream.count("event: verdict"), stream.count("event: end"))


def test_no_answer_is_kept_or_taken_for_something_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Least of all one that holds a new token's secret; what is said of a mistake of ours says nothing else."""
    with service_in(tmp_path, limits=Limits(request_bytes=2000)) as running:
        admin = running.client(Role.ADMIN)
        monkeypatch.setattr("opsmith.serve.store.boards.leaderboard", lambda *_: 1 // 0)
        found = [
            admin.post("/api/tokens", json={"name": "new", "role": "reader"}),
            admin.get("/api/runs"),
            admin.get("/api/nothing"),
            admin.get("/healthz"),
            admin.get("/metrics"),
            admin.get("/openapi.json"),
            admin.post("/api/submissions", content=b"x" * 3000),
            admin.get("/api/leaderboards/opinfo"),
            running.client(None).get("/api/runs"),
            running.client(None).get("/", follow_redirects=False),
            running.client(None).post(
                "/login", content=f"token={running.secrets[Role.READER]}", follow_redirects=False
            ),
        ]
        assert [201, 200, 404, 200, 200, 200, 413, 500, 401, 303, 303] == [each.status_code for each in found]
        for each in found:
            assert ("nosniff", "no-store") == (each.headers["X-Content-Type-Options"], each.headers["Cache-Control"])
        assert "division" not in found[7].text


def told(lines: Iterator[str], beginning: str) -> list[str]:
    """The lines of a stream that begin so, until it ends."""
    return [line for line in lines if line.startswith(beginning)]


@pytest.mark.slow
def test_a_revoked_token_hears_nothing_more(tmp_path: Path) -> None:
    """Neither of its submission nor of what is live: a stream that began before ends at its next message."""
    with served(tmp_path) as (running, url):
        database = running.service.database
        secrets = [create_token(database, name, Role.SUBMITTER)[1] for name in ("caller", "looker")]
        sources = [kernel(f"right slow=0.2 {number}") for number in range(30)]
        body = {"kernels": [{"task": "relu.default", "source": source} for source in sources]}
        made = running.client(None, secrets[0]).post("/api/rewards", json=body).json()["submission"]
        headers = {"Authorization": f"Bearer {secrets[0]}"}
        with httpx2.Client(base_url=url) as browser:
            browser.post("/login", content=f"token={secrets[1]}")
            cookies = dict(browser.cookies)
        with (
            httpx2.stream("GET", f"{url}/api/submissions/{made}/events", headers=headers) as events,
            httpx2.stream("GET", f"{url}/live", cookies=cookies) as live,
        ):
            heard, seen = events.iter_lines(), live.iter_lines()
            assert ("event: state", True) == (next(heard), next(seen).startswith("data: "))
            for name in ("caller", "looker"):
                revoke_token(database, name)
            started = time.monotonic()
            # What was on its way when it was revoked is one look's, at most.
            assert len(told(heard, "event: judged")) <= 4
            assert len(told(seen, "data: ")) <= 1
            assert time.monotonic() - started < 4


def test_what_is_live_has_an_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A page that is left open asks again, and is asked who it is."""
    monkeypatch.setattr(views, "LIVE_S", 0.05)
    with served(tmp_path, live_s=0.3) as (running, url), httpx2.Client(base_url=url) as browser:
        browser.post("/login", content=f"token={running.secrets[Role.READER]}")
        assert COOKIE in browser.cookies
        lines = browser.get("/live?run=1").text.splitlines()
        assert {} == json.loads(lines[0].removeprefix("data: "))["runs"]
        assert ": the same" in lines
        browser.post("/logout")
        assert 303 == browser.get("/live").status_code


@pytest.mark.slow
def test_a_server_that_ends_lets_go_whoever_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A stream or a wait that has hours left is ended, and not torn down with a traceback in the log."""
    caplog.set_level(logging.WARNING)
    monkeypatch.setattr("opsmith.serve.server.GRACE_S", 15)  # However busy the machine is.
    heard: dict[str, tuple[str, str]] = {}

    def hear(name: str, url: str, **more: Any) -> None:
        answer = httpx2.get(url, timeout=20, **more)
        heard[name] = str(answer.status_code), answer.text

    with service_in(tmp_path, judging=False, limits=Limits(**WIDE)) as running, contextlib.ExitStack() as held:
        body = {"kernels": [{"task": "relu.default", "source": kernel("right")}]}
        made = running.client().post("/api/rewards", json=body).json()["submission"]
        client = running.client()
        client.post("/login", content=f"token={running.secrets[Role.READER]}", follow_redirects=False)
        headers = {"Authorization": f"Bearer {running.secrets[Role.READER]}"}
        url = held.enter_context(serving(running))
        asked = {
            "events": f"/api/submissions/{made}/events",
            "rewards": f"/api/rewards/{made}?wait_s=200",
            "live": "/live",
        }
        threads = [
            threading.Thread(
                target=hear, args=(name, url + path), kwargs={"headers": headers, "cookies": dict(client.cookies)}
            )
            for name, path in asked.items()
        ]
        for thread in threads:
            thread.start()
        time.sleep(1.0)
        held.close()
        for thread in threads:
            thread.join()
    assert {"200"} == {status for status, _ in heard.values()}
    assert "event: state" in heard["events"][1]
    assert [] == caplog.records
