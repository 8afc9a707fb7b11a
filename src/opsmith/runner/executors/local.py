"""Executor ``local``: slots on this machine, one thread of the judge each."""

from __future__ import annotations

import contextlib
import itertools
import os
import queue
import threading
from collections.abc import Callable, Generator, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from opsmith.core.cache import cache_folder
from opsmith.core.case import CaseRef
from opsmith.core.kernel import Loader
from opsmith.core.run import Options, TimedCase
from opsmith.core.timing import Clock
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, RefereeFailed
from opsmith.evaluation.pairing import precisions_of
from opsmith.runner.clock_setup import set_up_clock
from opsmith.runner.device_limits import DeviceLimits
from opsmith.runner.device_lock import DeviceLock, Waiting, default_folder
from opsmith.runner.environment import workers_that_fit
from opsmith.runner.job import Job, families
from opsmith.runner.links import Limits, RefereeDied, RefereeLink, WorkerLink
from opsmith.runner.processes import Processes
from opsmith.runner.protocol import (
    DeviceOpened,
    Discover,
    Discovered,
    Enumerate,
    Enumerated,
    ListOps,
    OpenDevice,
    OpsListed,
    Raised,
)
from opsmith.runner.room import Room
from opsmith.runner.slot import Slot
from opsmith.runner.spool import Spool
from opsmith.runner.stopwatch import ClockSettings, never_held_back
from opsmith.runner.throttling import ThrottleWatch

#: How often workers are forked while the referees still import the suite.
STOCKING_INTERVAL_S = 0.02
#: Arguments of all cases that are judged at a time.
BYTES_AT_A_TIME = 8 << 30
#: Marks the end of a slot's work in the queue of results.
_DONE = object()


class LocalExecutor:
    """Runs enumeration and judging on the slots of one machine; a context manager.

    Attributes:
        device_name: of the device that is used, once the context is entered.
        clock: how it was set up, once something was timed.

    Args:
        processes: the zygote and its children.
        slots: how many ops are judged at a time.
        builds: parent folder of the per-kernel build caches.
        options: of the run.
        seed: of the run; cases and random states follow from it.
        limits: time limits.
        withheld: folders that no worker may read.
        kernels: at most so many will be judged, or None if nobody knows.
        again: cases get other values to be called with again.
        waiting: told, from another thread, when another run has the device and for how long that takes by now.
    """

    def __init__(
        self,
        processes: Processes,
        slots: int,
        *,
        builds: Path,
        options: Options,
        seed: int,
        limits: Limits,
        withheld: Sequence[Path] = (),
        kernels: int | None = None,
        again: bool = False,
        waiting: Waiting | None = None,
    ) -> None:
        spool_folder = processes.scratch / "spool"
        spool_folder.mkdir()
        self.options = options
        self.seed = seed
        self._again = again
        self.device_name = ""
        self._cores = tuple(sorted(os.sched_getaffinity(0)))
        self._waiting = waiting
        self._spool = Spool(spool_folder)
        spares = 1
        if not options.device.startswith("cpu"):
            processes.worker_limit = max(slots, workers_that_fit())
            wanted = processes.worker_limit if kernels is None else min(kernels, processes.worker_limit)
            spares = max(1, wanted // slots)
        self.clock: Clock | None = None
        self._make_referee = partial(
            RefereeLink,
            processes,
            spool_folder,
            device=options.device,
            builds=builds,
            threads=1,
            limits=limits,
            selection=options.selection,
        )
        self._room = Room(BYTES_AT_A_TIME)
        self._slots = [
            Slot(
                self._make_referee(),
                WorkerLink(
                    processes,
                    device=options.device,
                    builds=builds,
                    threads=1,
                    spares=spares,
                    limits=limits,
                    withheld=(*withheld, builds.parent),
                    started_in=Path.cwd() if ":" in options.backend else None,
                    one_kernel=options.isolation == "kernel",
                ),
                self._spool,
                options,
                seed,
                self._at_device,
            )
            for _ in range(slots)
        ]
        self._idle: queue.SimpleQueue[Slot] = queue.SimpleQueue()
        for slot in self._slots:
            self._idle.put(slot)
        self._timing = threading.Lock()

    def __enter__(self) -> Self:
        """Start the referees and the workers that are kept ready.

        Raises:
            BadInput: the device cannot be used.
        """
        try:
            self._open_device()
        except BaseException:
            self._close()
            raise
        self._stock_up()
        return self

    def _open_device(self) -> None:
        # Contexts are made one after another: those of the referees, which are needed first, come first.
        for slot in self._slots:
            slot.referee.send(OpenDevice(self.options.suite))
        for slot in self._slots:
            opened = slot.referee.receive(DeviceOpened)
            if opened.problem is not None:
                raise BadInput(f"device {self.options.device} cannot be used: {opened.problem}")
            self.device_name, self._identity = opened.name, opened.identity
        self._lock = DeviceLock(default_folder(), self._identity, waiting=self._waiting)

    @contextlib.contextmanager
    def _at_device(self, size_bytes: int) -> Iterator[None]:
        """Judge with arguments of so many bytes, while nobody times."""
        with self._room.taken(size_bytes), self._lock.shared():
            yield

    def _stock_up(self) -> None:
        for slot in self._slots:
            slot.worker.prepare()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._close()

    def _close(self) -> None:
        for slot in self._slots:
            slot.close()
        self._spool.close()

    def list_ops(self) -> OpsListed:
        """Every ATen overload's schema and the suite's entries."""
        referee = self._slots[0].referee
        referee.send(ListOps(self.options.suite, self.options.dtypes))
        while not referee.has_answered(STOCKING_INTERVAL_S):
            self._stock_up()  # The referees still import the suite.
        listed = referee.receive(OpsListed)
        assert isinstance(listed, OpsListed)
        return listed

    def discover(self, target: str, ops: Sequence[str]) -> Discovered | Raised:
        """Ask a stranger's backend, in a worker, which of ``ops`` it answers."""
        worker = self._slots[0].worker
        reply = worker.ask(Discover(target, tuple(ops)), (Discovered, Raised), timeout_s=180.0)
        worker.retire()
        assert isinstance(reply, (Discovered, Raised))
        return reply

    def enumerate(
        self, entries: Sequence[tuple[str, str]], ops: Sequence[str] | None
    ) -> Iterator[tuple[int, Enumerated]]:
        """Turn suite entries into cases, each exactly once.

        Yields:
            (index of the entry, its cases), in the order in which they are ready. Every referee
            sees its entries in ascending order, so the first entry that holds a signature records it.
        """
        wanted = None if ops is None else tuple(ops)

        def work(slot: Slot, item: tuple[int, tuple[str, str]]) -> Iterator[tuple[int, Enumerated]]:
            index, (entry, dtype) = item
            options = self.options
            request = Enumerate(
                options.suite, entry, dtype, options.device, self.seed, wanted, options.case, again=self._again
            )
            try:
                with self._at_device(0):
                    enumerated = slot.referee.ask(request, Enumerated)
                yield index, enumerated
                slot.worker.prepare()
            except (RefereeDied, RefereeFailed) as death:
                reason = str(death).partition("\n")[0]
                yield index, Enumerated((), {}, (), {f"{self.options.suite}:{entry}:{dtype}": reason})

        yield from self._on_slots(list(enumerate(entries)), work)

    def judge(self, jobs: Sequence[Job]) -> Iterator[Verdict]:
        """Judge jobs, the longest first, and yield verdicts as they are found."""
        groups = families(jobs)
        to_come = itertools.count(len(groups) - 1, -1)

        def work(slot: Slot, family: list[Job]) -> Iterator[Verdict]:
            # Near the end fewer workers are needed than are kept ready.
            needed = -(-max(next(to_come), 0) // len(self._slots))
            slot.worker.wanted_spares = min(slot.worker.wanted_spares, needed)
            slot.worker.prepare()
            for job in family:
                yield from slot.judge(job)
            slot.end_family()

        yield from self._on_slots(groups, work)

    def read(self, case: CaseRef) -> bytes:
        """The serialized call of a case."""
        return self._spool.read(case)

    def judge_alone(self, job: Job) -> Generator[Verdict]:
        """Judge one job on the next slot that is free; may be called from several threads."""
        slot = self._idle.get()
        try:
            slot.worker.prepare()
            yield from slot.judge(job)
        finally:
            slot.end_family()
            self._idle.put(slot)

    def time_alone(self, job: Job) -> list[TimedCase]:
        """Time one job once no thread judges; judging goes on afterwards."""
        with self._timing:
            spares = [slot.worker.wanted_spares for slot in self._slots]
            for _ in self._slots:
                self._idle.get()
            try:
                return list(self.time([job]))
            finally:
                for slot, wanted in zip(self._slots, spares, strict=True):
                    slot.worker.wanted_spares = wanted
                    self._idle.put(slot)

    def time(self, jobs: Sequence[Job]) -> Iterator[TimedCase]:
        """Time jobs one after another on one slot: nothing else of this run, or of another one, uses the device."""
        if not jobs:
            return
        slot, *others = self._slots
        for other in others:
            other.close()
        slot.worker.wanted_spares = 0  # Making a device context disturbs whoever times.
        slot.worker.prepare()
        with self._watch_device() as watch, _kept_affinity():
            self.clock = self.clock or self._set_up_clock(watch)
            settings = self._clock_settings(self.clock, watch)
            limits = DeviceLimits.of(self.clock.ceilings)
            for family in families(jobs):
                for job in family:
                    yield from self._alone(slot.time(job, settings, limits))
                if any(job.kernel.loader is not Loader.ATEN for job in family):
                    slot.end_family()

    def _alone(self, timing: Iterator[TimedCase]) -> Iterator[TimedCase]:
        """Time case by case, so that another run can have the device in between."""
        while True:
            with self._lock.exclusive():
                timed = next(timing, None)
            if timed is None:
                return
            yield timed

    @contextlib.contextmanager
    def _watch_device(self) -> Iterator[ThrottleWatch | None]:
        watch = ThrottleWatch.open(self._identity) if self.options.device.startswith("cuda") else None
        try:
            yield watch
        finally:
            if watch is not None:
                watch.close()

    def _clock_settings(self, clock: Clock | None, watch: ThrottleWatch | None) -> ClockSettings:
        quantities = "E" if self.options.device.startswith("cpu") else "KE"
        return ClockSettings(
            precisions=precisions_of(self.options.timing, quantities, pairs=self.options.timing_pairs),
            quantities=quantities,
            cores=self._cores,
            noise={} if clock is None else clock.noise,
            node_us=None if clock is None else clock.node_us,
            held_back=never_held_back if watch is None else watch.held_back,
            warm=self.options.warm,
            baseline=self.options.baseline,
        )

    def _set_up_clock(self, watch: ThrottleWatch | None) -> Clock:
        control = self._make_referee()
        try:
            with self._lock.exclusive():
                return set_up_clock(
                    self._slots[0].referee,
                    control,
                    self._clock_settings(None, watch),
                    folder=str(cache_folder() / "ceilings"),
                    seed=self.seed,
                    throttling=None if watch is None else "NVML",
                )
        finally:
            control.close()

    def _on_slots(self, items: Sequence[Any], work: Callable[[Slot, Any], Iterator[Any]]) -> Iterator[Any]:
        todo: queue.SimpleQueue[Any] = queue.SimpleQueue()
        for item in items:
            todo.put(item)
        results: queue.SimpleQueue[Any] = queue.SimpleQueue()
        stop = threading.Event()
        threads = [
            threading.Thread(target=_run_slot, args=(slot, todo, results, work, stop), daemon=True)
            for slot in self._slots
        ]
        for thread in threads:
            thread.start()
        try:
            yield from _collect(results, len(threads))
        finally:
            stop.set()


@contextlib.contextmanager
def _kept_affinity() -> Iterator[None]:
    """The clock keeps this thread off the core that it times on."""
    cores = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)


def _run_slot(
    slot: Slot,
    todo: queue.SimpleQueue[Any],
    results: queue.SimpleQueue[Any],
    work: Callable[[Slot, Any], Iterator[Any]],
    stop: threading.Event,
) -> None:
    try:
        while not stop.is_set():
            for result in work(slot, todo.get_nowait()):
                results.put(result)
                if stop.is_set():
                    break
    except queue.Empty:
        pass
    except BaseException as exc:  # noqa: BLE001 - handed to the caller's thread, which raises it
        results.put(exc)
    finally:
        results.put(_DONE)


def _collect(results: queue.SimpleQueue[Any], slots: int) -> Iterator[Any]:
    running = slots
    while running:
        result = results.get()
        if result is _DONE:
            running -= 1
        elif isinstance(result, BaseException):
            raise result
        else:
            yield result
