"""The service as people use it: many clients, hostile kernels, kills, and the page in a browser."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path

import httpx2
import pytest
from benchmarks.serve.clients import Trial, holds
from benchmarks.serve.kernels import make_kernel
from benchmarks.serve.pages import look, served
from benchmarks.serve.running import Server
from tests.e2e.chromium import EXECUTABLE

from opsmith.serve.store.database import Database
from opsmith.serve.store.tokens import Role, create_token


@pytest.mark.slow
@pytest.mark.corpus
def test_every_kernel_gets_one_set_of_verdicts_whoever_is_killed(tmp_path: Path) -> None:
    """A small trial: server and database are interrupted once each; layers of the sandbox may be missing here."""
    trial = Trial(
        tmp_path,
        clients=5,
        kernels=8,
        hostile_share=0.375,
        server_kills=(0.3,),
        connection_kills=(0.6,),
        locked_s=0.5,
        options=("--accept-missing-layers",),
    )
    found = trial.run()
    assert holds(found), found
    assert (1, 3) == (found["server_kills"], found["hostile"])


@pytest.mark.slow
@pytest.mark.corpus
def test_two_servers_share_a_file(tmp_path: Path) -> None:
    """Both judge; what was submitted to one is followed at the other; when one is killed the other goes on."""
    url = f"sqlite:///{tmp_path / 'service.sqlite'}"
    words = ["--suite", "smoke", "--ops", "relu.default", "--device", "cpu", "--timing", "off", "--policy", "any"]
    servers = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        servers.append(Server(tmp_path / name, *words, "--jobs", "1", "--db", url, "--accept-missing-layers"))
    starting = [threading.Thread(target=server.start) for server in servers]
    for thread in starting:
        thread.start()
    for thread in starting:
        thread.join()
    with contextlib.closing(Database(url)) as database:
        secret = create_token(database, "me", Role.SUBMITTER)[1]
    first, second = (
        httpx2.Client(base_url=server.url, headers={"Authorization": f"Bearer {secret}"}, timeout=60.0)
        for server in servers
    )
    with first, second:
        batch = [{"task": "relu.default", "source": make_kernel(n, hostile_share=0, place="").source} for n in range(6)]
        made = first.post("/api/rewards", json={"kernels": batch}).json()["submission"]
        stream = second.get(f"/api/submissions/{made}/events").text
        assert (6, 1) == (stream.count("event: judged"), stream.count("event: end"))
        rewards = second.get(f"/api/rewards/{made}").json()["rewards"]
        assert [1.0] * 6 == [reward["value"] for reward in rewards]
        shares = [
            float(line.rpartition(" ")[2])
            for each in (first, second)
            for line in each.get("/metrics").text.splitlines()
            if line.startswith("opsmith_judgements_total{")
        ]
        assert 6 == sum(shares)
        servers[0].kill()
        body = {"tasks": ["relu.default"], "source": batch[0]["source"]}
        again = second.post("/api/submissions", json=body).json()["id"]
        assert "event: end" in second.get(f"/api/submissions/{again}/events").text
    assert 0 == servers[1].stop()


@pytest.mark.skipif(
    EXECUTABLE is None and os.environ.get("CI") != "true", reason="Chromium is not installed; it is required in CI"
)
def test_every_view_works_in_a_browser(tmp_path: Path) -> None:
    """Opened, filtered, sorted and compared: no error, nothing fetched from elsewhere, plots drawn."""
    with served(tmp_path, 1000) as (url, secret, places):
        found = look(url, secret, places, tmp_path / "profile", None)
    assert ([], []) == (found["problems"], found["foreign_requests"])
    assert 14 == len(found["views"])
    assert {"leaderboard", "kernel", "compare"} <= {name for name, view in found["views"].items() if "drawn_s" in view}
    assert [] == [name for name, view in found["views"].items() if not view["rows"] and "filtered" not in name]
