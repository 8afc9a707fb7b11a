"""Ranks as one side of a timed pair: a request goes to all of them, and a block lasts until the last one is done."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import Any, NamedTuple

import msgspec

from opsmith.core.timing import RankSpread
from opsmith.core.verdict import Status
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.clock.timed_processes import MOST_STOPPED_US, STAYED_AWAKE, Counts, WorkerSide
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, TimingPrepared
from opsmith.runner.protocol.worker_messages import Raised


class RankCounts(NamedTuple):
    """What Linux has counted of all ranks so far.

    Attributes:
        ranks: of each one.
        used_us: processor time of each, with its other threads and all that it has started.
        share_cores: there are fewer processors than ranks, so that they wait for each other.
    """

    ranks: tuple[Counts, ...]
    used_us: tuple[float, ...]
    share_cores: bool

    def disturbed_us(self, until: RankCounts) -> float:
        """How long others' work held up the rank that it held up longest.

        Where ranks share processors, one that waits while another one computes is not disturbed.
        """
        used_us = [after - before for before, after in zip(self.used_us, until.used_us, strict=True)]
        waited_us = [
            before.disturbed_us(after) - (sum(used_us) - own_us if self.share_cores else 0.0)
            for before, after, own_us in zip(self.ranks, until.ranks, used_us, strict=True)
        ]
        return max([0.0, *waited_us])

    def computed_us(self, until: RankCounts) -> float:
        """Processor time of all ranks together."""
        return sum(until.used_us) - sum(self.used_us)


class RanksSide:
    """The ranks of a group.

    Args:
        group: of as many ranks as answer.
        trusted: it is opsmith's own code, so what it has answered is finished.
    """

    def __init__(self, group: RankGroup, *, trusted: bool) -> None:
        self._group = group
        self._stayed_awake = 0
        self._sides = [WorkerSide(link, trusted=trusted) for link in group.links]

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
        ran_us = max((link.ran_stopped_us for link in self._group.links), default=0.0)
        self._stayed_awake += ran_us > MOST_STOPPED_US
        if self._stayed_awake >= STAYED_AWAKE:
            raise Dishonest(f"a rank ran {ran_us:,.0f} us while it was stopped for the reference's turn")
        if self._group.notices:
            raise Dishonest(f"while it was timed: {self._group.notices[0].line}")
        if isinstance(replies[0], Raised):
            raise WorkerFailed(Status.ERROR, f"raised while it was timed: {replies[0].message}", ())
        return _of_all(replies)

    @property
    def wall_us(self) -> float:
        """Microseconds from when the first rank was asked until the last one had answered."""
        return self._group.wall_us

    @property
    def spread(self) -> RankSpread:
        """How much earlier others had."""
        return self._group.spread

    def settle(self, most_s: float) -> float:
        """Wait until nothing runs in any rank any more; microseconds that it took."""
        return sum(side.settle(most_s) for side in self._sides)

    def counts(self) -> RankCounts:
        """What Linux counts of all ranks, once those that have answered sleep."""
        for side in self._sides:
            side.first_thread_us()
        share_cores = len(self._sides) > len(os.sched_getaffinity(0))
        return RankCounts(
            tuple([side.counts() for side in self._sides]), tuple([side.used_us() for side in self._sides]), share_cores
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
        return msgspec.structs.replace(
            decided,
            slots=of_ranks.slots,  # No block has more calls than every rank has sets of inputs for.
            first_call_s=of_ranks.first_call_s,
            peak_bytes=of_ranks.peak_bytes,
        )


def _of_all(replies: list[Any]) -> Any:
    """One reply for all ranks': of the slowest one, and what all of them agree on."""
    first = replies[0]
    if isinstance(first, TimingPrepared):
        peaks = [reply.peak_bytes for reply in replies if reply.peak_bytes is not None]
        return msgspec.structs.replace(
            first,
            slots=min(reply.slots for reply in replies),
            first_call_s=max(reply.first_call_s for reply in replies),
            peak_bytes=max(peaks, default=None),
        )
    own = [reply.own_us for reply in replies]
    nodes = [reply.nodes for reply in replies]
    return BlockTimed(None if None in own else max(own), None if None in nodes else max(nodes))
