"""Ranks as one side of a timed pair: a request goes to all of them, and a block lasts until the last one is done."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import msgspec

from opsmith.core.verdict import Status
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.clock.timed_processes import MOST_STOPPED_US, STAYED_AWAKE, Counts, WorkerSide
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, TimingPrepared
from opsmith.runner.protocol.worker_messages import Raised


class RanksSide:
    """The ranks of a group.

    Args:
        group: whose ranks have loaded a kernel.
        trusted: it is opsmith's own code, so what it has answered is finished.

    Attributes:
        wall_us: of the last request: from when the first rank was asked until the last had answered.
    """

    def __init__(self, group: RankGroup, *, trusted: bool) -> None:
        self._group = group
        self._trusted = trusted
        self._stayed_awake = 0
        self._sides = [WorkerSide(link, trusted=trusted) for link in group.links]
        self.wall_us = 0.0

    def ask(self, request: msgspec.Struct) -> Any:
        """Send a request to all ranks and wait for their replies; the slowest rank's counts.

        Raises:
            WorkerFailed: the kernel raised on a rank, or a rank died.
            Dishonest: a rank was seen to break the kernel's policy meanwhile.
        """
        try:
            replies = self._group.ask_each(request, (TimingPrepared, BlockTimed, Raised))
        except WorkerFailed as failure:
            if failure.notices:
                raise Dishonest(f"while it was timed: {failure.notices[0].line}") from failure
            raise
        self.wall_us = self._group.wall_us
        ran_us = max((link.ran_stopped_us for link in self._group.links), default=0.0)
        self._stayed_awake += ran_us > MOST_STOPPED_US
        if self._stayed_awake >= STAYED_AWAKE:
            raise Dishonest(f"a rank ran {ran_us:,.0f} us while it was stopped for the reference's turn")
        if self._group.notices:
            raise Dishonest(f"while it was timed: {self._group.notices[0].line}")
        raised = next((reply for reply in replies if isinstance(reply, Raised)), None)
        if raised is not None:
            raise WorkerFailed(Status.ERROR, f"raised while it was timed: {raised.message}", ())
        return _slowest(replies)

    def settle(self, most_s: float) -> float:
        """Wait until nothing runs in any rank any more; microseconds that it took."""
        return sum(side.settle(most_s) for side in self._sides)

    def counts(self) -> Counts:
        """What Linux counts of all ranks."""
        of_ranks = [side.counts() for side in self._sides]
        return Counts(
            max(counts.first_waited_us for counts in of_ranks),
            of_ranks[0].judge_waited_us,
            sum(counts.others_us for counts in of_ranks),
        )

    def run_on(self, cores: Collection[int]) -> None:
        """Ranks run at the same time, each where it wants: on one core they would wait for each other."""

    def used_us(self) -> float:
        """Processor time of all ranks and of what they have started."""
        return sum(side.used_us() for side in self._sides)

    def first_thread_us(self) -> float:
        """The same of their first threads."""
        return sum(side.first_thread_us() for side in self._sides)

    def stop(self) -> None:
        """Keep all ranks from running until they are asked again."""
        for side in self._sides:
            side.stop()


class ReferenceRanks(RanksSide):
    """Torch's own answer on ranks; the referee decides which inputs both sides get, and can make them again.

    Args:
        group: whose ranks have loaded the reference.
        referee: of the slot.
    """

    def __init__(self, group: RankGroup, referee: RefereeLink) -> None:
        super().__init__(group, trusted=True)
        self._referee = referee

    def ask(self, request: msgspec.Struct) -> Any:
        """See :meth:`RanksSide.ask`."""
        if not isinstance(request, PrepareTiming):
            return super().ask(request)
        decided = self._referee.ask(request, TimingPrepared)
        assert isinstance(decided, TimingPrepared)
        of_ranks = super().ask(
            msgspec.structs.replace(request, slots=decided.slots, variations=decided.variations, baseline="eager")
        )
        return msgspec.structs.replace(decided, first_call_s=of_ranks.first_call_s, peak_bytes=of_ranks.peak_bytes)


def _slowest(replies: list[Any]) -> Any:
    """One reply of all ranks'."""
    first = replies[0]
    if isinstance(first, TimingPrepared):
        peaks = [reply.peak_bytes for reply in replies if reply.peak_bytes is not None]
        first_call_s = max(reply.first_call_s for reply in replies)
        return msgspec.structs.replace(first, first_call_s=first_call_s, peak_bytes=max(peaks, default=None))
    own = [reply.own_us for reply in replies]
    return msgspec.structs.replace(first, own_us=None if None in own else max(own))
