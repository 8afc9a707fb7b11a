"""Timing on a lane: the clock of its device, and the jobs that its first slot times while all others stand still."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import cached_property
from typing import Any

from opsmith.core.cache import cache_folder
from opsmith.core.kernel import Loader
from opsmith.core.run import TimedCase
from opsmith.core.timing import Clock
from opsmith.devices import kind_of
from opsmith.evaluation.timing.statistics import precisions_under, quantities_on
from opsmith.runner.clock.case_timing import CaseTimer
from opsmith.runner.clock.clock_setup import set_up_clock, set_up_clock_of_ranks
from opsmith.runner.clock.device_limits import DeviceLimits
from opsmith.runner.clock.rank_timing import RankCaseTimer, are_clocked
from opsmith.runner.clock.stopwatch import ClockSettings, never_throttled
from opsmith.runner.judge.slot import Slot
from opsmith.runner.machine.device_lock import DeviceLock
from opsmith.runner.machine.throttling import ThrottleWatch
from opsmith.runner.processes.candidate import Candidate
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import LaneWork


class LaneTimer:
    """Times jobs on the processes of a lane's first slot.

    Args:
        work: what the lane is opened for.
        slots: of the lane.
        make_referee: makes the other side of the control pairs, where there is one slot only.
        make_reference: of a suite of ranks, makes those that run the reference.
        lock: of the device.
        identity: of the device.

    Attributes:
        clock: how it was set up, once something was timed.
    """

    def __init__(
        self,
        work: LaneWork,
        slots: Sequence[Slot],
        make_referee: Callable[[], RefereeLink],
        make_reference: Callable[[], Candidate] | None = None,
        *,
        lock: DeviceLock,
        identity: str,
    ) -> None:
        self._work = work
        self._slots = slots
        self._make_referee = make_referee
        self._make_reference = make_reference
        self._lock = lock
        self._identity = identity
        self._cores = tuple(sorted(os.sched_getaffinity(0)))
        self._open = contextlib.ExitStack()
        self.clock: Clock | None = None

    def close(self) -> None:
        """Watch the device's clocks no longer."""
        self._open.close()

    def set_up(self, family: Sequence[Job]) -> None:
        """Let the other slots stand still, and set the clock up for some jobs where that was not done before."""
        slot, *others = self._slots
        if isinstance(slot.worker, RankGroup):
            for other in others:
                other.worker.close()
            worlds = {case.ranks for job in family for case in job.cases if case.ranks is not None}
            self._set_up_for_ranks([ranks for ranks in worlds if are_clocked(ranks, len(self._cores))])
            return
        # The other side of the control pairs: a referee that has its context, if there is one.
        control = others[0].referee if others else self._make_referee()
        for other in others:
            other.worker.close()
            if self.clock is not None or other.referee is not control:
                other.referee.close()
        slot.worker.wanted_spares = 0  # Making a device context disturbs whoever times.
        slot.worker.prepare()
        if self.clock is None:
            with _kept_affinity():
                self.clock = self._set_up_clock(control)

    def time(self, family: Sequence[Job]) -> Iterator[TimedCase]:
        """Time jobs that the same kernel answers, which is known to answer them rightly."""
        self.set_up(family)
        assert self.clock is not None
        slot = self._slots[0]
        with _kept_affinity():
            settings = self._settings(self.clock)
            limits = DeviceLimits.of(self.clock.ceilings)
            for job in family:
                yield from self._time_job(job, settings, limits)
            if any(job.kernel.loader is not Loader.ATEN for job in family):
                slot.end_family()

    def _time_job(self, job: Job, settings: ClockSettings, limits: DeviceLimits) -> Iterator[TimedCase]:
        """Time a job case by case, so that another run can have the device in between."""
        slot = self._slots[0]
        options: dict[str, Any] = {
            "options": self._work.options,
            "seed": self._work.seed,
            "settings": settings,
            "limits": limits,
        }
        with contextlib.ExitStack() as stack:
            if isinstance(slot.worker, RankGroup):
                reference = self._make_ranks()
                stack.callback(reference.close)
                timer: CaseTimer = RankCaseTimer(slot.referee, slot.worker, reference, slot.spool, job, **options)
            else:
                timer = CaseTimer(slot.referee, slot.worker.timed_worker(), slot.spool, job, **options)
            timing = timer.time()
            while True:
                with self._lock.exclusive():
                    timed = next(timing, None)
                if timed is None:
                    return
                yield timed

    @cached_property
    def _watch(self) -> ThrottleWatch | None:
        watch = ThrottleWatch.open(self._identity) if kind_of(self._work.options.device).nvidia_driver else None
        if watch is not None:
            self._open.callback(watch.close)
        return watch

    def _settings(self, clock: Clock | None) -> ClockSettings:
        options, watch = self._work.options, self._watch
        return ClockSettings(
            precisions=precisions_under(options),
            quantities=quantities_on(options.device),
            cores=self._cores,
            noise={} if clock is None else clock.noise,
            noise_of_ranks={} if clock is None else clock.noise_of_ranks,
            graphs=None if clock is None else clock.graphs,
            throttled=never_throttled if watch is None else watch.throttled,
            warm=options.warm,
            baseline=options.baseline,
        )

    def _make_ranks(self) -> RankGroup:
        assert self._make_reference is not None
        ranks = self._make_reference()
        assert isinstance(ranks, RankGroup)
        return ranks

    def _set_up_for_ranks(self, worlds: Collection[int]) -> None:
        """Measure the noise of so many ranks, where that was not done before."""
        known = {} if self.clock is None else self.clock.noise_of_ranks
        unknown = sorted({*worlds} - {*known})
        if unknown or self.clock is None:
            with self._lock.exclusive():
                self.clock = set_up_clock_of_ranks(
                    self._slots[0].referee,
                    self._make_ranks,
                    self._settings(None),
                    worlds=unknown,
                    folder=str(cache_folder() / "ceilings"),
                    seed=self._work.seed,
                    before=self.clock,
                )

    def _set_up_clock(self, control: RefereeLink) -> Clock:
        control.give_memory_back()
        try:
            with self._lock.exclusive():
                return set_up_clock(
                    self._slots[0].referee,
                    control,
                    self._settings(None),
                    folder=str(cache_folder() / "ceilings"),
                    seed=self._work.seed,
                    throttling=None if self._watch is None else "NVML",
                )
        finally:
            control.close()


@contextlib.contextmanager
def _kept_affinity() -> Iterator[None]:
    """The clock keeps this thread off the core that it times on."""
    cores = os.sched_getaffinity(0)
    try:
        yield
    finally:
        os.sched_setaffinity(0, cores)
