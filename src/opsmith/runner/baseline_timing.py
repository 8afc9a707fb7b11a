"""Timing baselines of many problems: each in a process of its own, one after another, alone on the device."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection

import msgspec

from opsmith.core.baseline_times import BaselineRequest, BaselineTime
from opsmith.core.environment import Environment
from opsmith.errors import BadInput
from opsmith.runner.apart import NoAnswer, answer_of
from opsmith.runner.device_lock import DeviceLock, default_folder
from opsmith.runner.environment import describe_environment
from opsmith.runner.protocol import DeviceOpened

#: What the parent of those processes imports.
_PRELOADED = ["opsmith.evaluation.baseline_times"]
#: Importing torch and opening the device.
OPENING_TIMEOUT_S = 300.0


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

    Raises:
        BadInput: the device cannot be used.
    """

    def __init__(self, device: str, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload(_PRELOADED)
        try:
            answer = answer_of(self._context, _open, device, timeout_s=OPENING_TIMEOUT_S)
        except NoAnswer as exc:
            raise BadInput(f"device {device} cannot be used: {exc}") from exc
        opened = msgspec.msgpack.decode(answer, type=_Opened)
        if opened.device.problem is not None:
            raise BadInput(f"device {device} cannot be used: {opened.device.problem}")
        self._lock = DeviceLock(default_folder(), opened.device.identity)
        self.environment: Environment = describe_environment(
            opened.versions, device=device, device_name=opened.device.name
        )

    def time(self, requests: Sequence[BaselineRequest]) -> Iterator[BaselineTime]:
        """Yield what was found of each request, in their order."""
        for request in requests:
            try:
                with self._lock.exclusive():
                    answer = answer_of(self._context, _serve, request, timeout_s=self._timeout_s)
                yield msgspec.msgpack.decode(answer, type=BaselineTime)
            except NoAnswer as exc:
                yield BaselineTime(task=request.task, baseline=request.baseline, problem=str(exc))


def _open(sender: Connection, device: str) -> None:
    from opsmith.runner.devices import open_device
    from opsmith.runner.versions import versions

    sender.send_bytes(msgspec.msgpack.encode(_Opened(open_device(device), versions())))


def _serve(sender: Connection, request: BaselineRequest) -> None:
    """Time one request in this process, which ends with it."""
    import warnings

    import torch

    from opsmith.evaluation.baseline_times import time_baseline

    warnings.simplefilter("ignore")  # What a problem's libraries have to say is not about its time.
    torch.set_num_threads(1)
    sender.send_bytes(msgspec.msgpack.encode(time_baseline(request)))
