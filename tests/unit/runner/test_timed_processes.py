"""What the clock takes off a block's time: waits for a processor, and nothing that goes on beside the block."""

from __future__ import annotations

import os
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
def test_a_judge_who_waits_awake_does_not_take_its_own_waiting_off(sleeper: int, make: Any, *, awake: bool) -> None:
    """It goes on at the same time as the block does; one who sleeps waits when the block is over."""
    side = make(cast("Any", SimpleNamespace(pid=sleeper, waits_awake=awake)))
    time.sleep(0.2)
    before_us = side.queued_us()
    waited_beside_others()
    waited_us = side.queued_us() - before_us
    assert waited_us < 1e3 if awake else waited_us > 1e3


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
