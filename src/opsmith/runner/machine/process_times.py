"""What Linux counts of other processes: their processor time, their waits for a processor, and who has started whom.

All of it is the kernel's own count, so no process can pretend. Done around every block that is timed, so files are read
without pathlib, which takes ten times as long.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable

#: How the clock of a whole process is named in ``clock_gettime``: CPUCLOCK_SCHED, in nanoseconds.
_CLOCK_BITS, _CLOCK_KIND = 3, 2
#: Two counts that belong together are read again if the first has changed meanwhile, which it does at a tick.
_TRIES = 3
_STOPPED = frozenset((b"T", b"t", b"Z", b"X"))
_RUNNING = frozenset((b"R", b"D"))


def first_thread_us(pid: int | str) -> tuple[float, float]:
    """Microseconds that a thread has run, and that it has waited for a processor; zeros where nothing is counted.

    Args:
        pid: of a process, whose first thread it is; ``thread-self`` for the thread that asks.
    """
    with contextlib.suppress(OSError), open(f"/proc/{pid}/schedstat", "rb", buffering=0) as file:  # noqa: PTH123
        ran_ns, waited_ns, _ = file.read().split()
        return int(ran_ns) / 1e3, int(waited_ns) / 1e3
    return 0.0, 0.0


def process_us(pid: int) -> float:
    """Microseconds that all threads of a process have run so far, those that have ended included; 0 if it has ended.

    The time of a thread that is on a processor just now may be some milliseconds old.
    """
    with contextlib.suppress(OSError):
        return time.clock_gettime(~pid << _CLOCK_BITS | _CLOCK_KIND) * 1e6
    return 0.0


def other_threads_us(pid: int) -> float:
    """The same of all threads but the first, even while that one runs."""
    others_us = 0.0
    for _ in range(_TRIES):
        before_us, _ = first_thread_us(pid)
        others_us = process_us(pid) - before_us
        if first_thread_us(pid)[0] == before_us:
            break
    return max(others_us, 0.0)


def children_of(pid: int) -> list[int]:
    """Children of all threads of a process."""
    children: list[int] = []
    threads = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):  # The process has ended.
        for thread in os.listdir(threads):  # noqa: PTH208
            # The thread may have ended.
            with contextlib.suppress(OSError), open(f"{threads}/{thread}/children", "rb", buffering=0) as file:  # noqa: PTH123
                children += map(int, file.read().split())
    return children


def descendants(pid: int) -> list[int]:
    """Children, their children, and so on."""
    children = children_of(pid)
    return children + [grandchild for child in children for grandchild in descendants(child)]


def thread_count(pid: int) -> int:
    """How many threads a process has; 0 if it has ended."""
    with contextlib.suppress(OSError, IndexError), open(f"/proc/{pid}/stat", "rb", buffering=0) as file:  # noqa: PTH123
        # The name, in parentheses, may hold anything; the number is the 20th field.
        return int(file.read().rpartition(b")")[2].split()[17])
    return 0


def states_of(pid: int) -> dict[int, bytes]:
    """The state of each thread of a process, a letter as ``/proc`` has it; nothing if it has ended."""
    states: dict[int, bytes] = {}
    threads = f"/proc/{pid}/task"
    with contextlib.suppress(OSError):
        for thread in os.listdir(threads):  # noqa: PTH208
            with contextlib.suppress(OSError), open(f"{threads}/{thread}/stat", "rb", buffering=0) as file:  # noqa: PTH123
                # The name of a thread, in parentheses, may hold anything.
                states[int(thread)] = file.read().rpartition(b")")[2].split()[0]
    return states


def runs(pid: int) -> bool:
    """Whether a thread of a process is on a processor, or waits for one or for a disk."""
    return not _RUNNING.isdisjoint(states_of(pid).values())


def is_awake(pid: int) -> bool:
    """Whether a process's first thread is on a processor, or waits for one or for a disk."""
    return states_of(pid).get(pid) in _RUNNING


def is_stopped(pid: int) -> bool:
    """Whether all threads of a process are stopped, or at their end."""
    return _STOPPED.issuperset(states_of(pid).values())


def runs_beside(pid: int, started: Iterable[int] = ()) -> bool:
    """Whether a thread is on a processor, or waits for one or for a disk: any but a process's first.

    Args:
        pid: the process.
        started: processes whose first threads count, too.
    """
    for process in (pid, *started):
        states = states_of(process)
        if process == pid:
            states.pop(pid, None)
        if not _RUNNING.isdisjoint(states.values()):
            return True
    return False
