"""Timing baselines of many problems: each in a process of its own, which is alone on the device while it is timed."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec

from opsmith.core.baseline_times import COMPILED, BaselineRequest, BaselineTime
from opsmith.core.environment import Environment
from opsmith.errors import BadInput
from opsmith.runner.machine.device_lock import DeviceLock, default_folder
from opsmith.runner.machine.environment import describe_environment
from opsmith.runner.processes.isolated import NoAnswer, answer_of
from opsmith.runner.processes.turns import Turn, Turns
from opsmith.runner.protocol.referee_messages import DeviceOpened

#: What the parent of those processes imports.
_PRELOADED = ["opsmith.baselines.measuring"]
#: Importing torch and opening the device.
OPENING_TIMEOUT_S = 300.0
#: How torch begins to say that the device has no memory left.
OUT_OF_MEMORY = "OutOfMemoryError"


class _Opened(msgspec.Struct, frozen=True):
    """What a process on the device says of it, and the versions of what it runs."""

    device: DeviceOpened
    versions: dict[str, str | None]


class BaselineTimer:
    """Times baselines on one device.

    Attributes:
        environment: versions and hardware.

    Args:
        device: torch device string.
        timeout_s: of one problem under one baseline.
        jobs: problems that are built and compiled at a time.

    Raises:
        BadInput: the device cannot be used.
    """

    def __init__(self, device: str, *, timeout_s: float, jobs: int) -> None:
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        try:
            answer = answer_of(self._context, _open, device, timeout_s=OPENING_TIMEOUT_S)
        except NoAnswer as exc:
            raise BadInput(f"device {device} cannot be used: {exc}") from exc
        opened = msgspec.msgpack.decode(answer, type=_Opened)
        if opened.device.problem is not None:
            raise BadInput(f"device {device} cannot be used: {opened.device.problem}")
        self._jobs = jobs
        lock = DeviceLock(default_folder(), opened.device.identity)
        self._turns = Turns(self._context, lock, jobs=jobs, timeout_s=timeout_s)
        self.environment: Environment = describe_environment(
            opened.versions, device=device, device_name=opened.device.name
        )

    def time(self, requests: Sequence[BaselineRequest]) -> Iterator[BaselineTime]:
        """Yield what was found of each request, in the order in which they were done.

        What found no memory on the device beside others is asked again by itself.
        """
        crowded = []
        for number, answer in self._turns.answers(_serve, requests):
            time = _time_of(requests[number], answer)
            if self._jobs > 1 and time.problem is not None and time.problem.startswith(OUT_OF_MEMORY):
                crowded.append(requests[number])
            else:
                yield time
        for request in crowded:
            for _, answer in self._turns.answers(_serve, [request]):
                yield _time_of(request, answer)


def _time_of(request: BaselineRequest, answer: bytes | NoAnswer) -> BaselineTime:
    if isinstance(answer, NoAnswer):
        return BaselineTime(task=request.task, baseline=request.baseline, problem=str(answer))
    return msgspec.msgpack.decode(answer, type=BaselineTime)


def _open(sender: Connection, device: str) -> None:
    from opsmith.runner.child.contexts import open_device
    from opsmith.runner.child.versions import versions

    sender.send_bytes(msgspec.msgpack.encode(_Opened(open_device(device), versions())))


def _serve(turn: Turn, request: BaselineRequest) -> bytes:
    """Time one request in this process."""
    import warnings

    import torch

    from opsmith.baselines.measuring import time_baseline

    warnings.simplefilter("ignore")  # What a problem's libraries have to say is not about its time.
    torch.set_num_threads(1)
    if request.baseline in COMPILED:  # Importing the compiler takes seconds.
        torch._inductor.config.compile_threads = 1  # Other problems compile beside this one.
    return msgspec.msgpack.encode(time_baseline(request, turn.take))
