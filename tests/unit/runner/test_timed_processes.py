"""What the clock sees of a process from outside: waits for a processor, and what computes beside the first thread."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsmith.runner.clock.timed_processes import RefereeSide, WorkerSide
from opsmith.runner.machine import cores
from opsmith.runner.machine.cores import siblings_of
from opsmith.runner.machine.process_times import descendants


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
import os, sys, threading
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
os.nice(19)
def compute():
    sum(range(10**8))
if sys.argv[1] == "thread":
    threading.Thread(target=compute).start()
elif not os.fork():
    compute()
while True: os.sched_yield()
"""


@pytest.mark.parametrize("kind", ["thread", "process"])
def test_a_thread_that_waits_for_its_helper_is_not_disturbed(kind: str) -> None:
    """What it has started computes for it, on the core that it waits for."""
    process = subprocess.Popen([sys.executable, "-c", HELPED, kind])
    link = SimpleNamespace(pid=process.pid, waits_awake=True, started=lambda: descendants(process.pid))
    side = WorkerSide(cast("Any", link), trusted=False)
    time.sleep(0.5)
    before = side.counts()
    time.sleep(0.5)
    after = side.counts()
    for pid in (*link.started(), process.pid):
        os.kill(pid, signal.SIGKILL)
    process.wait()
    waited_us = after.first_waited_us - before.first_waited_us
    assert waited_us > 1e4
    assert before.disturbed_us(after) < 0.5 * waited_us


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
