"""Cases whose labels are in doubt are timed again, when all others have been: at another time, by other processes.

What a host does with a call depends on what else the machine does, for seconds or minutes: the ratio of two calls
differs by more from one time to another than within one, and no number of blocks at one time helps against it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from opsmith.core.run import TimedCase
from opsmith.core.timing import Timing
from opsmith.evaluation.pairing import MOST_PROCESSES, Precision, combined, is_in_doubt
from opsmith.runner.job import Job


class Visits:
    """What was found of each case so far.

    Args:
        precisions: of the run's clock, by quantity.
    """

    def __init__(self, precisions: Mapping[str, Precision]) -> None:
        self._precisions = precisions
        self._found: dict[tuple[str, str], list[TimedCase]] = {}

    def add(self, timed: TimedCase) -> TimedCase | None:
        """Take in what a visit found; the case with what all of its visits say, or None if there is to be another."""
        key = timed.op, timed.case
        found = [*self._found.pop(key, ()), timed]
        whole = self._whole(found)
        was_measured = bool(timed.timings)  # Else another visit would not say more, either.
        in_doubt = [timing for timing in whole.timings if is_in_doubt(timing, self._precisions[timing.quantity])]
        if was_measured and in_doubt and len(found) < MOST_PROCESSES:
            self._found[key] = found
            return None
        return whole

    def due(self, families: Sequence[Sequence[Job]]) -> list[list[Job]]:
        """Of families that were visited, what is to be visited again."""
        again = []
        for family in families:
            jobs = [
                msgspec.structs.replace(job, cases=cases, visit=job.visit + 1)
                for job in family
                if (cases := tuple([case for case in job.cases if (job.schema.name, str(case.address)) in self._found]))
            ]
            again += [jobs] if jobs else []
        return again

    def _whole(self, found: Sequence[TimedCase]) -> TimedCase:
        """One record of all visits: of the first, but for what is held against the kernel at any."""
        accused = next((timed for timed in found if timed.offence is not None), None)
        if accused is not None:
            return accused
        by_quantity: dict[str, list[Timing]] = {}
        for timed in found:
            for timing in timed.timings:
                by_quantity.setdefault(timing.quantity, []).append(timing)
        timings = [combined(runs, self._precisions[quantity]) for quantity, runs in by_quantity.items()]
        return msgspec.structs.replace(found[0], timings=tuple(timings))
