"""Judges that share a device's memory: each takes what it needs, and who finds no room waits."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsmith.core.run import Options, Selection
from opsmith.devices import nvml
from opsmith.devices.nvml import GpuMemory
from opsmith.errors import NoDeviceMemory, RefereeFailed
from opsmith.runner.judge import device_lane
from opsmith.runner.judge.device_lane import DeviceLane
from opsmith.runner.machine import device_lock
from opsmith.runner.machine.cores import jobs_on, most_asked
from opsmith.runner.machine.device_room import DeviceRoom, needed_bytes
from opsmith.runner.machine.environment import device_memory
from opsmith.runner.processes.failures import RefereeDied
from opsmith.runner.protocol.lane import EntryAsked, LaneWork
from opsmith.runner.protocol.referee_messages import DeviceOpened, Enumerated

GIB = 1 << 30
HOLDER = """
import sys
from pathlib import Path
from opsmith.runner.machine.device_room import DeviceRoom

with DeviceRoom(Path(sys.argv[1]), "GPU-0", capacity_bytes=4 << 30).taken(3 << 30):
    print("holds", flush=True)
    sys.stdin.read()
"""
CHECK = Options(
    suite="opinfo", backend="relu.py", device="cuda", dtypes=("f32",), ops=("relu.default",), timing="quick"
)


def test_a_check_of_one_kernel_takes_at_most_3_gib_of_a_gpu() -> None:
    """One slot with its referee and worker, a bare process, the other side of the clock's control pairs."""
    assert 1 == jobs_on(16, CHECK)
    assert 3 * GIB >= needed_bytes(1, 0, bare=2)


@pytest.mark.parametrize(
    ("asked", "most"),
    [
        ({"ops": ("relu.default", "add.Tensor")}, 2),
        ({"case": "opinfo:relu:f32:sample:0:0"}, 1),
        ({"suite": "modules", "selection": Selection(problems="problem.py")}, 1),
        ({"suite": "modules", "selection": Selection(problems="problems")}, sys.maxsize),
        ({"ops": ("relu",)}, sys.maxsize),
        ({"ops": ("*.default",)}, sys.maxsize),
        ({}, sys.maxsize),
    ],
)
def test_no_more_slots_are_made_than_tasks_are_named(asked: dict[str, Any], most: int) -> None:
    """A packet or a wildcard may stand for many."""
    assert most == most_asked(Options(**{"suite": "opinfo", "backend": "b", "device": "cuda", "dtypes": ()} | asked))


def test_who_finds_no_room_is_told_and_waits_until_a_holder_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even one that is killed gives its share back; what needs more than there is goes in alone."""
    monkeypatch.setattr(device_lock, "PATIENCE_S", 0.0)
    told = threading.Event()
    room = DeviceRoom(tmp_path, "GPU-0", capacity_bytes=4 * GIB, waiting=lambda _: told.set())
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert b"holds\n" == holder.stdout.readline()
        with room.taken(GIB):
            pass
        assert not told.is_set()
        entered = threading.Event()

        def enter() -> None:
            with room.taken(2 * GIB):
                entered.set()

        thread = threading.Thread(target=enter)
        thread.start()
        assert told.wait(20.0)
        assert not entered.is_set()
        holder.kill()
        assert entered.wait(20.0)
        thread.join()
    with room.taken(100 * GIB):
        pass


def test_sixteen_checks_share_a_device_that_holds_five(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All end, and never more at a time than there is memory for; the device is a made-up one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(device_lane, "device_memory", lambda _device, _visible: ("GPU-0", 18 * GIB))
    monkeypatch.setattr("opsmith.runner.machine.device_room.LOOK_S", 0.001)
    inside, most, counting = [0], [0], threading.Lock()
    work = LaneWork(options=CHECK, seed=1, jobs=None, kernels=0, again=True)

    def check(_: int) -> None:
        with device_lane._in_room(work, None, None):
            with counting:
                inside[0] += 1
                most[0] = max(most[0], inside[0])
            time.sleep(0.01)
            with counting:
                inside[0] -= 1

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(check, range(16)))
    assert (0, 5) == (inside[0], most[0])


def test_a_cpu_and_a_machine_that_says_nothing_have_no_budget(monkeypatch: pytest.MonkeyPatch) -> None:
    """There judges start at once, as they did."""
    monkeypatch.setattr(nvml, "memory_of", lambda _: None)
    assert device_memory("cpu", None) is None
    assert device_memory("cuda", None) is None
    monkeypatch.setattr(nvml, "memory_of", lambda name: GpuMemory(f"GPU-{name}", 81559 << 20, 5))
    assert ("GPU-1", 81559 << 20) == device_memory("cuda:1", "0,1")
    assert device_memory("cuda:1", "0") is None


@pytest.fixture
def lane(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DeviceLane:
    """A lane of one slot whose processes are told apart by nobody."""
    monkeypatch.setattr(device_lane, "START_PAUSES_S", (0.0, 0.0))
    monkeypatch.setattr(device_lane, "SAMPLING_PAUSES_S", (0.0, 0.0))
    options = Options(suite="traces", backend="aten", device="cpu", dtypes=("f32",))
    processes: Any = SimpleNamespace(scratch=tmp_path, worker_limit=0, visible=None)
    lane = DeviceLane(processes, LaneWork(options=options, seed=1, jobs=1))
    lane._admission.lock = cast("Any", SimpleNamespace(shared=contextlib.nullcontext))
    return lane


class StandInReferee:
    """Gives one answer after the other, or raises it."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def send(self, _request: object) -> None: ...

    def close(self) -> None: ...

    def receive(self, _kind: object) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def ask(self, _request: object, kind: object) -> Any:
        return self.receive(kind)


OPENED = DeviceOpened(problem=None, name="a GPU", identity="GPU-0", count=1)
FULL = DeviceOpened(problem="AcceleratorError: CUDA error: out of memory", name="", identity="", count=0)
DIED = RefereeDied("the process exited with status 70 (torch.AcceleratorError: CUDA error: out of memory)")


def test_a_device_without_memory_is_tried_again_and_then_called_that(lane: DeviceLane) -> None:
    """It said that the device cannot be used."""
    slot = cast("Any", lane._slots[0])
    slot.referee = StandInReferee(FULL, DIED, OPENED)
    assert OPENED == lane._opened(slot)
    slot.referee = StandInReferee(FULL, FULL, DIED)
    with pytest.raises(NoDeviceMemory, match="device cpu is out of memory: .* nvidia-smi"):
        lane._opened(slot)
    slot.referee = StandInReferee(RefereeFailed("a bug"))
    with pytest.raises(RefereeFailed, match="a bug"):
        lane._opened(slot)


def test_inputs_that_found_no_memory_are_asked_for_again(lane: DeviceLane, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cases would be missing; where none is left, the run said that the suite has none."""
    monkeypatch.setattr("opsmith.runner.processes.worker_link.WorkerLink.prepare", lambda _: None)
    lacks = Enumerated((), {}, (), {"traces:op": "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate"})
    found = Enumerated((), {"signature": 1}, ("op",), {})
    cast("Any", lane._slots[0]).referee = StandInReferee(lacks, lacks, found)
    assert found == lane.enumerate(0, EntryAsked(entry="entry", dtype="f32", ops=None))
