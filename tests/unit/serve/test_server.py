"""Starting and ending: what a server refuses to do without, and what it leaves behind."""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from sqlalchemy import select
from tests.report_runs import write_large_run, write_timed_run
from tests.service import SUITE, kernel, service_in, wait_until

import opsmith.session
from opsmith.core.run import Options, RunDirectory
from opsmith.errors import BadInput, Unconfined, UsageError
from opsmith.pipeline import Silent
from opsmith.runner.sandbox.layers import Layer
from opsmith.serve import server as module
from opsmith.serve.confinement import FLAG, RISKS
from opsmith.serve.server import Settings, serve
from opsmith.serve.store import boards, runs
from opsmith.serve.store.imports import keep_run
from opsmith.serve.store.schema import State, judgements
from opsmith.session import Session

OPTIONS = Options(suite="smoke", backend="submitted", device="cpu", dtypes=("f32",))
MISSING = {"user, network and IPC namespaces": "not permitted"}


class Facts:
    """What the lane of a machine that lacks a layer says of itself, as far as it is asked."""

    sandbox, sandbox_missing = ("a layer",), MISSING


@contextlib.contextmanager
def open_unconfined(*_: object) -> Iterator[SimpleNamespace]:
    """Stands in for the lane of such a machine."""
    yield SimpleNamespace(facts=Facts())


def settings(folder: Path, **changes: Any) -> Settings:
    """Of a small server on SQLite."""
    fields: dict[str, Any] = {
        "suites": (OPTIONS,),
        "data": folder,
        "database_url": f"sqlite:///{folder / 'a.sqlite'}",
        "host": "127.0.0.1",
        "port": 0,
        "jobs": 1,
        "most_judging_s": 5.0,
        "every_layer": True,
    }
    return Settings(**(fields | changes))


def test_a_server_refuses_to_start_without_a_layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It names the layer, what a kernel could do without it, and the flag that accepts that."""
    monkeypatch.setattr(opsmith.session, "open_here", open_unconfined)
    with pytest.raises(UsageError) as refused:
        serve(settings(tmp_path), progress=Silent(), ready=pytest.fail)
    message = str(refused.value)
    assert "not permitted" in message
    assert RISKS[Layer.NETWORK] in message
    assert FLAG in message


def test_without_the_wish_for_every_layer_a_session_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As other verbs do: the run says what was missing."""
    monkeypatch.setattr(opsmith.session, "open_here", open_unconfined)
    with pytest.raises(Unconfined), Session(OPTIONS, tmp_path, every_layer=True):
        pass
    with pytest.raises(AttributeError), Session(OPTIONS, tmp_path):
        pass  # The stand-in has no more to offer: it was not refused.


def test_a_folder_that_cannot_be_used_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In one line, before anything is started."""
    (tmp_path / "file").touch()
    with pytest.raises(BadInput, match="another --data"):
        serve(settings(tmp_path / "file" / "data"), progress=Silent(), ready=pytest.fail)
    monkeypatch.setattr(Path, "mkdir", _full)
    with pytest.raises(BadInput, match="No space left on device; make room there"):
        serve(settings(tmp_path), progress=Silent(), ready=pytest.fail)


def _full(*_: object, **__: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def test_every_layer_has_a_risk() -> None:
    """So that no refusal is without its reason."""
    assert set(Layer) == set(RISKS)


def test_a_port_that_is_taken_is_told_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before minutes are spent on a suite."""
    monkeypatch.setattr(module, "Session", pytest.fail)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(BadInput, match="--port"):
            serve(settings(tmp_path, port=port), progress=Silent(), ready=pytest.fail)


@pytest.mark.slow
def test_what_is_not_judged_when_a_server_stops_is_judged_by_the_next(tmp_path: Path) -> None:
    """One kernel is under way and two wait; all three have verdicts in the end, and one attempt each."""
    with service_in(tmp_path, jobs=1) as running:
        body = [{"task": "relu.default", "source": kernel(f"right slow=0.2 {number}")} for number in range(3)]
        submission = running.client().post("/api/rewards", json={"kernels": body}).json()["submission"]
        wait_until(lambda: running.judge.judged)
    with service_in(tmp_path, jobs=1, prefix="another") as running:
        client = running.client()
        assert client.get(f"/api/rewards/{submission}?wait_s=10").json()["final"]
        with running.service.database.reading() as connection:
            found = connection.execute(select(judgements.c.state, judgements.c.tries)).all()
        assert [(State.JUDGED, 1)] * 3 == [tuple(row) for row in found]


def test_a_run_directory_is_shown_like_what_was_submitted(tmp_path: Path) -> None:
    """Its ops, cells, verdicts with their work, and place on the leaderboard; once, however often it is named."""
    with service_in(tmp_path, judging=False) as running:
        database = running.service.database
        timed = keep_run(database, write_timed_run(tmp_path / "timed", ops=6, cases=3))
        assert timed == keep_run(database, RunDirectory.open(tmp_path / "timed"))
        large = keep_run(database, write_large_run(tmp_path / "large", ops=30, cases=4))
        found = runs.find_run(database, timed)
        assert found is not None
        assert (6, 6) == (found.kernels, found.judged)
        [row, *_] = runs.list_judgements(database, timed)
        assert all(each.work is not None for each in runs.list_timed(database, row.id))
        [place] = boards.leaderboard(database, "traces")
        assert (6, "K") == (place.correct, place.quantity)
        [other] = boards.leaderboard(database, SUITE)
        assert other.correct < other.answered < other.tasks_asked
        cells, total = boards.matrix(database, large)
        assert (26, {"f32"}) == (total, {cell.dtype for cell in cells})
        changes = boards.counted(boards.differences(database, timed, large))
        assert {"only before": 6, "only after": 26} == changes
