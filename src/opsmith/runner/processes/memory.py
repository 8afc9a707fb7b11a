"""Memory that other processes hold, as Linux counts it."""

from __future__ import annotations

import os
from pathlib import Path

from opsmith.runner.machine.process_times import descendants

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


def resident_bytes(pid: int) -> int:
    """Resident memory of a process, shared pages included; 0 if it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError):
        return 0


def proportional_bytes(pid: int) -> int:
    """Resident memory with each shared page divided by its users: what a fork shares, it does not use.

    It is 0 if the process has ended. Of one that lets nobody look (``PR_SET_DUMPABLE``), all resident memory counts.
    """
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except PermissionError:
        return resident_bytes(pid)
    except OSError:
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))


def tree_exceeds(pid: int, limit_bytes: int) -> bool:
    """Whether a process and its descendants hold more than so much; pages that they share count once."""
    tree = [pid, *descendants(pid)]
    # Resident memory is an upper bound, and read in a fraction of the time.
    return sum(map(resident_bytes, tree)) > limit_bytes and sum(map(proportional_bytes, tree)) > limit_bytes
