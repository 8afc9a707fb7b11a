"""What the clock sees of a process from outside: waits for a processor, and what computes beside the first thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.clock.timed_processes import RefereeSide, WorkerSide
from opsmith.runner.machine import cores
from opsmith.runner.machine.cores import siblings_of
from opsmith.runner.machine.process_times import descendants, is_stopped, process_us, runs
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.timing_messages import BlockTimed, TimeBlock


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A process that waits for nothing but its end."""
    process = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    yield process.pid
    process.kill()
    process.wait()


def waited_beside_others() -> None:
    """Let this thread wait for a processor: two that never sleep share one."""
    own = os.sched_getaffinity(0)
    ended = threading.Event()

    def spin() -> None:
        os.sched_setaffinity(0, {min(own)})
        while not ended.is_set():
            pass

    other = threading.Thread(target=spin)
    other.start()
    os.sched_setaffinity(0, {min(own)})
    deadline = time.monotonic() + 0.3
    while time.monotonic() < deadline:
        pass
    ended.set()
    other.join()
    os.sched_setaffinity(0, own)


@pytest.mark.slow
@pytest.mark.parametrize("make", [RefereeSide, lambda link: WorkerSide(link, trusted=True)])
@pytest.mark.parametrize("awake", [True, False])
def test_the_waiting_of_a_judge_who_is_awake_does_not_disturb_a_block(sleeper: int, make: Any, *, awake: bool) -> None:
    """It goes on at the same time as the block does; one who sleeps waits when the block is over."""
    side = make(cast("Any", SimpleNamespace(pid=sleeper, waits_awake=awake, started=list)))
    time.sleep(0.2)
    before = side.counts()
    waited_beside_others()
    waited_us = before.disturbed_us(side.counts())
    assert waited_us < 1e3 if awake else waited_us > 1e3


HELPED = """
import hashlib, os, sys, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.nice(19)
def compute():  # Without the interpreter's lock.
    while True: hashlib.sha256(bytes(1 << 22))
if sys.argv[1] == "thread":
    threading.Thread(target=compute).start()
elif not os.fork():
    compute()
while True: os.sched_yield()
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_thread_that_waits_for_its_helper_is_not_disturbed(kind: str) -> None:
    """What it has started computes for it, on the core that it waits for."""
    process = subprocess.Popen([sys.executable, "-c", HELPED, kind])
    link = SimpleNamespace(pid=process.pid, waits_awake=True, started=lambda: descendants(process.pid))
    side = WorkerSide(cast("Any", link), trusted=False)
    time.sleep(0.5)
    side._started = link.started()
    before = side.counts()
    waited_us = helped_us = 0.0
    deadline = time.monotonic() + 30  # Others may leave the core to neither of them for a while.
    while min(waited_us, helped_us) <= 1e4 and time.monotonic() < deadline:
        time.sleep(0.5)
        after = side.counts()
        waited_us, helped_us = after.first_waited_us - before.first_waited_us, after.others_us - before.others_us
    for pid in (*link.started(), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    assert min(waited_us, helped_us) > 1e4
    assert before.disturbed_us(after) == max(waited_us - helped_us, 0.0)  # Others may have had the core as well.


STAYS_AWAKE = """
import os, subprocess, sys, threading, time
def spin():
    while True: pass
kind = sys.argv[1]
if kind == "thread":
    threading.Thread(target=spin).start()
elif kind == "children" and not os.fork():
    os.setsid()
    if os.fork(): os._exit(0)  # Its child is nobody's.
    spin()
elif kind == "forks" and not os.fork():
    while True:
        if not os.fork(): os._exit(0)
        os.wait()
time.sleep(600)
"""


class ForkedWorker:
    """Enough of the judge's processes for a link to a worker that is one of the test's own children."""

    def __init__(self, kind: str) -> None:
        self.process = subprocess.Popen([sys.executable, "-c", STAYS_AWAKE, kind])
        self.link = WorkerLink.__new__(WorkerLink)
        self.link._child = cast("Any", SimpleNamespace(pid=self.process.pid))
        self.link._stopped = {}
        self.link._have_stopped = False
        self.link._processes = cast("Any", self)
        time.sleep(0.5)

    def started_by(self, _child: object) -> list[int]:
        """It has an orphan among the test's own children, or the children of who adopts them."""
        return [pid for pid in all_processes() if pid != self.process.pid and is_of(pid)]


def all_processes() -> list[int]:
    """Of this machine."""
    return [int(folder.name) for folder in Path("/proc").iterdir() if folder.name.isdigit()]


def is_of(pid: int) -> bool:
    """Whether a process runs the script above: its command line is inherited."""
    try:
        return STAYS_AWAKE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture(params=["sleeps", "thread", "children", "forks"])
def worker(request: pytest.FixtureRequest) -> Iterator[ForkedWorker]:
    """One with something that never sleeps, or that sleeps."""
    made = ForkedWorker(request.param)
    yield made
    made.process.kill()
    for pid in made.started_by(None):
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    made.process.wait()


@pytest.mark.slow
def test_nothing_of_a_stopped_worker_runs(worker: ForkedWorker) -> None:
    """Neither its threads nor what it has started, in another session, without a parent; then all go on."""
    worker.link.stop()
    time.sleep(0.05)  # What sleeps needs a processor for a moment to notice.
    worker.link.stop()
    found = [worker.process.pid, *worker.started_by(None)]
    used_us = {pid: process_us(pid) for pid in found}
    time.sleep(0.2)
    assert used_us == {pid: process_us(pid) for pid in found}
    assert set(found) == {worker.process.pid, *worker.started_by(None)}
    assert 1_000.0 > worker.link._go_on()
    time.sleep(0.1)
    assert not is_stopped(worker.process.pid)


def test_a_worker_that_lets_itself_go_on_is_noticed(worker: ForkedWorker) -> None:
    """Somebody has sent it SIGCONT: what it computes then is known."""
    if not runs(worker.process.pid):
        pytest.skip("it sleeps")
    worker.link.stop()
    time.sleep(0.05)
    worker.link.stop()
    os.kill(worker.process.pid, signal.SIGCONT)
    time.sleep(0.1)
    os.kill(worker.process.pid, signal.SIGSTOP)
    time.sleep(0.01)
    assert 1e4 < worker.link._go_on()


def test_a_stopped_worker_can_be_killed(worker: ForkedWorker) -> None:
    """A judge that goes away leaves none behind."""
    worker.link.stop()
    worker.process.kill()
    assert -signal.SIGKILL == worker.process.wait(5)


@pytest.mark.parametrize(("ran_us", "requests", "is_dishonest"), [(1e4, 3, True), (1e4, 2, False), (50.0, 9, False)])
def test_a_worker_that_runs_while_it_is_stopped_is_dishonest(
    ran_us: float, requests: int, *, is_dishonest: bool
) -> None:
    """Once could be a count that came late; three times is a timer."""
    link = SimpleNamespace(ask=lambda *_: BlockTimed(None), notices=(), ran_stopped_us=ran_us)
    side = WorkerSide(cast("Any", link), trusted=False)
    with pytest.raises(Dishonest, match="while it was stopped") if is_dishonest else nullcontext():
        for _ in range(requests):
            side.ask(TimeBlock(1, "E"))


def test_processors_that_share_hardware_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The judge keeps off them while it waits awake."""
    monkeypatch.setattr(cores, "TOPOLOGY", str(tmp_path / "{core}"))
    for core, listed in ((0, "0,8"), (1, "1-3,9"), (2, "2")):
        (tmp_path / str(core)).write_text(listed + "\n")
    assert [{0, 8}, {1, 2, 3, 9}, {2}, {7}] == [siblings_of(core) for core in (0, 1, 2, 7)]


def test_a_process_runs_where_it_is_told(sleeper: int) -> None:
    """With all its threads; one that has ended, or is yet to be started, is none's business."""
    every, one = os.sched_getaffinity(0), {min(os.sched_getaffinity(0))}
    side = RefereeSide(cast("Any", SimpleNamespace(pid=sleeper, is_running=True)))
    for cores_of_it in (one, every):
        side.run_on(cores_of_it)
        assert cores_of_it == os.sched_getaffinity(sleeper)
    RefereeSide(cast("Any", SimpleNamespace(is_running=False))).run_on(one)
    gone = subprocess.Popen(["true"])
    gone.wait()
    RefereeSide(cast("Any", SimpleNamespace(pid=gone.pid, is_running=True))).run_on(one)
