"""Where the servers of a chaos run work: a small file system of its own, and PostgreSQL beside it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from benchmarks.serve.running import free_port

#: Of the small file system, where there may be one.
SIZE = "1g"
#: Debian's folders of PostgreSQL, the newest last.
POSTGRES = Path("/usr/lib/postgresql")
SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - it is looked at
#: One mount in some hundred meets a file that is just opened.
READ_ONLY_TRIES = 20
#: Of the database that is started beside it.
_NOT_OURS = ("PostgreSQL.",)


class Place:
    """A folder that everything of the servers lies below.

    Attributes:
        root: the folder.
        is_small: whether it is a file system of its own, which can be filled and made read-only.
    """

    def __init__(self, root: Path, *, is_small: bool) -> None:
        self.root, self.is_small = root, is_small
        for name in ("tmp", "cache"):
            (root / name).mkdir()
        self._shared = _names(SHARED_MEMORY)

    @contextlib.contextmanager
    def full(self) -> Iterator[None]:
        """Leave no room on the file system."""
        filler = self.root / "filler"
        try:
            with contextlib.suppress(OSError), filler.open("wb", buffering=0) as file:
                while file.write(b"\0" * (1 << 20)):
                    pass
            yield
        finally:
            filler.unlink(missing_ok=True)

    @contextlib.contextmanager
    def read_only(self) -> Iterator[None]:
        """Let nobody open a file for writing; those that are open stay so."""
        self._mount_read_only()
        try:
            yield
        finally:
            _run("umount", "-l", str(self.root))

    def _mount_read_only(self) -> None:
        """Mount the folder over itself: the file system itself cannot be made read-only below open files.

        Neither can the mount if a server opens a file through it before it is; then the next one is.
        """
        for left in reversed(range(READ_ONLY_TRIES)):
            _run("mount", "--bind", str(self.root), str(self.root))
            try:
                _run("mount", "-o", "remount,bind,ro", str(self.root))
            except subprocess.CalledProcessError:
                _run("umount", "-l", str(self.root))
                if not left:
                    raise
            else:
                return

    def left(self) -> dict[str, list[str]]:
        """What servers that have ended have left: in temporary folders, in shared memory, and processes."""
        shared = sorted(_names(SHARED_MEMORY) - self._shared)
        return {
            "temporary": sorted(_names(self.root / "tmp")),
            "shared_memory": [name for name in shared if not name.startswith(_NOT_OURS)],
            "processes": processes_of(self.root),
        }


def _names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)  # noqa: S603 - our own


def processes_of(root: Path) -> list[str]:
    """Number and name of the processes that were started with the folder in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if str(root).encode() in (path / "environ").read_bytes() and path.name != str(os.getpid()):
                found.append(f"{path.name} {(path / 'comm').read_text().strip()}")
    return found


@contextlib.contextmanager
def made() -> Iterator[Place]:
    """A place, which is removed in the end."""
    with tempfile.TemporaryDirectory(prefix="opsmith-chaos-") as folder:
        root = Path(folder) / "place"
        root.mkdir()
        options = ["-t", "tmpfs", "-o", f"size={SIZE}", "tmpfs", str(root)]
        is_small = (
            os.geteuid() == 0 and subprocess.run(["mount", *options], check=False, capture_output=True).returncode == 0  # noqa: S603, S607
        )
        try:
            yield Place(root, is_small=is_small)
        finally:
            if is_small:
                subprocess.run(["umount", "-l", str(root)], check=False)  # noqa: S603, S607


def is_installed() -> bool:
    """Whether PostgreSQL of Debian's package is there."""
    return any(POSTGRES.glob("*/bin/initdb"))


@contextlib.contextmanager
def postgres() -> Iterator[str]:
    """PostgreSQL of Debian's package, with an empty database; its URL.

    Raises:
        RuntimeError: it is not installed, or does not start.
    """
    programs = sorted(POSTGRES.glob("*/bin"), key=lambda path: int(path.parent.name))
    if not programs:
        raise RuntimeError("PostgreSQL is not installed: apt-get install postgresql")
    as_user = {"user": "postgres"} if os.geteuid() == 0 else {}
    with tempfile.TemporaryDirectory(prefix="opsmith-postgres-") as folder:
        data, port = Path(folder) / "data", free_port()
        if as_user:
            shutil.chown(folder, "postgres")
        initdb = [str(programs[-1] / "initdb"), "-D", str(data), "-A", "trust", "-U", "opsmith"]
        subprocess.run(initdb, check=True, capture_output=True, **as_user)  # type: ignore[call-overload]  # noqa: S603
        server = [str(programs[-1] / "postgres"), "-D", str(data), "-k", folder, "-p", str(port)]
        with Path(folder, "log").open("wb") as log:
            running = subprocess.Popen(server, stdout=log, stderr=log, **as_user)  # type: ignore[call-overload]  # noqa: S603
            try:
                ready = [str(programs[-1] / "pg_isready"), "-h", "127.0.0.1", "-p", str(port)]
                deadline = time.monotonic() + 60
                while subprocess.run(ready, check=False, capture_output=True).returncode != 0:  # noqa: S603
                    if time.monotonic() > deadline:
                        raise RuntimeError(f"PostgreSQL did not start: {Path(folder, 'log').read_text()[-1000:]}")
                    time.sleep(0.1)
                yield f"postgresql://opsmith@127.0.0.1:{port}/postgres"
            finally:
                running.send_signal(signal.SIGINT)  # SIGTERM would wait until all clients are gone.
                running.wait(timeout=60)
