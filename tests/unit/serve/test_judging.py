"""The judge's threads under faults: what is lost is judged again, and little ends the server."""

from __future__ import annotations

import errno
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.service import Running, kernel, service_in, wait_until

from opsmith.core.verdict import Status
from opsmith.errors import InternalError, MachineFailed, ProcessLost
from opsmith.serve import judging as module
from opsmith.serve.machine import Company, shortage
from opsmith.serve.store import queue
from opsmith.serve.store.database import StoreAway, StoreDamaged


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSES_S", (0.01, 0.02))
    monkeypatch.setattr(module, "IDLE_S", 0.02)


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """A service that judges two kernels at a time."""
    with service_in(tmp_path) as made:
        yield made


def failing(running: Running, fail: Callable[[str], None]) -> list[str]:
    """Have ``fail`` see each source before it is judged; returns those that were begun."""
    begun: list[str] = []
    judge_kernel = running.judge.judge_kernel

    def judge(task: str, found: Any, **more: Any) -> Any:
        source = (Path(found.root) / found.entry.partition(":")[0]).read_text()
        begun.append(source)
        fail(source)
        return judge_kernel(task, found, **more)

    running.judge.judge_kernel = judge  # type: ignore[method-assign, assignment]
    return begun


def submit(running: Running, *comments: str) -> str:
    """A batch of kernels."""
    body = {"kernels": [{"task": "relu.default", "source": kernel(comment)} for comment in comments]}
    return str(running.client().post("/api/rewards", json=body).json()["submission"])


def ended(running: Running, submission: str) -> list[tuple[str, str]]:
    """State and outcome of each kernel in the end."""
    assert running.client().get(f"/api/rewards/{submission}?wait_s=20").json()["final"]
    tasks = running.client().get(f"/api/submissions/{submission}").json()["tasks"]
    return [(task["state"], task["outcome"] or task["detail"]) for task in tasks]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [ProcessLost("a zygote"), InternalError("a referee"), RuntimeError("nobody knows")])
def test_what_is_lost_is_judged_again_and_what_loses_too_much_is_given_up(running: Running, lost: Exception) -> None:
    """One kernel costs three restarts and itself; whoever was judged beside it costs nothing."""

    def fail(source: str) -> None:
        if "bomb" in source:
            raise lost

    begun = failing(running, fail)
    found = ended(running, submit(running, "right 1", "bomb", "right 2", "wrong"))
    assert [("judged", "PASSED")] * 2 == [found[0], found[2]]
    assert "abandoned" == found[1][0]
    assert ("3 times", str(lost)) == (found[1][1].split(" over")[0][-7:], found[1][1].rpartition(": ")[2])
    assert 3 == sum("bomb" in source for source in begun)
    assert [("judged", "PASSED")] == ended(running, submit(running, "right 3"))


@pytest.mark.slow
def test_a_kernel_over_which_something_was_lost_is_judged_alone(running: Running) -> None:
    """So that nobody is given up for what the one beside it does."""
    there: list[str] = []
    beside: list[set[str]] = []
    lock = threading.Lock()
    losses = iter([True, True])

    def fail(source: str) -> None:
        with lock:
            there.append(source)
            others = {each for each in there if each != source}
        time.sleep(0.05)
        with lock:
            there.remove(source)
        if "unlucky" in source and next(losses, False):
            raise ProcessLost("what it stood on")
        if "unlucky" in source:
            beside.append(others)

    failing(running, fail)
    assert ("judged", "PASSED") == ended(running, submit(running, "right unlucky", *map("right {}".format, range(6))))[
        0
    ]
    assert [set()] == beside


def test_a_machine_without_room_is_waited_for(running: Running, caplog: pytest.LogCaptureFixture) -> None:
    """However long: a full disk, a quota and too many files end no server, and are no kernel's fault."""
    numbers = (errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.EROFS, errno.EACCES)
    errors = iter(
        [
            *(OSError(number, os.strerror(number), "/somewhere/kernel.py") for number in numbers),
            shutil.Error([("/a", "/b", "[Errno 28] No space left on device: '/b'")]),  # As `copytree` says it.
        ]
    )

    def fail(_: str) -> None:
        if error := next(errors, None):
            raise error

    failing(running, fail)
    assert [("judged", "PASSED")] == ended(running, submit(running, "right"))
    assert 6 == sum("is judged again" in record.message for record in caplog.records)
    assert not [record for record in caplog.records if record.exc_info]


@pytest.mark.slow
def test_what_a_kernel_lacked_for_want_of_room_is_not_held_against_it(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A build without a disk fails for everybody: it is judged again when there is room."""
    full = iter([True, True])
    monkeypatch.setattr(module, "shortage", lambda _: "the disk is full" if next(full, False) else "")
    begun = failing(running, lambda _: None)
    assert [("judged", "WRONG_VALUE")] == ended(running, submit(running, "wrong"))
    assert 3 == len(begun)
    monkeypatch.setattr(module, "shortage", lambda _: "the disk is full")
    assert [("judged", "PASSED"), ("judged", "WRONG_VALUE")] == ended(running, submit(running, "right", "wrong 2"))


@pytest.mark.slow
def test_what_somebody_else_may_have_ended_is_judged_again(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The system ends processes where memory is short; a kernel that ends itself ends itself again."""
    judge = module.Judging._judge
    begun = 0

    def ended(self: Any, claimed: queue.Claimed) -> queue.Found:
        nonlocal begun
        begun += 1
        found = judge(self, claimed)
        if begun != 2 and "unlucky" in claimed.source:
            killed = msgspec.structs.replace(
                found.verdicts[0], status=Status.CRASHED, detail="the process was ended by SIGKILL"
            )
            refused = msgspec.structs.replace(found.summary, accepted=False)
            return msgspec.structs.replace(found, verdicts=(killed,), summary=refused)
        return found

    monkeypatch.setattr(module.Judging, "_judge", ended)
    submission = submit(running, "right unlucky")
    running.client().get(f"/api/rewards/{submission}?wait_s=20")
    [standing] = running.client().get(f"/api/submissions/{submission}").json()["tasks"]
    assert (True, 2) == (standing["accepted"], begun)
    submission = submit(running, "right unlucky 2")
    running.client().get(f"/api/rewards/{submission}?wait_s=20")
    [standing] = running.client().get(f"/api/submissions/{submission}").json()["tasks"]
    assert (False, 2 + module.MOST_LOSSES) == (standing["accepted"], begun)


@pytest.mark.slow
def test_a_machine_that_gives_no_processes_ends_the_server_in_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before it had time to recover; the line says how to go on, and the next server judges the kernel."""
    with service_in(tmp_path, jobs=1) as running:
        since = time.monotonic()
        failing(running, _broken)
        made = submit(running, "right")
        time.sleep(0.2)
        assert [] == running.failures
        monkeypatch.setattr(module, "BROKEN_S", 0.3)
        wait_until(lambda: running.failures)
        assert time.monotonic() - since > 0.3
        assert "stays in the queue" in str(running.failures[0])
        running.failures.clear()
    with service_in(tmp_path, prefix="next") as running:
        assert [("judged", "PASSED")] == ended(running, made)


def _broken(_: str) -> None:
    raise MachineFailed("no process")


@pytest.mark.slow
def test_a_mistake_of_ours_ends_no_thread(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Wherever it happens; it is in the log, with all that is known of it."""
    claim_next, mistakes = queue.claim_next, iter([True] * 3)

    def claim(*arguments: Any) -> Any:
        if next(mistakes, False):
            raise ZeroDivisionError
        return claim_next(*arguments)

    monkeypatch.setattr(queue, "claim_next", claim)
    assert [("judged", "PASSED")] == ended(running, submit(running, "right"))
    assert [ZeroDivisionError] * 3 == [record.exc_info[0] for record in caplog.records if record.exc_info]


def test_a_damaged_database_ends_the_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing that is judged could be kept."""

    def claim(*_: Any) -> None:
        raise StoreDamaged("the database is damaged: page 7")

    monkeypatch.setattr(queue, "claim_next", claim)
    with service_in(tmp_path) as running:
        wait_until(lambda: running.failures)
        running.failures.clear()


def test_a_source_that_cannot_be_removed_costs_no_verdict(running: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next server removes it."""
    rmtree = shutil.rmtree

    def refuse(path: Path, *, ignore_errors: bool = False) -> None:
        if not ignore_errors:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        rmtree(path, ignore_errors=True)

    monkeypatch.setattr(shutil, "rmtree", refuse)
    assert [("judged", "PASSED")] == ended(running, submit(running, "right"))


def test_a_shortage_is_put_into_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a folder's file system, or of the nearest one above a folder that is not there yet."""
    room = {"f_bavail": 1 << 20, "f_frsize": 4096, "f_files": 10, "f_favail": 1000, "f_flag": 0}
    asked: list[Path] = []

    def having(**changes: int) -> Callable[[Path], Any]:
        def found(path: Path) -> SimpleNamespace:
            asked.append(path)
            return SimpleNamespace(**(room | changes))

        return found

    for changes, said in (
        ({}, ""),
        ({"f_bavail": 4}, "full"),
        ({"f_favail": 5}, "no further files"),
        ({"f_flag": os.ST_RDONLY}, "read-only"),
        ({"f_files": 0, "f_favail": 0}, ""),  # Some file systems do not count them.
    ):
        monkeypatch.setattr(os, "statvfs", having(**changes))
        found = shortage([tmp_path / "not" / "there"])
        assert (said in found) if said else found == ""
    assert {tmp_path} == set(asked)


def test_whoever_is_alone_has_no_company() -> None:
    """And does not wait for ever while others come and go."""
    company, order = Company(), []
    with company.beside_others(), company.beside_others():
        pass

    def alone() -> None:
        with company.alone():
            order.append("alone")

    def beside() -> None:
        with company.beside_others():
            order.append("beside")

    threads = [threading.Thread(target=each) for each in (alone, beside)]
    with company.beside_others():
        for thread in threads:
            thread.start()
            time.sleep(0.05)
        assert [] == order
    for thread in threads:
        thread.join()
    assert ["alone", "beside"] == order


def test_a_database_that_is_away_for_long_does_not_fill_the_log(
    running: Running, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One line for both threads, however often they look."""
    claim_next, looks = queue.claim_next, iter([True] * 20)

    def claim(*arguments: Any) -> Any:
        if next(looks, False):
            raise StoreAway("locked")
        return claim_next(*arguments)

    monkeypatch.setattr(module, "AWAY_S", 0.01)
    monkeypatch.setattr(queue, "claim_next", claim)
    assert [("judged", "PASSED")] == ended(running, submit(running, "right"))
    assert ["the database does not answer: locked"] == [record.message for record in caplog.records]
