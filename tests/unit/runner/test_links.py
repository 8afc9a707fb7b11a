"""What a link makes of a worker that does not start, or does not answer; the processes are stand-ins."""

from __future__ import annotations

import socket
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from opsmith.core.case import CaseAddress, CaseRef
from opsmith.core.kernel import Kernel, Loader
from opsmith.errors import InternalError, NoDeviceMemory, RefereeFailed
from opsmith.runner.processes.children import Processes
from opsmith.runner.processes.failures import TIME_IS_OVER, RefereeHung, WorkerFailed
from opsmith.runner.processes.referee_link import SMALL_CALLS_BYTES, RefereeLink
from opsmith.runner.processes.worker_link import INTERPRETED_CALL, START_PAUSES_S, WorkerLink
from opsmith.runner.protocol.channel import Channel
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.referee_messages import CaseToPrepare, Compare, ListOps, OpsListed, Prepare, RefereeError
from opsmith.runner.protocol.worker_messages import Answered, Discover, Started

NO_MEMORY = """Traceback (most recent call last):
torch.AcceleratorError: CUDA error: out of memory
Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.
"""


class StandInProcesses:
    """Forks workers that end with some output before they have started, and then one that starts.

    Attributes:
        interpreted: whether Triton is.
        forked: how many there were.
    """

    def __init__(self, *outputs: str) -> None:
        self.scratch = Path("/nowhere")
        self.interpreted = False
        self.forked = 0
        self._outputs = list(outputs)
        self._theirs: list[socket.socket] = []

    def start_nursery(self, _reach: object) -> Any:
        return SimpleNamespace(close=lambda: None)

    def is_lost(self, _child: object) -> bool:
        return False

    def has_memory_for_worker(self) -> bool:
        return False

    def fork(self, _role: str, _config: object, _nursery: object) -> Any:
        self.forked += 1
        ours, theirs = socket.socketpair()
        output = self._outputs.pop(0) if self._outputs else None
        if output is None:
            channel = Channel(theirs)
            channel.send_descriptor(None)
            channel.send(Started())
            self._theirs.append(theirs)
        else:
            theirs.close()
        return SimpleNamespace(
            pid=0,
            channel=Channel(ours),
            usable=True,
            is_at_work=False,
            is_trusted=False,
            gate=None,
            killed_for=None,
            last_output=lambda: output or "",
            wait=lambda timeout_s: 0,
        )

    def guard(self, child: object, questions: int | None, builds: Path) -> None: ...

    def discard(self, child: Any) -> None:
        child.channel.close()

    def close(self) -> None:
        for theirs in self._theirs:
            theirs.close()


def started(processes: StandInProcesses, monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Start a worker; for how long it was waited meanwhile."""
    pauses: list[float] = []
    monkeypatch.setattr("opsmith.runner.processes.worker_link.time.sleep", pauses.append)
    link = WorkerLink(
        cast("Processes", processes), device="cuda", builds=Path("/nowhere"), threads=1, spares=0, limits=Limits()
    )
    link._start()
    link.close()
    processes.close()
    return pauses


def test_a_worker_for_which_the_device_has_no_memory_is_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another run on the same device may hold it for a while."""
    processes = StandInProcesses(NO_MEMORY, NO_MEMORY)
    assert list(START_PAUSES_S[:2]) == started(processes, monkeypatch)
    assert 3 == processes.forked


def test_it_is_not_tried_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is the user's to see who has the memory: no internal error."""
    processes = StandInProcesses(*[NO_MEMORY] * 20)
    with pytest.raises(NoDeviceMemory, match=r"is out of memory: there was none for a worker"):
        started(processes, monkeypatch)
    assert len(START_PAUSES_S) + 1 == processes.forked


def test_any_other_end_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be the same again."""
    processes = StandInProcesses("RuntimeError: invalid device ordinal\n")
    with pytest.raises(InternalError, match="invalid device ordinal"):
        started(processes, monkeypatch)
    assert 1 == processes.forked


@pytest.mark.parametrize(
    ("dsl", "interpreted", "times"),
    [("triton", True, INTERPRETED_CALL), ("triton", False, 1), ("cpp", True, 1)],
)
def test_an_interpreted_kernel_gets_more_time_for_a_call(dsl: str, *, interpreted: bool, times: int) -> None:
    """The interpreter is what is slow; the same kernel compiled is as fast as any other."""
    processes = StandInProcesses()
    processes.interpreted = interpreted
    limits = Limits(call_s=0.01)
    link = WorkerLink(cast("Processes", processes), device="cpu", builds=Path(), threads=1, spares=0, limits=limits)
    link._start()
    link._loaded = Kernel(task="relu.default", backend="mine", loader=Loader.FILE, entry="k.py:relu", dsl=dsl)
    with pytest.raises(WorkerFailed, match=f"no answer within {0.01 * times:g} s$"):
        link.ask(Discover("m:a", ()), (Answered,))
    link.close()
    processes.close()


class AnsweringProcesses(StandInProcesses):
    """Forks referees that have answered before they are asked: the first that its device is lost."""

    def fork(self, _role: str, _config: object, _nursery: object = None) -> Any:
        ours, theirs = socket.socketpair()
        answer = OpsListed((), ()) if self.forked else RefereeError("AcceleratorError: no", "Traceback", ends=True)
        self.forked += 1
        Channel(theirs).send(answer)
        self._theirs.append(theirs)
        return SimpleNamespace(channel=Channel(ours))


def test_a_referee_that_has_lost_its_device_is_asked_nothing_more() -> None:
    """It ends, and the next request, which has nothing to do with that, would be taken for what it died on."""
    processes = AnsweringProcesses()
    link = RefereeLink(
        cast("Processes", processes), Path(), device="cuda", builds=Path(), threads=1, limits=Limits(referee_s=5.0)
    )
    with pytest.raises(RefereeFailed, match="AcceleratorError: no"):
        link.ask(ListOps("smoke", ()), OpsListed)
    assert OpsListed((), ()) == link.ask(ListOps("smoke", ()), OpsListed)
    link.close()
    processes.close()


def about(size_bytes: int) -> Prepare:
    """Prepare two cases with so many bytes of arguments together."""
    address = CaseAddress("traces", "mm", "f32", "call", 0, 0)
    each = size_bytes // 2
    case = CaseRef(
        address=address, op="mm.default", signature="", content_hash="", size_bytes=each, spool=0, offset=0, length=1
    )
    return Prepare((CaseToPrepare(case, 0), CaseToPrepare(case, 0)))


def test_eager_gets_less_time_for_small_calls() -> None:
    """One of them that takes minutes never comes back; the inputs of real models may take minutes on a processor."""
    limits = Limits(eager_s=6.0, referee_s=18.0)
    processes = cast("Processes", StandInProcesses())
    link = RefereeLink(processes, Path(), device="cpu", builds=Path(), threads=1, limits=limits)
    compare = Compare({}, {}, "strict", "dense", "")
    asked = (about(SMALL_CALLS_BYTES), compare, ListOps("traces", ()), about(SMALL_CALLS_BYTES + 2), compare)
    assert [6.0, 6.0, 18.0, 18.0, 18.0] == [link._limit_of(request) for request in asked]


class SilentProcesses(AnsweringProcesses):
    """Forks referees that never answer."""

    def fork(self, _role: str, _config: object, _nursery: object = None) -> Any:
        ours, theirs = socket.socketpair()
        self._theirs.append(theirs)
        return SimpleNamespace(channel=Channel(ours))


def test_a_referee_is_not_waited_for_beyond_the_time_of_its_kernel() -> None:
    """Eager may take three minutes, of which a campaign with a budget has promised fewer."""
    processes = SilentProcesses()
    link = RefereeLink(cast("Processes", processes), Path(), device="cpu", builds=Path(), threads=1, limits=Limits())
    began = time.monotonic()
    link.finish_by(began + 0.05)
    with pytest.raises(RefereeHung, match=TIME_IS_OVER):
        link.ask(ListOps("smoke", ()), OpsListed)
    assert time.monotonic() - began < 10
    processes.close()
