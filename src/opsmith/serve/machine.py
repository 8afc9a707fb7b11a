"""What the machine of a server may lack for a while, and kernels that are judged without company."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

from opsmith.core.storage import storage_problem

#: Errors of a machine that has no room, or lets nobody write: the same may work later.
_LACKS = {
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EROFS,
    errno.EACCES,
    errno.EPERM,
    errno.EMFILE,
    errno.ENFILE,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EIO,
}
#: With less left on a file system, judging may have failed for want of it.
LEAST_BYTES = 16 << 20
LEAST_FILES = 100


def lacks(exc: OSError) -> bool:
    """Whether an error says that the machine lacks something; so does what could not be copied."""
    return exc.errno in _LACKS or isinstance(exc, shutil.Error)


def missing(exc: OSError) -> str:
    """What an error says that the machine lacks, in one line."""
    if isinstance(exc, shutil.Error) and exc.args and isinstance(exc.args[0], list):
        return str(exc.args[0][0][-1])
    return storage_problem(exc) or str(exc)


def shortage(folders: Iterable[Path]) -> str:
    """What is missing on the file systems of folders, in words; nothing if nothing is."""
    for folder in folders:
        there = next(each for each in (folder, *folder.parents) if each.exists())
        found = os.statvfs(there)
        if found.f_bavail * found.f_frsize < LEAST_BYTES:
            return f"the disk of {there} is full"
        if found.f_files and found.f_favail < LEAST_FILES:
            return f"the disk of {there} takes no further files"
        if found.f_flag & os.ST_RDONLY:
            return f"{there} is read-only"
    return ""


class Company:
    """Lets kernels be judged beside each other, or one without any other."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._there = 0
        self._waiting = 0

    @contextlib.contextmanager
    def beside_others(self) -> Iterator[None]:
        """Judge beside others; whoever wants to be alone comes first."""
        with self._changed:
            self._changed.wait_for(lambda: not self._waiting)
            self._there += 1
        try:
            yield
        finally:
            self._leave()

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Judge while nobody else does."""
        with self._changed:
            self._waiting += 1
            self._changed.wait_for(lambda: not self._there)
            self._there += 1
        try:
            yield
        finally:
            with self._changed:
                self._waiting -= 1
            self._leave()

    def _leave(self) -> None:
        with self._changed:
            self._there -= 1
            self._changed.notify_all()
