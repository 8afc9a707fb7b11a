"""The two processes of a timed pair, as the clock sees them."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from opsmith.core.verdict import Status
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.machine.process_times import (
    first_thread_us,
    is_awake,
    other_threads_us,
    process_us,
    runs_beside,
)
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.timing_messages import BlockTimed, TimingPrepared
from opsmith.runner.protocol.worker_messages import Raised

#: A process that is stopped gets no processor time, but for what the kernel may count late. One that got more so often
#: has let itself go on.
MOST_STOPPED_US = 200.0
STAYED_AWAKE = 3
#: From its answer until a process sleeps, at most.
MOST_AWAKE_S = 0.005


class Counts(NamedTuple):
    """What Linux has counted so far, in microseconds.

    Attributes:
        first_waited_us: that the process's first thread has waited for a processor.
        judge_waited_us: the same of a judge who sleeps while the process answers.
        others_us: processor time of what else may compute for the process: its other threads, and what it has started.
    """

    first_waited_us: float
    judge_waited_us: float
    others_us: float

    def disturbed_us(self, until: Counts) -> float:
        """How long somebody else's work made a request longer that began with these counts.

        While the first thread waits, another one may compute for it: that is no disturbance.
        """
        others_us = max(until.others_us - self.others_us, 0.0)
        first_us = max(until.first_waited_us - self.first_waited_us - others_us, 0.0)
        return first_us + max(until.judge_waited_us - self.judge_waited_us, 0.0)

    def computed_us(self, _until: Counts) -> None:
        """A block of one process is taken to be computed throughout."""


class RefereeSide:
    """The reference: eager, in the referee."""

    spread = None

    def __init__(self, link: RefereeLink) -> None:
        self._link = link

    def ask(self, request: msgspec.Struct) -> Any:
        """Send a request and wait for its reply."""
        return self._link.ask(request, (TimingPrepared, BlockTimed))

    @property
    def wall_us(self) -> float:
        """Microseconds from the last request to its reply."""
        return self._link.wall_us

    def settle(self, _most_s: float) -> float:
        """Trusted: what it has answered is finished."""
        return 0.0

    def counts(self) -> Counts:
        """What Linux counts of it."""
        return _counts(self._link, ())

    def used_us(self) -> float:
        """Processor time that it has had so far; exact while it sleeps."""
        return process_us(self._link.pid)

    def first_thread_us(self) -> float:
        """The same of its first thread."""
        return _asleep_us(self._link.pid)

    def stop(self) -> None:
        """It does nothing unasked."""

    def run_on(self, cores: Collection[int]) -> None:
        """Let all threads of the process run on these cores only; one that is to be started may use all."""
        if self._link.is_running:
            _run_on(self._link.pid, cores)


class WorkerSide:
    """The candidate, in its worker.

    Args:
        link: to the worker.
        trusted: it runs opsmith's own code, so what it has answered is finished.
    """

    spread = None

    def __init__(self, link: WorkerLink, *, trusted: bool) -> None:
        self._link = link
        self._trusted = trusted
        self._stayed_awake = 0
        self._started: list[int] = []

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
        self._stayed_awake += self._link.ran_stopped_us > MOST_STOPPED_US
        if self._stayed_awake >= STAYED_AWAKE:
            raise Dishonest(f"it ran {self._link.ran_stopped_us:,.0f} us while it was stopped for the reference's turn")
        if self._link.notices:
            raise Dishonest(f"while it was timed: {self._link.notices[0].line}")
        if isinstance(reply, Raised):
            raise WorkerFailed(Status.ERROR, f"raised while it was timed: {reply.message}", ())
        return reply

    @property
    def wall_us(self) -> float:
        """Microseconds from the last request to its reply."""
        return self._link.wall_us

    def counts(self) -> Counts:
        """What Linux counts of it, and of what it had started by the last block."""
        return _counts(self._link, self._started)

    def run_on(self, cores: Collection[int]) -> None:
        """Let all threads of the process, and what it has started, run on these cores only.

        What is started later begins where the thread runs that starts it, and the sandbox lets no process choose its
        cores.
        """
        if self._link.is_running:
            for pid in (self._link.pid, *self._link.started()):
                _run_on(pid, cores)

    def used_us(self) -> float:
        """Processor time that it and what it has started have had so far; exact while they are stopped."""
        return process_us(self._link.pid) + sum(map(process_us, self._link.started()))

    def first_thread_us(self) -> float:
        """The same of its first thread alone, which answers requests."""
        return _asleep_us(self._link.pid)

    def stop(self) -> None:
        """Keep it and all that it has started from running until it is asked again."""
        if not self._trusted:
            self._link.stop()

    def settle(self, most_s: float) -> float:
        """Wait until nothing runs but the first thread, which answers requests; microseconds that it took.

        Neither another thread nor a process that it has started. It is read from outside, where nothing can be
        pretended.
        """
        start = time.perf_counter()
        if self._trusted:
            return 0.0
        self._started = self._link.started()
        if not runs_beside(self._link.pid, self._started):
            return 0.0
        while time.perf_counter() - start < most_s and runs_beside(self._link.pid, self._link.started()):
            time.sleep(0)
        return (time.perf_counter() - start) * 1e6


def _counts(link: RefereeLink | WorkerLink, started: Collection[int]) -> Counts:
    """A judge who is awake waits at the same time as the block goes on, which makes it no longer."""
    judge_us = 0.0 if link.waits_awake else first_thread_us("thread-self")[1]
    others_us = other_threads_us(link.pid) + sum(map(process_us, started))
    return Counts(first_thread_us(link.pid)[1], judge_us, others_us)


def _asleep_us(pid: int) -> float:
    """Processor time of a process's first thread, which has answered and is about to sleep: then the count is exact."""
    end = time.perf_counter() + MOST_AWAKE_S
    while time.perf_counter() < end and is_awake(pid):
        time.sleep(0)
    return first_thread_us(pid)[0]


def _run_on(pid: int, cores: Collection[int]) -> None:
    with contextlib.suppress(FileNotFoundError):  # The process has ended, as a thread may have.
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread.name), cores)
