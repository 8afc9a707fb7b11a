"""One lock a device, over all of a user's processes: many judge beside each other, one times alone.

Whoever judges holds it shared, whoever times holds it exclusively. Two files keep it fair: everybody
passes the *turnstile* alone, a reader for a moment, a writer until it has the lock itself. So readers
that come later queue behind a writer that waits, and it waits for those only that were there before.

Both are held with ``flock``: the kernel frees them when a process dies, whatever it died of.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from opsmith.core.cache import cache_folder
from opsmith.errors import BadInput
from opsmith.runner.protocol.lane import Waiting

#: Nobody is told of a wait that is shorter.
PATIENCE_S = 1.0


def default_folder() -> Path:
    """The folder of this user's locks, beside opsmith's caches; made if there is none.

    Raises:
        BadInput: it cannot be made.
    """
    folder = cache_folder() / "locks"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise BadInput(
            f"{folder} cannot be made to hold locks ({exc.strerror}); set XDG_CACHE_HOME to a folder of yours"
        ) from exc
    return folder


class DeviceLock:
    """The lock of one device. Threads may share it; none may ask for it while holding it.

    Args:
        folder: where its two files lie; :func:`default_folder` for all runs of a user.
        device_id: what tells the device from others on this machine, for example its UUID; a part
            of the files' names.
        waiting: told once in each wait that lasts for more than ``PATIENCE_S``.
    """

    def __init__(self, folder: Path, device_id: str, *, waiting: Waiting | None = None) -> None:
        self._turnstile = folder / f"{device_id}.turnstile"
        self._lock = folder / f"{device_id}.lock"
        self._waiting = waiting

    @contextlib.contextmanager
    def shared(self) -> Iterator[None]:
        """Hold it beside others that hold it shared: to judge."""
        with self._held(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def exclusive(self) -> Iterator[None]:
        """Hold it alone: to time."""
        with self._held(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _held(self, how: int) -> Iterator[None]:
        with contextlib.ExitStack() as held:
            with Wait(self._waiting) as wait, locked(self._turnstile, fcntl.LOCK_EX, wait):
                held.enter_context(locked(self._lock, how, wait))
            yield


class Wait:
    """One wait, of which somebody is told if it is long."""

    def __init__(self, waiting: Waiting | None) -> None:
        self._waiting = waiting
        self._alarm: threading.Timer | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        if self._alarm is not None:
            self._alarm.cancel()

    def begin(self) -> None:
        """A lock is not free. Called more than once, it is the same wait."""
        if self._waiting is None or self._alarm is not None:
            return
        waiting, start = self._waiting, time.monotonic()
        self._alarm = threading.Timer(PATIENCE_S, lambda: waiting(time.monotonic() - start))
        self._alarm.daemon = True
        self._alarm.start()


@contextlib.contextmanager
def locked(path: Path, how: int, wait: Wait) -> Iterator[None]:
    """Hold a file locked with ``flock``, which ``wait`` is told of if it is not free."""
    # Each holder opens the file itself: a lock belongs to what was opened, not to the process.
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        try:
            fcntl.flock(descriptor, how | fcntl.LOCK_NB)
        except BlockingIOError:
            wait.begin()
            fcntl.flock(descriptor, how)
        yield
    finally:
        # Closing alone would not do while a process that was forked meanwhile still has it open.
        fcntl.flock(descriptor, fcntl.LOCK_UN)
        os.close(descriptor)
