"""What another process's memory is, as Linux lists it."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

#: Of mappings that have a name and are a process's own all the same, what the name begins with: huge pages, and what
#: older allocators take memory from.
_OWN_NAMES = ("/anon_hugepage", "/dev/zero")
#: The driver's, which pinned memory of a process is, and which are shared with it alone.
_DRIVER_NAMES = ("/dev/nvidia",)


class _Mapping(NamedTuple):
    start: int
    end: int
    rights: str
    inode: int
    name: str

    @property
    def is_own(self) -> bool:
        """Whether the process can read and write it, nobody else can, and no file lies behind it."""
        if not self.rights.startswith("rw"):
            return False
        is_private = self.rights.endswith("p") and (not self.inode or self.name.startswith(_OWN_NAMES))
        return is_private or self.name.startswith(_DRIVER_NAMES)

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
        mappings = [_mapping(line) for line in Path(f"/proc/{pid}/maps").read_text(errors="replace").splitlines()]
    except OSError:
        return None
    starts = [mapping.start for mapping in mappings]
    for start, end in spans:
        place = max(bisect_right(starts, start) - 1, 0)
        reached = start
        for mapping in mappings[place:]:
            if reached >= end or not mapping.start <= reached < mapping.end:
                break
            if not mapping.is_own:
                return str(mapping)
            reached = mapping.end
        if reached < end:
            return "no memory at all"
    return None


def _mapping(line: str) -> _Mapping:
    addresses, rights, _offset, _device, inode, *name = line.split(maxsplit=5)
    start, end = addresses.split("-")
    return _Mapping(int(start, 16), int(end, 16), rights, int(inode), name[0] if name else "")
