"""Several servers on one database: whoever is asked tells what any of them found."""

from __future__ import annotations

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import msgspec
import pytest
from tests.campaigns import ReadingSession
from tests.service import SUITE, Running, kernel, service_in, wait_until
from tests.unit.serve.test_server import settings

from opsmith.errors import BadInput
from opsmith.pipeline import Silent
from opsmith.serve import server as module
from opsmith.serve.judging import rules_of
from opsmith.serve.server import serve
from opsmith.serve.store.database import Database
from opsmith.serve.store.submissions import find_submission
from opsmith.serve.store.tokens import list_tokens


def events(running: Running, submission: str, last: str = "") -> list[str]:
    """The names of all events of a submission, from a position on."""
    headers = {"Last-Event-ID": last} if last else {}
    text = running.client().get(f"/api/submissions/{submission}/events", headers=headers).text
    return [line.removeprefix("event: ") for line in text.splitlines() if line.startswith("event: ")]


def submitted(running: Running, comment: str = "right") -> str:
    """A kernel in the queue."""
    asked = {"tasks": ["relu.default"], "source": kernel(comment), "run": "shared"}
    answer = running.client().post("/api/submissions", json=asked)
    assert 202 == answer.status_code, answer.text
    return str(answer.json()["id"])


@pytest.mark.slow
def test_what_one_server_judges_is_heard_at_the_other(tmp_path: Path) -> None:
    """Its verdicts when it is judged, its reward, and its place on the leaderboard."""
    with service_in(tmp_path, judging=False) as asked, service_in(tmp_path, prefix="b") as judging:
        submission = submitted(asked, "right speed=2")
        heard = events(asked, submission)
        assert ["verdict", "judged", "end"] == [name for name in heard if name != "state"]
        assert [] == asked.judge.judged
        assert 1 == len(judging.judge.judged)
        [reward] = asked.client().get(f"/api/rewards/{submission}").json()["rewards"]
        assert 2.0 == reward["value"]
        boards = [each.client().get(f"/api/leaderboards/{SUITE}").json() for each in (asked, judging)]
        assert boards[0] == boards[1]
        assert 1 == boards[0][0]["correct"]


def test_what_a_killed_server_was_writing_does_not_end_the_next_one(tmp_path: Path) -> None:
    """A source that was not all written lies where the next server writes the same one."""
    for number in range(3):
        left = tmp_path / "sources" / str(number)
        left.mkdir(parents=True)
        (left / ".kernel.py.9za84bb7").write_text("half a ker")
    with service_in(tmp_path) as running:
        assert "judged" in set(events(running, submitted(running)))
        assert "judged" in set(events(running, submitted(running, "right speed=2")))


@pytest.mark.slow
def test_who_comes_back_to_another_server_hears_what_was_begun_again(tmp_path: Path) -> None:
    """Verdicts of a claim that ended with its server are void; those of the claim that counts are not told twice."""
    with service_in(tmp_path) as running:
        submission = submitted(running)
        database = running.service.database
        wait_until(lambda: (known := find_submission(database, submission)) is not None and known.is_final)
        known = find_submission(database, submission)
        assert known is not None
        (standing,) = known.standings
        assert standing.claim is not None
        assert "verdict" in events(running, submission, f"{standing.id}.deadbeef.1")
        assert "verdict" not in events(running, submission, f"{standing.id}.{standing.claim[:8]}.1")


def test_a_run_is_not_judged_in_two_ways(tmp_path: Path) -> None:
    """A request for it at a server with other options is refused, and says what to do."""
    with service_in(tmp_path, judging=False) as first, service_in(tmp_path, judging=False, prefix="b") as second:
        submitted(first)
        service = second.service
        facts = {SUITE: msgspec.structs.replace(service.facts[SUITE], rules="others")}
        second.app.state.service = msgspec.structs.replace(service, facts=facts)
        asked = {"tasks": ["relu.default"], "source": kernel("right"), "run": "shared"}
        secret = first.secrets[next(role for role in first.secrets if role == "submitter")]
        answer = second.client(None, secret).post("/api/submissions", json=asked)
        assert 409 == answer.status_code
        assert "name another run" in answer.json()["detail"]


def test_servers_of_one_queue_may_have_several_devices() -> None:
    """What decides verdicts must agree, and where times are told the kind of device; not its number, nor paths."""
    judge, timing = ReadingSession(()), ReadingSession((), timing="quick")
    on_second = ReadingSession(())
    judge.options = msgspec.structs.replace(judge.options, device="cuda")
    on_second.options = msgspec.structs.replace(judge.options, device="cuda:1")
    other = ReadingSession(())
    other.options = msgspec.structs.replace(judge.options, policy="any")
    elsewhere = ReadingSession((), timing="quick")
    elsewhere.environment = msgspec.structs.replace(timing.environment, device_name="another")
    assert rules_of(judge) == rules_of(on_second)  # type: ignore[arg-type]
    assert rules_of(judge) != rules_of(other)  # type: ignore[arg-type]
    assert rules_of(timing) != rules_of(elsewhere)  # type: ignore[arg-type]


def test_servers_may_start_at_the_same_time(database_url: str) -> None:
    """One makes the tables, the others find them."""
    barrier = threading.Barrier(4)

    def start(_: int) -> object:
        with contextlib.closing(Database(database_url)) as database:
            barrier.wait()
            with database.starting():
                database.migrate()
            return list_tokens(database)

    with ThreadPoolExecutor(4) as pool:
        assert [[]] * 4 == list(pool.map(start, range(4)))


def test_a_folder_has_one_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A second one would remove what the first one judges; it is told what to do."""
    tries: list[str] = []

    def second(*_: object, **__: object) -> None:
        with pytest.raises(BadInput, match="--data of its own"):
            serve(settings(tmp_path), progress=Silent(), ready=pytest.fail)
        tries.append("refused")
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "_open_sessions", second)
    with pytest.raises(KeyboardInterrupt):
        serve(settings(tmp_path), progress=Silent(), ready=pytest.fail)
    assert ["refused"] == tries
