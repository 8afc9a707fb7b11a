"""Timing cases that ranks answer together: the candidate's ranks against others that run the reference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.backends.aten import Aten
from opsmith.core.case import CaseRef
from opsmith.core.kernel import Loader
from opsmith.core.run import TimedCase
from opsmith.core.seeds import derive_seed
from opsmith.core.task import Task
from opsmith.core.verdict import Status
from opsmith.runner.clock.case_timing import CaseTimer, Look
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock, Place
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.clock.timed_ranks import RanksSide, ReferenceRanks
from opsmith.runner.machine.process_memory import foreign_memory
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.referee_messages import CompareTimed
from opsmith.runner.protocol.timing_messages import ShowTimed
from opsmith.runner.protocol.worker_messages import OUT_OF_PROTOCOL, Answered, Inspect, Inspected, Raised, Returned


def are_clocked(ranks: int | None, processors: int) -> bool:
    """Whether so many ranks can be timed there.

    Where they share processors they cannot: of 53 equal pairs of three ranks on two cores 4 were called different.
    """
    return ranks is not None and ranks <= processors


class RankCaseTimer(CaseTimer):
    """Times the cases of one job of ranks.

    Args:
        referee: of the slot.
        candidate: the ranks that the kernel is loaded into.
        reference: those that run the task's own code.
        options: those of :class:`CaseTimer`.
    """

    def __init__(self, referee: RefereeLink, candidate: RankGroup, reference: RankGroup, *args: Any, **kw: Any) -> None:
        super().__init__(referee, None, *args, **kw)
        self._candidate, self._reference = candidate, reference
        self._ranks: int | None = None

    def _time_together(self, cases: Sequence[CaseRef]) -> Iterator[TimedCase]:
        """See :class:`CaseTimer`; of ranks that would share processors nothing is timed."""
        [case] = cases
        processors = len(self._settings.cores)
        if are_clocked(case.ranks, processors):
            yield from super()._time_together(cases)
        else:
            problem = f"not timed: {case.ranks} ranks would share {processors} processors"
            yield msgspec.structs.replace(self._untimed(case), problem=problem)

    def _clock(self, cases: Sequence[CaseRef]) -> PairedClock:
        [case] = cases
        self._ranks = case.ranks
        for group in (self._candidate, self._reference):
            group.resize(self._ranks)
        return PairedClock(
            ReferenceRanks(self._reference, self._referee),
            RanksSide(self._candidate, trusted=self._job.kernel.loader is Loader.ATEN),
            [self._spool.read(case)],
            settings=self._settings_on(case.ranks),
            seed=derive_seed(self._seed, "timing", self._job.measurement, case.content_hash),
            look=self._look,
        )

    def _settings_on(self, ranks: int | None) -> ClockSettings:
        """Those of the run's clock, with the noise of so many ranks."""
        assert ranks is not None
        return msgspec.structs.replace(self._settings, ranks=ranks, noise={"E": self._settings.noise_of_ranks[ranks]})

    def _load(self) -> None:
        """Have the kernel and the reference on as many ranks as the case has."""
        job = self._job
        torch_s = Aten().kernel_for(Task(name=job.schema.name, op=job.schema, suite=self._options.suite))
        assert torch_s is not None
        for group, kernel, root, policy in (
            (self._reference, torch_s, Path(torch_s.root or ""), None),
            (self._candidate, job.kernel, job.root, job.policy),
        ):
            group.resize(self._ranks)
            problem = group.load(kernel, root, job.schema, policy)
            if problem is not None:
                raise WorkerFailed(Status.LOAD_FAILED, problem.message, ())

    def _take_load_s(self) -> float | None:
        return max((s for link in self._candidate.links if (s := link.take_load_s()) is not None), default=None)

    def _restart(self) -> None:
        """End all ranks; the referee only makes values, and compares."""
        self._candidate.retire()
        self._reference.retire()

    def _inspect_worker(self) -> None:
        if self._job.policy is None:
            return
        for inspected in self._candidate.ask_each(Inspect(), (Inspected,)):
            if inspected.changes:
                raise Dishonest(f"tampered with its process while it was timed: {inspected.changes[0]}")

    def _look(self, places: Sequence[Place]) -> None:
        """Judge what was returned at once: what of it lies in files does not last."""
        for place in places:
            look = Look(place, self._shown(place, in_full=True))
            self._hold_against(look, self._compared(look))

    def _shown(self, place: Place, *, in_full: bool) -> msgspec.Raw:
        """What the last block of a call returned on all ranks."""
        request = ShowTimed(place.slot, in_full, place.pair)
        parts: list[msgspec.Raw] = []
        for link, shown in zip(
            self._candidate.links, self._candidate.ask_each(request, (Answered, Raised)), strict=False
        ):
            if isinstance(shown, Raised):
                raise WorkerFailed(Status.ERROR, f"raised when a timed result was looked at: {shown.message}", ())
            [reply] = shown.replies if len(shown.replies) == 1 else [None]
            if not isinstance(reply, Returned) or len(reply.outcomes) != 1:
                raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
            foreign = shown.foreign or foreign_memory(link.pid, shown.spans)
            if foreign is not None:
                offence = f"a timed result or argument lies in memory that its rank does not own: {foreign}"
                self._offences.setdefault(place.pair, offence)
            parts += reply.outcomes
        return msgspec.Raw(msgspec.msgpack.encode(parts))

    def _compare_request(self, look: Look) -> CompareTimed:
        folder, rank_folders = self._candidate.outcome_folders()
        return msgspec.structs.replace(super()._compare_request(look), folder=folder, rank_folders=rank_folders)
