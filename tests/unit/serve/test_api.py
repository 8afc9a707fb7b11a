"""The routes: who gets in, what is refused, and what comes back."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.service import SUITE, Running, kernel, service_in, wait_until

from opsmith.serve.settings import Limits
from opsmith.serve.store import database as database_module
from opsmith.serve.store.tokens import Role, create_token, revoke_token


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A service that judges."""
    with service_in(tmp_path) as made:
        yield made


def submission(*tasks: str, comment: str = "right", **more: Any) -> dict[str, Any]:
    """A request that submits a kernel."""
    return {"tasks": list(tasks or ("relu.default",)), "source": kernel(comment), **more}


def test_a_kernel_is_submitted_judged_and_looked_at(running: Running) -> None:
    """From the request to the verdicts, and to the run and the leaderboard that have it."""
    client = running.client()
    origin = {"model": "m-1", "author": "me"}
    made = client.post("/api/submissions", json=submission(run="first", provenance=origin))
    assert 202 == made.status_code
    wait_until(lambda: client.get(f"/api/submissions/{made.json()['id']}").json()["final"])
    [standing] = client.get(f"/api/submissions/{made.json()['id']}").json()["tasks"]
    assert ("judged", "PASSED", True) == (standing["state"], standing["outcome"], standing["accepted"])
    assert 1 == standing["summary"]["cases"]
    [verdict] = client.get(f"/api/judgements/{standing['judgement']}/verdicts").json()["items"]
    assert "PASSED" == verdict["status"]
    assert kernel("right") == client.get(f"/api/judgements/{standing['judgement']}/source").text
    [run] = client.get("/api/runs").json()["items"]
    assert ("first", "m-1", 1, 1) == (run["name"], run["contender"], run["judged"], run["accepted"])
    [place] = client.get(f"/api/leaderboards/{SUITE}").json()
    assert pytest.approx(1 / 3) == place["fast"]["0"]
    assert ["f32"] == [cell["dtype"] for cell in client.get(f"/api/runs/{run['id']}/matrix").json()]


@pytest.mark.slow
def test_no_token_no_entry(running: Running) -> None:
    """Whatever the route: neither without a token nor with a made-up or a revoked one."""
    revoked = create_token(running.service.database, "gone", Role.ADMIN)[1]
    revoke_token(running.service.database, "gone")
    routes = [
        (method, path.replace("{submission}", "0" * 32).replace("{suite}", SUITE).replace("{name}", "x"))
        for path, methods in running.app.openapi()["paths"].items()
        for method in methods
        if path != "/healthz"
    ]
    assert len(routes) > 15
    for secret in ("", "opsmith_made-up", revoked):
        client = running.client(None, secret)
        for method, path in routes:
            assert 401 == client.request(method, path.replace("{run}", "1").replace("{judgement}", "1")).status_code


def test_a_role_may_do_what_it_says(running: Running) -> None:
    """A reader looks, a submitter submits, an administrator makes tokens."""
    reader, submitter, _, admin = (running.client(role) for role in Role)
    assert 200 == reader.get("/api/runs").status_code
    assert 403 == reader.post("/api/submissions", json=submission()).status_code
    assert 403 == submitter.get("/api/tokens").status_code
    made = admin.post("/api/tokens", json={"name": "new", "role": "reader"})
    assert 201 == made.status_code
    assert 200 == running.client(None, made.json()["secret"]).get("/api/runs").status_code
    assert 409 == admin.post("/api/tokens", json={"name": "new", "role": "reader"}).status_code
    assert 200 == admin.delete("/api/tokens/new").status_code
    assert 404 == admin.delete("/api/tokens/new").status_code
    assert 401 == running.client(None, made.json()["secret"]).get("/api/runs").status_code
    assert "secret" not in admin.get("/api/tokens").text


@pytest.mark.slow
def test_a_malformed_request_is_refused(running: Running) -> None:
    """And nothing of it is kept, nor sent back."""
    client = running.client()
    for body, status in (
        (b"{", 422),
        (b"", 422),
        (b"[]", 422),
        (b'{"tasks": [], "source": "x"}', 422),
        (b'{"tasks": ["relu.default"]}', 422),
        (b'{"tasks": ["relu.default"], "source": ""}', 422),
        (b'{"tasks": ["relu.default"], "source": "x", "sauce": 1}', 422),
        (b'{"tasks": ["relu.default"], "source": "x", "suite": "other"}', 422),
        (b'{"tasks": ["relu.default"], "source": "a\\u0000b"}', 422),
        (b'{"tasks": ["relu.default"], "source": "\\ud800"}', 422),
        (b'{"tasks": ["relu.default"], "source": "x", "\\ud800": 1}', 422),
        (b'{"tasks": ["relu.default"], "source": "x", "run": "a\\nb"}', 422),
        (b"\xff\xfe", 422),
        (b"[" * 100_000, 400),
    ):
        answer = client.post("/api/submissions", content=body, headers={"Content-Type": "application/json"})
        assert status == answer.status_code, (body[:80], answer.text)
    assert [] == client.get("/api/runs").json()["items"]


def test_a_misspelt_parameter_is_no_parameter_that_is_left_out(running: Running) -> None:
    """It is refused, with those that there are; one that is known is not."""
    client = running.client()
    refused = client.get("/api/runs?limt=5")
    assert (422, True) == (refused.status_code, "limit" in refused.text)
    assert 200 == client.get("/api/runs?limit=5").status_code


@pytest.mark.slow
def test_an_unknown_task_is_told_with_the_closest(running: Running) -> None:
    """So that a typing mistake is found at once."""
    answer = running.client().post("/api/submissions", json=submission("relu.defualt"))
    assert "did you mean relu.default" in answer.text


def test_an_oversized_request_is_refused_before_it_is_read(tmp_path: Path) -> None:
    """Whether its length is told, is a lie, or is not told at all."""
    with service_in(tmp_path, limits=Limits(request_bytes=1000)) as running:
        client = running.client()
        large = json.dumps(submission(comment="x" * 2000)).encode()
        assert 413 == client.post("/api/submissions", content=large).status_code
        parts = (large[start : start + 100] for start in range(0, len(large), 100))
        assert 413 == client.post("/api/submissions", content=parts).status_code
        headers = {"Content-Length": "many"}
        assert 413 == client.post("/api/submissions", content=b"{}", headers=headers).status_code
        assert 202 == client.post("/api/submissions", json=submission()).status_code


def test_a_request_that_is_sent_again_is_the_same_submission(running: Running) -> None:
    """With its key; another request under the key is a mistake, and another token has keys of its own."""
    client, key = running.client(), {"Idempotency-Key": "k-1"}
    first = client.post("/api/submissions", json=submission(), headers=key)
    again = client.post("/api/submissions", json=submission(), headers=key)
    assert (202, 200) == (first.status_code, again.status_code)
    assert first.json()["id"] == again.json()["id"]
    other = submission(comment="other")
    assert 409 == client.post("/api/submissions", json=other, headers=key).status_code
    assert 202 == running.client(Role.ADMIN).post("/api/submissions", json=other, headers=key).status_code
    assert 202 == client.post("/api/submissions", json=submission()).status_code
    wait_until(lambda: 3 == len(running.judge.judged))


@pytest.mark.slow
def test_a_quota_counts_kernels(running: Running) -> None:
    """Those of the last 24 hours; what exceeds it is refused as a whole, and a repeated request is no new kernel."""
    _, secret = create_token(running.service.database, "few", Role.SUBMITTER, kernels_a_day=2)
    client, key = running.client(None, secret), {"Idempotency-Key": "k"}
    both = submission("relu.default", "exp.default")
    assert 202 == client.post("/api/submissions", json=both, headers=key).status_code
    assert 200 == client.post("/api/submissions", json=both, headers=key).status_code
    refused = client.post("/api/submissions", json=submission())
    assert (429, "3600") == (refused.status_code, refused.headers["Retry-After"])


@pytest.mark.slow
def test_too_many_requests_are_told_when_to_come_back(tmp_path: Path) -> None:
    """Each token for itself; and whoever guesses tokens is held up."""
    with service_in(tmp_path, limits=Limits(requests_per_s=0.5, burst=3, refused_per_minute=2)) as running:
        client = running.client()
        assert [200, 200, 200, 429] == [client.get("/api/runs").status_code for _ in range(4)]
        assert client.get("/api/runs").headers["Retry-After"] in {"1", "2"}
        assert 200 == running.client(Role.READER).get("/api/runs").status_code
        nobody = running.client(None, "opsmith_guess")
        assert [401, 401, 429] == [nobody.get("/api/runs").status_code for _ in range(3)]


def test_a_database_that_is_away_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """503, and the same request succeeds later."""
    monkeypatch.setattr(database_module, "BUSY_TIMEOUT_S", 0.05)
    with service_in(tmp_path, judging=False) as running:
        client, key = running.client(), {"Idempotency-Key": "k"}
        other = sqlite3.connect(tmp_path / "service.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        away = client.post("/api/submissions", json=submission(), headers=key)
        assert (503, "1") == (away.status_code, away.headers["Retry-After"])
        other.execute("ROLLBACK")
        other.close()
        assert 202 == client.post("/api/submissions", json=submission(), headers=key).status_code


def test_rewards_come_in_the_order_of_the_batch(running: Running) -> None:
    """Also those of sources that are no kernel; what is not judged yet is null."""
    client = running.client()
    comments = ["right speed=2.5", "wrong", "cheat", "right"]
    batch = [{"task": "relu.default", "source": kernel(comment)} for comment in comments]
    batch.append({"task": "relu.default", "source": "nothing = 1"})
    answer = client.post("/api/rewards", json={"kernels": batch, "wait_s": 10})
    assert 200 == answer.status_code
    assert [2.5, 0.0, 0.0, 1.0, 0.0] == [reward["value"] for reward in answer.json()["rewards"]]
    assert "the source defines no kernel" in answer.json()["rewards"][4]["detail"]
    slow = [{"task": "relu.default", "source": kernel("right slow=0.3")}]
    later = client.post("/api/rewards", json={"kernels": slow})
    assert (202, [None]) == (later.status_code, later.json()["rewards"])
    [reward] = client.get(f"/api/rewards/{later.json()['submission']}?wait_s=10").json()["rewards"]
    assert 1.0 == reward["value"]


@pytest.mark.slow
def test_events_tell_every_verdict_once(running: Running) -> None:
    """While it is judged; and whoever comes back goes on where the line was cut."""
    client = running.client()
    made = client.post("/api/submissions", json=submission("relu.default", "exp.default", comment="right slow=0.2"))
    stream = client.get(f"/api/submissions/{made.json()['id']}/events").text
    events = [dict(line.split(": ", 1) for line in event.splitlines()) for event in stream.strip().split("\n\n")]
    names = [event["event"] for event in events]
    assert (1, 2, "end") == (names.count("verdict"), names.count("judged"), names[-1])
    verdict = next(event for event in events if event["event"] == "verdict")
    rest = client.get(f"/api/submissions/{made.json()['id']}/events", headers={"Last-Event-ID": verdict["id"]}).text
    assert 0 == rest.count("event: verdict")
    assert 404 == client.get(f"/api/submissions/{'0' * 32}/events").status_code


def test_metrics_count_requests_judgements_and_the_queue(running: Running) -> None:
    """By route as declared, so that what a client makes up is no label."""
    client = running.client()
    client.post("/api/rewards", json={"kernels": [{"task": "relu.default", "source": kernel("right")}], "wait_s": 10})
    client.get("/made/up")
    text = client.get("/metrics").text
    assert 'opsmith_judgements_total{outcome="PASSED",suite="opinfo"} 1.0' in text
    assert 'opsmith_requests_total{method="POST",route="/api/rewards",status="200"} 1.0' in text
    assert "/made/up" not in text
    with running.service.database.writing() as connection:
        connection.exec_driver_sql("UPDATE judgements SET state = 'judging'")
    assert 'opsmith_queue{state="judging",suite="opinfo"} 1.0' in client.get("/metrics").text


@pytest.mark.slow
def test_a_void_problem_is_named_and_takes_no_kernel(running: Running) -> None:
    """Nobody submits for it by accident, and who does is told what shows it."""
    running.judge.void = {"L1/1_Nothing": "constant: the answer is zero everywhere"}
    client = running.client()
    [suite] = client.get("/api/suites").json()
    assert running.judge.void == suite["void"]
    assert "L1/1_Nothing" not in {task["name"] for task in suite["tasks"]}
    refused = client.post("/api/submissions", json=submission("L1/1_Nothing"))
    assert 409 == refused.status_code
    assert "L1/1_Nothing is void: constant: the answer is zero everywhere" in refused.json()["detail"]


@pytest.mark.slow
def test_composing_against_the_policy_is_no_fraud(running: Running) -> None:
    """The outcome is a status of its own, and a reward says which of the two it is."""
    client = running.client()
    batch = {"kernels": [{"task": "relu.default", "source": kernel(word)} for word in ("compose", "cheat")]}
    rewards = client.post("/api/rewards", json=batch | {"wait_s": 60}).json()
    assert [(True, False), (False, True)] == [(each["policy"], each["dishonest"]) for each in rewards["rewards"]]
    assert [0.0, 0.0] == [each["value"] for each in rewards["rewards"]]
    standings = client.get(f"/api/submissions/{rewards['submission']}").json()["tasks"]
    assert ["POLICY", "DISHONEST"] == [each["outcome"] for each in standings]
    assert "policy" in client.get("/openapi.json").json()["components"]["schemas"]["RewardOut"]["properties"]
