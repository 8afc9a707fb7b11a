"""What a file system or the system's limits refuse: full disks, quotas, read-only folders, too many open files."""

from __future__ import annotations

import errno
import os
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

#: What a person can do about each.
REMEDIES = {
    errno.ENOSPC: "make room",
    errno.EDQUOT: "make room, or have the quota raised",
    errno.EROFS: "choose a folder that can be written to",
    errno.EACCES: "choose a folder that can be written to",
    errno.EPERM: "choose a folder that can be written to",
    errno.EMFILE: "raise the limit (`ulimit -n 65536`), or lower --jobs",
    errno.ENFILE: "end other programs, or have the machine's limit raised (fs.file-max)",
    errno.EIO: "see to the disk",
}
#: Of files themselves, and of the system at large.
_WITHOUT_DISK = {errno.EMFILE, errno.ENFILE}
#: Names of a file, and not what was refused, are in these.
_NEEDS_NAME = {errno.EACCES, errno.EPERM, errno.EROFS}
#: As a process in need of one says it, in any language that asks the C library.
_SAID = tuple(os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.ENFILE, errno.EMFILE))
#: What is written to see whether there is room.
PROBE_BYTES = 64 << 10
#: How long somebody else may take to give room back, and how often it is looked.
PATIENCE_S, LOOK_S = 20.0, 0.2


def storage_problem(error: OSError) -> str | None:
    """In one line what was refused, on which disk, and what to do; None for other errors."""
    remedy = REMEDIES.get(error.errno or 0)
    name = error.filename
    if remedy is None or (name is None and error.errno in _NEEDS_NAME):
        return None
    what = error.strerror or os.strerror(error.errno or 0)
    if error.errno in _WITHOUT_DISK or not isinstance(name, (str, os.PathLike)):
        return f"{what}; {remedy}"
    path = Path(name)
    return f"{path} cannot be written: {what} ({_disk_of(path)}); {remedy}"


def is_about_storage(text: str) -> bool:
    """Whether a process says that it was refused something of this kind; what it says may be made up."""
    return any(said in text for said in _SAID)


def check_room(folders: Iterable[Path]) -> None:
    """See whether files can be made and written in each folder.

    Raises:
        OSError: in one of them they cannot; it names the folder.
    """
    for folder in folders:
        with naming(folder), tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            left = PROBE_BYTES
            while left:
                left -= file.write(bytes(left))


def wait_for_room(folders: Sequence[Path], *, patience_s: float = PATIENCE_S) -> None:
    """Wait until there is room in all folders, which somebody else may be about to give back.

    Raises:
        OSError: as :func:`check_room`, and no longer waited for.
    """
    deadline = time.monotonic() + patience_s
    while True:
        try:
            check_room(folders)
        except OSError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(LOOK_S)
        else:
            return


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give errors of the system's that come out of it this path, unless they name one."""
    try:
        yield
    except OSError as exc:
        if exc.filename is None and exc.errno is not None:
            raise OSError(exc.errno, exc.strerror, str(path)) from exc
        raise


def _disk_of(path: Path) -> str:
    """The mount that a path lies on, and what is free there."""
    there = next((parent for parent in (path, *path.absolute().parents) if parent.exists()), Path("/")).resolve()
    mount = next(parent for parent in (there, *there.parents) if os.path.ismount(parent))
    try:
        free = os.statvfs(mount)
    except OSError:
        return f"disk {mount}"
    return f"disk {mount}, {free.f_bavail * free.f_frsize >> 20} MiB free"
