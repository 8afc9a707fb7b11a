"""The memory of one device, divided among all of a user's processes that judge on it: who finds no room waits.

Each takes what its contexts and their cases need before it makes the first one, and gives it back at its end. A share
is a file that its owner holds locked with ``flock``: the kernel frees it when the owner dies, whatever it died of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path

from opsmith.runner.machine.device_lock import Wait, locked
from opsmith.runner.protocol.lane import Waiting

#: How often it is looked whether somebody has given a share back.
LOOK_S = 0.2
#: Of a device's memory what judges may take together; the rest is for whoever else uses it.
SHARE = 0.85
#: What a process takes with its context, its libraries and its allocator's first blocks.
CONTEXT_BYTES = 640 << 20
#: A worker that waits: see ``WORKER_DEVICE_GIB``.
WAITING_BYTES = 460 << 20
#: What the arguments and results of the cases of a slot come to, most of the time.
CASES_BYTES = 512 << 20


def needed_bytes(slots: int, waiting: int, *, bare: int) -> int:
    """What a judge takes of a device.

    Args:
        slots: each has a referee and a worker.
        waiting: further workers that are kept ready, at most.
        bare: bare processes at a time.
    """
    return slots * (2 * CONTEXT_BYTES + CASES_BYTES) + waiting * WAITING_BYTES + bare * CONTEXT_BYTES


class DeviceRoom:
    """The memory of one device, as all judges of a user see it.

    Args:
        folder: where its files lie; as that of the device's lock.
        device_id: what tells the device from others on this machine.
        capacity_bytes: what judges may take together.
        waiting: told once in a wait that lasts.
    """

    def __init__(self, folder: Path, device_id: str, *, capacity_bytes: int, waiting: Waiting | None = None) -> None:
        self._door = folder / f"{device_id}.door"
        self._shares = folder / f"{device_id}.room"
        self._capacity_bytes = capacity_bytes
        self._waiting = waiting

    @contextlib.contextmanager
    def taken(self, size_bytes: int) -> Iterator[None]:
        """Wait until there is room for so many bytes, and take them; one that needs more than all is let in alone.

        Whoever waits is at the door, and those that come later stand behind.
        """
        self._shares.mkdir(parents=True, exist_ok=True)
        with Wait(self._waiting) as wait, locked(self._door, fcntl.LOCK_EX, wait):
            while (others := self._taken_bytes()) and others + size_bytes > self._capacity_bytes:
                wait.begin()
                time.sleep(LOOK_S)
            path = self._shares / f"{size_bytes}-{secrets.token_hex(8)}"
            share = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            fcntl.flock(share, fcntl.LOCK_EX)
        try:
            yield
        finally:
            path.unlink(missing_ok=True)
            fcntl.flock(share, fcntl.LOCK_UN)
            os.close(share)

    def _taken_bytes(self) -> int:
        """What those have together that live; the shares of others are removed."""
        return sum(int(path.name.partition("-")[0]) for path in self._shares.iterdir() if _is_held(path))


def _is_held(path: Path) -> bool:
    try:
        share = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(share, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    else:
        path.unlink(missing_ok=True)
        return False
    finally:
        os.close(share)
