"""What another process's memory is, as Linux lists it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from opsmith.runner.machine.process_times import descendants

#: Of mappings that have a name and are a process's own all the same, what the name begins with: huge pages, and what
#: older allocators take memory from.
_OWN_NAMES = ("/anon_hugepage", "/dev/zero")
#: The driver's, which managed memory of a process is, and which are shared with it alone.
_DRIVER_NAMES = ("/dev/nvidia",)
#: What Linux calls shared memory without a file: CUDA 13's pinned memory is some. A process shares it with those that
#: it has started since.
_SHARED_NAME = "/dev/zero (deleted)"


class _Mapping(NamedTuple):
    start: int
    end: int
    rights: str
    device: str
    inode: int
    name: str

    def is_own(self, pid: int) -> bool:
        """Whether a process can read and write it, nobody else can, and no file lies behind it."""
        if not self.rights.startswith("rw"):
            return False
        if self.name == _SHARED_NAME:
            return not self._is_mapped_beside(pid)
        is_private = self.rights.endswith("p") and (not self.inode or self.name.startswith(_OWN_NAMES))
        return is_private or self.name.startswith(_DRIVER_NAMES)

    def _is_mapped_beside(self, pid: int) -> bool:
        """Whether another process has mapped the same, or is a child that hides what it has mapped."""
        for folder in Path("/proc").glob("[0-9]*"):
            other = int(folder.name)
            if other == pid:
                continue
            try:
                if any((mapping.device, mapping.inode) == (self.device, self.inode) for mapping in _mappings(other)):
                    return True
            except PermissionError:
                if other in descendants(pid):
                    return True
            except OSError:  # It has ended.
                continue
        return False

    def __str__(self) -> str:
        return f"{self.name or 'memory without a name'}, {self.rights}"


def foreign_memory(pid: int, spans: Sequence[tuple[int, int]]) -> str | None:
    """What else than private memory of a process some addresses lie in: a file, shared memory, what it cannot read.

    Args:
        pid: the process.
        spans: first bytes, and those behind the last ones.

    Returns:
        one line, or None where all of it is its own, or nobody may know.
    """
    try:
        mappings = _mappings(pid)
    except OSError:
        return None
    starts = [mapping.start for mapping in mappings]
    for start, end in spans:
        place = max(bisect_right(starts, start) - 1, 0)
        reached = start
        for mapping in mappings[place:]:
            if reached >= end or not mapping.start <= reached < mapping.end:
                break
            if not mapping.is_own(pid):
                return str(mapping)
            reached = mapping.end
        if reached < end:
            return "no memory at all"
    return None


def _mappings(pid: int) -> list[_Mapping]:
    return [_mapping(line) for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()]


def _mapping(line: str) -> _Mapping:
    addresses, rights, _offset, device, inode, *name = line.split(maxsplit=5)
    start, end = addresses.split("-")
    return _Mapping(int(start, 16), int(end, 16), rights, device, int(inode), name[0] if name else "")
