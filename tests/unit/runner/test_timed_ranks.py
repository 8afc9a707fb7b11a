"""Ranks as one side of a timed pair; the group is a stand-in."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.timing import RankSpread
from opsmith.core.verdict import Status
from opsmith.runner.clock.timed_pairs import Dishonest
from opsmith.runner.clock.timed_processes import Counts
from opsmith.runner.clock.timed_ranks import RankCounts, RanksSide, ReferenceRanks
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, TimeBlock, TimingPrepared
from opsmith.runner.protocol.worker_messages import Raised

BLOCK = TimeBlock(1, "E")


class StandInGroup:
    """Ranks that answer as they are told.

    Attributes:
        replies: to each request, rank by rank.
        asked: requests.
    """

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.asked: list[msgspec.Struct] = []
        self.links = [SimpleNamespace(ran_stopped_us=0.0) for _ in replies]
        self.notices: tuple[Any, ...] = ()
        self.wall_us = 500.0
        self.spread = RankSpread(40.0, 20.0)

    def ask_each(self, request: msgspec.Struct, _types: object) -> list[Any]:
        self.asked.append(request)
        return self.replies


def side_of(group: StandInGroup) -> RanksSide:
    """A stranger's ranks."""
    return RanksSide(cast("Any", group), trusted=False)


def test_a_block_is_that_of_the_slowest_rank() -> None:
    """By the judge's clock as by the ranks' own."""
    side = side_of(StandInGroup(BlockTimed(3.0, 2.0), BlockTimed(9.0, 4.0)))
    assert BlockTimed(9.0, 4.0) == side.ask(BLOCK)
    assert (500.0, RankSpread(40.0, 20.0)) == (side.wall_us, side.spread)


def test_what_one_rank_could_not_capture_is_captured_on_none() -> None:
    """K is that of graphs on all ranks, or on none."""
    assert BlockTimed(None, None) == side_of(StandInGroup(BlockTimed(3.0, 2.0), BlockTimed(None, None))).ask(BLOCK)


def test_no_block_has_more_calls_than_every_rank_has_inputs_for() -> None:
    """The referee says how many there may be, and which of them are made anew."""
    prepared = TimingPrepared(64, (Variation(Redraw.BLENDED),), 0.5)
    referee = SimpleNamespace(ask=lambda *_: prepared)
    group = StandInGroup(TimingPrepared(64, (), 0.1), TimingPrepared(48, (), 0.3))
    side = ReferenceRanks(cast("Any", group), cast("Any", referee))
    found = side.ask(PrepareTiming(b"call", 1_024, baseline="compile"))
    assert msgspec.structs.replace(prepared, slots=48, first_call_s=0.3) == found
    [asked] = group.asked
    assert msgspec.structs.replace(PrepareTiming(b"call", 64), variations=prepared.variations) == asked


def test_what_a_rank_raised_is_its_kernels_failure() -> None:
    """The group says which rank."""
    with pytest.raises(WorkerFailed, match="raised while it was timed: rank 1: ValueError") as caught:
        side_of(StandInGroup(Raised("error", "rank 1: ValueError", ""))).ask(BLOCK)
    assert Status.ERROR is caught.value.status


@pytest.mark.parametrize(("ran_us", "requests", "is_dishonest"), [(1e4, 3, True), (1e4, 2, False), (50.0, 9, False)])
def test_a_rank_that_runs_while_it_is_stopped_is_dishonest(ran_us: float, requests: int, *, is_dishonest: bool) -> None:
    """As a worker is, whichever rank it is."""
    group = StandInGroup(BlockTimed(1.0), BlockTimed(1.0))
    group.links[1].ran_stopped_us = ran_us
    side = side_of(group)
    with pytest.raises(Dishonest, match="a rank ran 10,000 us while") if is_dishonest else nullcontext():
        for _ in range(requests):
            side.ask(BLOCK)


def test_what_is_noticed_of_a_rank_is_held_against_the_kernel() -> None:
    """Also where a rank has failed since."""
    group = StandInGroup(BlockTimed(1.0))
    group.notices = (SimpleNamespace(line="called aten::mm"),)
    with pytest.raises(Dishonest, match="called aten::mm"):
        side_of(group).ask(BLOCK)


def counted(*waited_us: float, used_us: tuple[float, ...], share_cores: bool = False) -> RankCounts:
    """Ranks that have waited so long, and computed so long."""
    return RankCounts(tuple([Counts(us, 0.0, 0.0) for us in waited_us]), used_us, share_cores)


def test_a_block_is_disturbed_as_the_rank_that_was_held_up_longest() -> None:
    """In this block: what it had waited before is nothing."""
    before, after = counted(900.0, 5.0, used_us=(0.0, 0.0)), counted(900.0, 45.0, used_us=(10.0, 300.0))
    assert 40.0 == before.disturbed_us(after)
    assert 310.0 == before.computed_us(after)


def test_ranks_that_share_processors_wait_for_each_other() -> None:
    """That is nobody else's doing, as far as another rank has computed meanwhile."""
    before = counted(0.0, 0.0, used_us=(0.0, 0.0), share_cores=True)
    assert 0.0 == before.disturbed_us(counted(80.0, 30.0, used_us=(50.0, 100.0), share_cores=True))
    assert 20.0 == before.disturbed_us(counted(120.0, 30.0, used_us=(50.0, 100.0), share_cores=True))
