"""What trials found, kept on disk: a call is tried out once on a machine."""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import torch

from opsmith.core.cache import cache_folder
from opsmith.core.case import digest
from opsmith.devices import kind_of

#: A way is taken instead of another if it takes at most this part of the time: less is within what a trial varies.
WORTH_IT = 0.95


_log = logging.getLogger("opsmith")


class Trial(msgspec.Struct, frozen=True, kw_only=True):
    """What several ways of making one call took.

    Attributes:
        call: what was called, with dtypes, shapes, strides and numbers.
        us: way -> microseconds of a call, for the ways that were timed.
        notes: way -> why it was not timed, for the others.
    """

    call: str
    us: dict[str, float]
    notes: dict[str, str] = {}

    def is_faster(self, way: str, other: str, worth_it: float = WORTH_IT) -> bool:
        """Whether one way is known to take at most ``worth_it`` of another's time."""
        return way in self.us and other in self.us and self.us[way] <= worth_it * self.us[other]

    @property
    def is_final(self) -> bool:
        """Whether it would be the same another time: not if a device's memory was in use."""
        return bool(self.us) and not any("OutOfMemory" in note for note in self.notes.values())

    def line(self) -> str:
        """For people: the call, and each way with its time or with why it has none."""
        ways = [f"{way} {us:,.1f} us" for way, us in self.us.items()]
        return f"{self.call}: {', '.join([*ways, *(f'{way}: {note}' for way, note in self.notes.items())])}"


class _Line(msgspec.Struct, frozen=True, kw_only=True):
    key: str
    trial: Trial


class TrialBook:
    """Trials by what they depend on, in a file that several processes may append to.

    Args:
        file: a line for each trial; made when there is one. A line that cannot be read is as if it were not there.

    Attributes:
        file: as given.
    """

    def __init__(self, file: Path) -> None:
        self.file = file
        self._trials: dict[str, Trial] = {}
        self._read_bytes = 0
        self._lock = threading.Lock()

    def find_or_hold(self, key: str, hold: Callable[[], Trial]) -> Trial:
        """The trial that was held before under this key, by whichever process, or one that is held now.

        It is kept if it is final, else only in this process.
        """
        with self._lock:
            if key not in self._trials:
                self._read()
            if key not in self._trials:
                self._keep(key, hold())
            return self._trials[key]

    def find(self, key: str) -> Trial | None:
        """The trial that was held before under this key, by whichever process."""
        with self._lock:
            if key not in self._trials:
                self._read()
            return self._trials.get(key)

    def trials(self) -> dict[str, Trial]:
        """All that were held, by whichever process."""
        with self._lock:
            self._read()
            return dict(self._trials)

    def keep(self, key: str, trial: Trial) -> None:
        """Keep a trial if it is final, else only in this process."""
        with self._lock:
            self._keep(key, trial)

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """While other processes time nothing for the same book; the system frees it when a process dies.

        Where the folder cannot be written to, there is nothing to wait for.
        """
        import fcntl  # Where there is none there are no GPUs of CUDA's that share a book.

        try:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(self.file.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError:
            yield
            return
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _keep(self, key: str, trial: Trial) -> None:
        self._trials[key] = trial
        if not trial.is_final:
            return
        try:
            self._append(_Line(key=key, trial=trial))
        except OSError as exc:
            _log.warning("what a trial found is not kept, for %s cannot be written to: %s", self.file, exc)

    def _read(self) -> None:
        """Take in whole lines that were written since."""
        try:
            with self.file.open("rb") as stream:
                stream.seek(self._read_bytes)
                lines, newline, _ = stream.read().rpartition(b"\n")
        except OSError:
            return  # It is not there, or nobody may read it.
        self._read_bytes += len(lines) + len(newline)
        for text in lines.splitlines():
            with contextlib.suppress(msgspec.DecodeError):
                line = msgspec.json.decode(text, type=_Line)
                self._trials[line.key] = line.trial

    def _append(self, line: _Line) -> None:
        """In one write, so that lines of two processes do not mix, and after the end of one that was cut off."""
        self.file.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(self.file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(descriptor, b"\n" + msgspec.json.encode(line) + b"\n")
        finally:
            os.close(descriptor)


#: Of a file there is one in a process.
_opened = functools.cache(TrialBook)


def book_of(purpose: str, device: torch.device) -> TrialBook:
    """What trials for a purpose found on a device; its file is named for the device and for torch's version."""
    name = device.type if device.type == "cpu" else kind_of(device.type).name(device)
    return _opened(cache_folder() / purpose / f"{digest(f'{name} torch {torch.__version__}'.encode())}.jsonl")
