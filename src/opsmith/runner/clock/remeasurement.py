"""Cases whose labels are in doubt are timed again, when all others have been: at another time, by other processes.

What a host does with a call depends on what else the machine does, for seconds or minutes: the ratio of two calls
differs by more from one time to another than within one, and no number of blocks at one time helps against it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.run import TimedCase
from opsmith.core.timing import Timing, Undecided
from opsmith.evaluation.timing.statistics import MOST_PROCESSES, Precision, combined_of, is_in_doubt
from opsmith.runner.protocol.job import Job


class Remeasurements:
    """What was found of each case so far.

    Args:
        precisions: of the run's clock, by quantity.
        earlier: what was found before the run was taken up again, of cases that were to be measured once more.
        note: told what was found of a case that is to be measured once more.
    """

    def __init__(
        self,
        precisions: Mapping[str, Precision],
        *,
        earlier: Iterable[TimedCase] = (),
        note: Callable[[TimedCase], None] | None = None,
    ) -> None:
        self._precisions = precisions
        self._note = note
        self._found: dict[tuple[str, str], list[TimedCase]] = {}
        self._done: set[tuple[str, str]] = set()
        for timed in earlier:
            self._found.setdefault((timed.op, timed.case), []).append(timed)

    def add(self, timed: TimedCase) -> TimedCase | None:
        """Take in a measurement; the case with what all of its measurements say, or None if there is to be another."""
        key = timed.op, timed.case
        found = self._found.setdefault(key, [])
        found.append(timed)
        whole = self._whole(found)
        was_measured = bool(timed.timings or timed.undecided)  # Else another measurement would not say more, either.
        in_doubt = [timing for timing in whole.timings if is_in_doubt(timing, self._precisions[timing.quantity])]
        undecided = [one for one in whole.undecided if self._precisions[one.quantity].apart]
        if was_measured and (in_doubt or undecided) and len(found) < MOST_PROCESSES:
            if self._note is not None:
                self._note(timed)
            return None
        self._done.add(key)
        del self._found[key]
        return whole

    def due(self, families: Sequence[Sequence[Job]]) -> list[list[Job]]:
        """What is to be measured next: the cases that were measured least; nothing when all is done."""
        counts = [self._count(job, case) for family in families for job in family for case in self._open(job)]
        if not counts:
            return []
        least = min(counts)
        chosen = ([*self._measured(family, least)] for family in families)
        return [family for family in chosen if family]

    def _measured(self, family: Sequence[Job], times: int) -> Iterator[Job]:
        for job in family:
            cases = tuple([case for case in self._open(job) if self._count(job, case) == times])
            if cases:
                yield msgspec.structs.replace(job, cases=cases, measurement=times)

    def _open(self, job: Job) -> list[CaseRef]:
        return [case for case in job.cases if _key(job, case) not in self._done]

    def _count(self, job: Job, case: CaseRef) -> int:
        return len(self._found.get(_key(job, case), ()))

    def _whole(self, found: Sequence[TimedCase]) -> TimedCase:
        """One record of all measurements: of the first, but for what is held against the kernel at any."""
        accused = next((timed for timed in found if timed.offence is not None), None)
        if accused is not None:
            return accused
        by_quantity: dict[str, list[Timing | Undecided]] = {}
        for timed in found:
            told: list[Timing | Undecided] = [*timed.timings, *timed.undecided]
            for one in told:
                by_quantity.setdefault(one.quantity, []).append(one)
        whole = [combined_of(each, self._precisions[quantity]) for quantity, each in by_quantity.items()]
        return msgspec.structs.replace(
            found[0],
            timings=tuple([one for one in whole if isinstance(one, Timing)]),
            undecided=tuple([one for one in whole if isinstance(one, Undecided)]),
        )


def _key(job: Job, case: CaseRef) -> tuple[str, str]:
    """What a timed case names: its op and its case."""
    return job.schema.name, str(case.address)
