"""Where compilers keep what they build: a folder of its own for each kernel, and one for eager."""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Self

from opsmith.runner.child.triton_start import place_driver_module

#: Name of eager's own folder.
EAGER = "eager"

#: The variables by which compilers are told, and the folders that they get.
_FOLDERS = {
    "TRITON_CACHE_DIR": "triton",
    "TORCHINDUCTOR_CACHE_DIR": "inductor",
    "TORCH_EXTENSIONS_DIR": "extensions",
    "CUPY_CACHE_DIR": "cupy",
    "TILELANG_CACHE_DIR": "tilelang",
    "CUDA_TILE_CACHE_DIR": "cutile",
    "PYTORCH_KERNEL_CACHE_PATH": "jiterator",  # Eager's own: some CUDA kernels are compiled at their first call.
}

#: These are not made by who uses them.
_MUST_EXIST = ("extensions", "jiterator")

#: The file by which torch's extension builder locks a folder; it waits for ever for somebody else to remove it.
_TORCH_LOCK = "lock"
_BUILDING, _IDLE = b"1", b"0"


def use_build_cache(folder: Path) -> None:
    """Point every compiler of this process at a cache below ``folder``, which begins with what all kernels need."""
    for variable, name in _FOLDERS.items():
        os.environ[variable] = str(folder / name)
    for name in _MUST_EXIST:
        (folder / name).mkdir(parents=True, exist_ok=True)
    place_driver_module(folder / _FOLDERS["TRITON_CACHE_DIR"])


class BuildCache:
    """A kernel's build cache, which one process has to itself until it ends.

    A worker that is killed while it builds leaves locks that nobody gives back and files that are half written. So
    that file beside the folder that is locked also says since when the process may be building. Whoever gets the
    folder next removes what was written since, if the process was killed before it was done.

    Attributes:
        name: of the kernel.
        folder: where this process builds.
    """

    def __init__(self, name: str, folder: Path, mark: int) -> None:
        self.name = name
        self.folder = folder
        self._mark = mark

    @classmethod
    def claim(cls, builds: Path, name: str) -> Self:
        """Take the first cache of a kernel that no living process has, without what a killed one left half done.

        Args:
            builds: parent of the build caches.
            name: the kernel's; its further caches, for processes that run it at the same time, add a number.
        """
        for number in itertools.count():
            folder = builds / (f"{name}-{number}" if number else name)
            mark = os.open(builds / f"{folder.name}.mark", os.O_RDWR | os.O_CREAT, 0o600)
            try:
                fcntl.flock(mark, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(mark)
                continue
            since_ns = os.fstat(mark).st_mtime_ns if os.pread(mark, 1, 0) == _BUILDING else None
            _remove_unfinished(folder, since_ns)
            os.pwrite(mark, _IDLE, 0)
            return cls(name, folder, mark)
        raise AssertionError("numbers do not end")

    def release(self) -> None:
        """Leave it to the next process; one that ends does so anyway."""
        os.close(self._mark)

    @contextlib.contextmanager
    def building(self) -> Iterator[None]:
        """Within it the kernel may build something."""
        os.pwrite(self._mark, _BUILDING, 0)  # By which the file's time is that of now, as the file system counts it.
        try:
            yield
        finally:
            os.pwrite(self._mark, _IDLE, 0)


def _remove_unfinished(folder: Path, since_ns: int | None) -> None:
    """Remove what killed processes left: torch's locks, and all that was written since they began to build.

    What is older was complete. A lock that is found was made when a build began.

    Args:
        folder: a cache that nobody uses.
        since_ns: when a process that did not end its work began with it; None if there is none.
    """
    files = [Path(parent, name) for parent, _, names in os.walk(folder) for name in names]
    began = [path.lstat().st_ctime_ns for path in files if path.name == _TORCH_LOCK]
    if since_ns is not None:
        began.append(since_ns)
    if not began:
        return
    for path in files:
        if path.name == _TORCH_LOCK or path.lstat().st_ctime_ns >= min(began):
            path.unlink()
