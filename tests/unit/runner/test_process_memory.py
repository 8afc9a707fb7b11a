"""Memory that others can write to is told from a process's own."""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import tempfile
from pathlib import Path

import pytest

from opsmith.runner.machine.process_memory import foreign_memory

SIZE = 4 * mmap.PAGESIZE


def address_of(memory: mmap.mmap | ctypes.Array[ctypes.c_char]) -> int:
    """Of the first byte."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def span(memory: mmap.mmap) -> tuple[int, int]:
    """Of all of it."""
    return address_of(memory), address_of(memory) + SIZE


def test_private_memory_is_a_processs_own() -> None:
    """Of malloc, and of a mapping without a file; over several mappings, too."""
    block = ctypes.create_string_buffer(64)
    mapped = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    spans = [(address_of(block), address_of(block) + 64), span(mapped)]
    assert foreign_memory(os.getpid(), spans) is None
    libc = ctypes.CDLL(None)
    libc.madvise(ctypes.c_void_p(address_of(mapped)), mmap.PAGESIZE, mmap.MADV_DONTFORK)  # Two mappings now.
    assert foreign_memory(os.getpid(), spans) is None


@pytest.mark.parametrize("flags", [mmap.MAP_SHARED, mmap.MAP_PRIVATE])
def test_a_file_is_not(tmp_path: Path, flags: int) -> None:
    """It may be filled when it is read, or by others."""
    path = tmp_path / "file"
    path.write_bytes(bytes(SIZE))
    with path.open("r+b") as file, mmap.mmap(file.fileno(), SIZE, flags=flags) as mapped:
        told = foreign_memory(os.getpid(), [span(mapped)])
        assert told is not None
        assert told.startswith(str(path))


def test_memory_that_is_shared_with_a_child_is_not() -> None:
    """The child may write to it; while nobody else has mapped it, it is like pinned memory of CUDA's."""
    mapped = mmap.mmap(-1, SIZE)  # Shared, which is the default.
    assert foreign_memory(os.getpid(), [span(mapped)]) is None
    child = os.fork()
    if not child:
        signal.pause()
        os._exit(0)
    try:
        told = foreign_memory(os.getpid(), [span(mapped)])
        assert told is not None
        assert told.startswith("/dev/zero (deleted)")
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert foreign_memory(os.getpid(), [span(mapped)]) is None


def test_shared_memory_with_a_name_is_not() -> None:
    """Anybody may map it."""
    descriptor = os.memfd_create("shared")
    os.ftruncate(descriptor, SIZE)
    assert foreign_memory(os.getpid(), [span(mmap.mmap(descriptor, SIZE))]) is not None
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as file:
        os.ftruncate(file.fileno(), SIZE)
        assert foreign_memory(os.getpid(), [span(mmap.mmap(file.fileno(), SIZE))]) is not None


def test_memory_that_cannot_be_read_is_not() -> None:
    """Somebody's handler may fill it; the last page alone is enough."""
    mapped = mmap.mmap(-1, SIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(span(mapped)[1] - mmap.PAGESIZE), mmap.PAGESIZE, 0)
    told = foreign_memory(os.getpid(), [span(mapped)])
    assert told is not None
    assert told.endswith("---p")
    assert "no memory at all" == foreign_memory(os.getpid(), [(8, 16)])


def test_of_a_process_that_has_ended_nothing_is_known() -> None:
    """Its end has another reason."""
    assert foreign_memory(2**22 - 1, [(8, 16)]) is None
