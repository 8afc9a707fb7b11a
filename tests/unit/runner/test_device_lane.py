"""How many processes a lane has, for what it is opened for, and which of them time."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsmith.core.kernel import Loader
from opsmith.core.run import Options
from opsmith.errors import RefereeFailed
from opsmith.runner.judge import lane_timing
from opsmith.runner.judge.device_lane import MAX_WORKERS_AHEAD, DeviceLane, workers_ahead
from opsmith.runner.judge.lane_timing import LaneTimer
from opsmith.runner.machine.device_lock import DeviceLock
from opsmith.runner.processes.failures import RefereeDied, RefereeHung
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import EntryAsked, LaneWork
from opsmith.runner.protocol.referee_messages import Enumerated


@pytest.mark.parametrize(
    ("isolation", "kernels", "limit", "expected"),
    [
        ("kernel", None, 150, MAX_WORKERS_AHEAD),
        ("kernel", None, 70, 5),
        ("kernel", 28, 150, 2),
        ("kernel", 0, 150, 1),
        ("kernel", None, 14, 1),
        ("backend", None, 150, 1),
        ("backend", 500, 150, 1),
    ],
)
def test_a_slot_has_workers_ready_for_what_it_is_asked(
    isolation: str, kernels: int | None, limit: int, expected: int
) -> None:
    """One whose worker goes on to the next kernel needs no others; they would hold half of a device's memory."""
    options = Options(suite="opinfo", backend="opsmith", device="cuda", dtypes=("f32",), isolation=isolation)
    assert expected == workers_ahead(LaneWork(options=options, seed=1, kernels=kernels), 14, limit)


@pytest.mark.parametrize("slots", [1, 2])
def test_the_other_side_of_control_pairs_has_its_context_already(
    slots: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the next slot's referee, where there is one, and ends when the clock is set up."""
    asked: list[tuple[RefereeLink, RefereeLink]] = []
    ended: list[RefereeLink] = []

    def set_up(referee: RefereeLink, control: RefereeLink, *_: object, **_options: object) -> object:
        assert control not in ended
        asked.append((referee, control))
        return SimpleNamespace(noise={}, noise_of_ranks={}, graphs=None, ceilings=SimpleNamespace(device="cpu"))

    def close(link: RefereeLink) -> None:
        ended.append(link)

    monkeypatch.setattr(lane_timing, "set_up_clock", set_up)
    monkeypatch.setattr(RefereeLink, "close", close)
    monkeypatch.setattr(lane_timing, "CaseTimer", lambda *_, **_options: SimpleNamespace(time=lambda: iter(())))
    options = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",), timing="quick")
    processes: Any = SimpleNamespace(scratch=tmp_path, worker_limit=0, visible=None)
    work = LaneWork(options=options, seed=1, jobs=slots)
    lane = DeviceLane(processes, work)
    lock = cast("DeviceLock", SimpleNamespace(exclusive=nullcontext))
    timer = LaneTimer(work, lane._slots, lane._make_referee, lock=lock, identity="cpu")
    for _ in range(2):
        assert [] == list(timer.time([cast("Job", SimpleNamespace(kernel=SimpleNamespace(loader=Loader.ATEN)))]))
    [(referee, control)] = asked
    assert referee is lane._slots[0].referee is not control
    assert (control is lane._slots[-1].referee) is (slots == 2)
    assert control in ended
    assert referee not in ended


ALL = Enumerated((), {"signature": 1}, ("op",), {})
DEVICE_FAILED = Enumerated((), {}, (), {"traces:op": "op: RuntimeError: CUDA driver error: invalid argument"})
REFUSED = Enumerated((), {}, (), {"traces:op": "op: NotImplementedError: no kernel for CUDA"})
CRASHED, HUNG = RefereeDied("the process was ended by SIGSEGV\nmore"), RefereeHung("no answer in 180 s")


@pytest.mark.parametrize(
    ("answers", "found"),
    [
        ([CRASHED, ALL], ALL.skipped),
        ([DEVICE_FAILED, ALL], ALL.skipped),
        ([CRASHED, CRASHED], {"traces:entry:f32": "the process was ended by SIGSEGV"}),
        ([DEVICE_FAILED, DEVICE_FAILED], DEVICE_FAILED.skipped),
        ([REFUSED], REFUSED.skipped),
        ([HUNG], {"traces:entry:f32": "no answer in 180 s"}),  # It would take as long again.
        # The disk has room again.
        ([RefereeFailed("OSError: [Errno 28] No space left on device\nmore"), ALL], ALL.skipped),
        ([RefereeFailed("a bug of its own")], {"traces:entry:f32": "a bug of its own"}),
    ],
)
def test_an_entry_over_which_a_process_dies_is_asked_once_more(
    answers: list[Any], found: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a new one: drivers fail at times, and two runs with one seed are to have the same cases."""
    waiting, closed = [*answers], []

    def ask(*_: object) -> Enumerated:
        answer = waiting.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return cast("Enumerated", answer)

    def close(link: RefereeLink) -> None:
        closed.append(link)

    monkeypatch.setattr(RefereeLink, "ask", ask)
    monkeypatch.setattr(RefereeLink, "close", close)
    monkeypatch.setattr(WorkerLink, "prepare", lambda _: None)
    options = Options(suite="traces", backend="aten", device="cuda", dtypes=("f32",))
    processes: Any = SimpleNamespace(scratch=tmp_path, worker_limit=0, visible=None)
    lane = DeviceLane(processes, LaneWork(options=options, seed=1, jobs=1))
    lane._admission.lock = cast("DeviceLock", SimpleNamespace(shared=nullcontext))
    assert found == lane.enumerate(0, EntryAsked(entry="entry", dtype="f32", ops=None)).skipped
    assert not waiting
    assert len(answers) - 1 == len(closed)


def test_timing_alone_ends_with_its_seconds_and_sets_the_clock_up_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No case is begun afterwards, nobody waited for; the next kernel has its own time and another worker."""
    options = Options(suite="smoke", backend="aten", device="cpu", dtypes=("f32",), timing="quick")
    processes: Any = SimpleNamespace(scratch=tmp_path, worker_limit=0, visible=None)
    lane = DeviceLane(processes, LaneWork(options=options, seed=1, jobs=1))
    [slot] = lane._slots
    done: list[str] = []
    limits: list[float] = []

    def time_job(_family: object) -> Iterator[str]:
        for name in ("a", "b", "c"):
            time.sleep(0.1)
            yield name

    monkeypatch.setattr(slot, "finish_by", limits.append)
    monkeypatch.setattr(slot, "end_family", lambda: done.append("ended"))
    timer = SimpleNamespace(set_up=lambda _family: done.append("set up"), time=time_job)
    monkeypatch.setattr(lane, "_timer", timer, raising=False)
    job = cast("Job", SimpleNamespace())
    assert ["a", "b"] == cast("Any", lane.time_alone(job, most_s=0.15, begun=lambda: done.append("begun")))
    assert ["set up", "begun", "ended"] == done
    assert limits[0] < limits[1] == math.inf
    assert slot is lane._idle.get_nowait()
