"""The two processes of a timed pair, as the clock sees them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.verdict import Status
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.timing_messages import BlockTimed, TimingPrepared
from opsmith.runner.protocol.worker_messages import Raised

#: A process that goes on for so long after a block is not waited for.
MAX_SETTLING_S = 5.0
_RUNNING = frozenset((b"R", b"D"))


class RefereeSide:
    """The reference: eager, in the referee."""

    def __init__(self, link: RefereeLink) -> None:
        self._link = link

    def ask(self, request: msgspec.Struct) -> Any:
        """Send a request and wait for its reply."""
        return self._link.ask(request, (TimingPrepared, BlockTimed))

    @property
    def wall_us(self) -> float:
        """Microseconds from the last request to its reply."""
        return self._link.wall_us

    def settle(self) -> float:
        """Trusted: what it has answered is finished."""
        return 0.0

    def queued_us(self) -> float:
        """Microseconds that its first thread, and a judge who sleeps meanwhile, have waited for a processor."""
        return _queued_us(self._link.pid, judge_too=not self._link.waits_awake)

    def run_on(self, cores: Collection[int]) -> None:
        """Let all threads of the process run on these cores only; one that is to be started may use all."""
        _run_on(self._link, cores)


class WorkerSide:
    """The candidate, in its worker.

    Args:
        link: to the worker.
        trusted: it runs opsmith's own code, so what it has answered is finished.
    """

    def __init__(self, link: WorkerLink, *, trusted: bool) -> None:
        self._link = link
        self._trusted = trusted

    def ask(self, request: msgspec.Struct) -> Any:
        """Send a request and wait for its reply.

        Raises:
            WorkerFailed: the kernel raised, or its process died.
            Dishonest: it was seen to break its policy meanwhile.
        """
        try:
            reply = self._link.ask(request, (TimingPrepared, BlockTimed, Raised))
        except WorkerFailed as failure:
            if failure.notices:
                raise Dishonest(f"while it was timed: {failure.notices[0].line}") from failure
            raise
        if self._link.notices:
            raise Dishonest(f"while it was timed: {self._link.notices[0].line}")
        if isinstance(reply, Raised):
            raise WorkerFailed(Status.ERROR, f"raised while it was timed: {reply.message}", ())
        return reply

    @property
    def wall_us(self) -> float:
        """Microseconds from the last request to its reply."""
        return self._link.wall_us

    def queued_us(self) -> float:
        """Microseconds that its first thread, and a judge who sleeps meanwhile, have waited for a processor."""
        return _queued_us(self._link.pid, judge_too=not self._link.waits_awake)

    def run_on(self, cores: Collection[int]) -> None:
        """Let all threads of the process run on these cores only; one that is to be started may use all."""
        _run_on(self._link, cores)

    def settle(self) -> float:
        """Wait until no thread but the first runs, which answers requests; microseconds that it took.

        It is read from outside, where nothing can be pretended.
        """
        start = time.perf_counter()
        if self._trusted or not _is_running(self._link.pid):
            return 0.0
        while _is_running(self._link.pid) and time.perf_counter() - start < MAX_SETTLING_S:
            time.sleep(0)
        return (time.perf_counter() - start) * 1e6


def _queued_us(pid: int, *, judge_too: bool) -> float:
    """The kernel's own count, so that no process can pretend; 0 where it keeps none.

    A judge who sleeps waits for a processor only when the reply is there: both waits make the block longer. One
    who is awake waits at the same time as the block goes on.
    """
    total_ns = 0
    names = [f"/proc/{pid}/schedstat"]
    if judge_too:
        names.append("/proc/thread-self/schedstat")
    for name in names:
        # Done around every block, so without pathlib, which takes ten times as long.
        with contextlib.suppress(OSError), open(name, "rb", buffering=0) as file:  # noqa: PTH123
            total_ns += int(file.read().split()[1])
    return total_ns / 1e3


def _run_on(link: RefereeLink | WorkerLink, cores: Collection[int]) -> None:
    if not link.is_running:
        return
    with contextlib.suppress(FileNotFoundError):  # The process has ended, as a thread may have.
        for thread in Path(f"/proc/{link.pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)


def _is_running(pid: int) -> bool:
    """Whether a thread but the first is on a processor, or waits for one or for a disk."""
    threads = f"/proc/{pid}/task"
    for thread in os.listdir(threads):  # noqa: PTH208 - done around every block of E, as above
        if thread == str(pid):
            continue
        with contextlib.suppress(OSError), open(f"{threads}/{thread}/stat", "rb", buffering=0) as file:  # noqa: PTH123
            # The name of a thread, in parentheses, may hold anything.
            if file.read().rpartition(b")")[2].split()[0] in _RUNNING:
                return True
    return False
