"""A run's clock: its noise, from pairs that are equal."""

from __future__ import annotations

import os
from typing import Any, cast

import msgspec
import pytest
import torch

from opsmith.aten.schemas import overload
from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord
from opsmith.core.kernel import Kernel
from opsmith.core.timing import Ceilings, Clock, ControlPair, GraphCosts, RankSpread
from opsmith.core.verdict import Status
from opsmith.errors import ProcessLost
from opsmith.evaluation.timing.statistics import precisions_of
from opsmith.runner.clock import clock_setup
from opsmith.runner.clock.clock_setup import (
    CONTROL,
    CONTROL_OF_RANKS,
    UNKNOWN_NOISE,
    noise_of,
    set_up_clock,
    set_up_clock_of_ranks,
)
from opsmith.runner.clock.stopwatch import ClockSettings, PairedClock
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.referee_messages import ClockSetUp, SetUpClock
from opsmith.runner.protocol.timing_messages import BlockTimed, PrepareTiming, TimeBlock, TimingPrepared

CEILINGS = Ceilings(
    device="stand-in", copy_gbps=1.0, matmul_tflops={"f32": 1.0}, l2_bytes=1, measured_utc="2026", torch="2"
)
COSTS = GraphCosts(0.8, 2.5)


class StandInReferee:
    """Times calls of device time as it is told.

    Attributes:
        prepared: the calls that it was asked to prepare.
        folders: of ceilings.
    """

    def __init__(self, own_us: float = 20.0) -> None:
        self.pid = os.getpid()
        self.waits_awake = self.is_running = True
        self.wall_us = 100.0
        self._own_us = own_us
        self.prepared: list[PrepareTiming] = []
        self.folders: list[str] = []

    def ask(self, request: msgspec.Struct, reply_type: Any) -> msgspec.Struct:
        if isinstance(request, SetUpClock):
            self.folders.append(request.folder)
            return ClockSetUp(CEILINGS, COSTS)
        if isinstance(request, PrepareTiming):
            self.prepared.append(request)
            return TimingPrepared(16, request.variations, 0.1)
        if isinstance(request, TimeBlock):
            self.wall_us = 100.0 + self._own_us * request.calls * request.replays
        if isinstance(request, TimeBlock) and request.quantity == "K":
            return BlockTimed(self._own_us + COSTS.graph_us / request.calls, 1.0)
        return BlockTimed(None)


@pytest.fixture(autouse=True)
def _free_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    """The test's own process stays where it is."""
    monkeypatch.setattr(os, "sched_setaffinity", lambda pid, cores: None)


def pair(speedup: float) -> ControlPair:
    """Eager against eager."""
    return ControlPair(call="add", quantity="K", time_us=1.0, speedup=speedup, low=speedup, high=speedup)


def set_up(referee: StandInReferee, control: StandInReferee, **changes: Any) -> Any:
    """The clock of a run with these two."""
    settings = ClockSettings(
        **{"precisions": precisions_of("full", "KE"), "quantities": "K", "cores": (0,), "noise": {"K": 9.0}, **changes}
    )
    return set_up_clock(
        cast("RefereeLink", referee),
        cast("RefereeLink", control),
        settings,
        folder="ceilings",
        seed=1,
        throttling="nvml",
    )


@pytest.mark.parametrize(
    ("speedups", "noise"),
    [
        ([1.0, 1.0], 0.0),
        ([1.01], 0.02),
        ([1 / 1.01], 0.02),
        ([1.01, 1 / 1.01, 1.01], 0.02),
        ([1.0, 1.01, 1.5], 0.02),
        ([1.02, 1.0], 0.02),
    ],
)
def test_noise_is_twice_what_equal_sides_differ_by_in_the_median(speedups: list[float], noise: float) -> None:
    """In whichever direction; one wild pair does not count."""
    assert noise == pytest.approx(noise_of([pair(speedup) for speedup in speedups]))


def test_equal_sides_that_differ_are_the_runs_noise() -> None:
    """By 1 % here, in every control call."""
    clock = set_up(StandInReferee(20.2), StandInReferee(20.0))
    assert {"K": pytest.approx(0.02)} == clock.noise
    assert [str(call) for call in CONTROL] == [pair.call for pair in clock.control]
    assert all(pair.speedup == pytest.approx(1.01) for pair in clock.control)
    assert all(pair.low <= pair.speedup <= pair.high for pair in clock.control)
    assert all(pair.time_us == pytest.approx(20.2) for pair in clock.control)


def test_the_clock_says_what_the_device_reaches() -> None:
    """Measured by the referee that will time, where it keeps what it has measured before."""
    referee, control = StandInReferee(), StandInReferee()
    clock = set_up(referee, control)
    assert (CEILINGS, "nvml") == (clock.ceilings, clock.throttling)
    assert (COSTS.node_us, COSTS.graph_us) == (clock.node_us, clock.graph_us)
    assert (["ceilings"], []) == (referee.folders, control.folders)
    assert clock.trip_us > 0


def test_control_pairs_are_eager_on_both_sides_on_the_same_calls() -> None:
    """Whatever the run's baseline is, and at the speed of quick timing."""
    referee, control = StandInReferee(), StandInReferee()
    set_up(referee, control, baseline="compile")
    assert [request.call for request in referee.prepared] == [request.call for request in control.prepared]
    assert {"eager"} == {request.baseline for request in (*referee.prepared, *control.prepared)}


@pytest.mark.parametrize("quantities", ["KE", "E"])
def test_control_pairs_are_quick(quantities: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even before a full run: they are only compared with each other."""
    seen = []

    class Clock(PairedClock):
        def __init__(self, *args: Any, settings: ClockSettings, **options: Any) -> None:
            seen.append(settings)
            short = {
                quantity: msgspec.structs.replace(precision, most_pairs=10, budget_s=0.0)
                for quantity, precision in settings.precisions.items()
            }
            super().__init__(*args, settings=msgspec.structs.replace(settings, precisions=short), **options)

    monkeypatch.setattr(clock_setup, "PairedClock", Clock)
    clock = set_up(StandInReferee(), StandInReferee(), quantities=quantities)
    assert [precisions_of("quick", quantities)] == [settings.precisions for settings in seen]
    assert {*quantities} == set(clock.noise) == {pair.quantity for pair in clock.control}


@pytest.mark.parametrize("number", range(len(CONTROL)))
def test_eager_takes_the_control_calls(number: int) -> None:
    """Each is a call of its op, with finite values."""
    referee = StandInReferee()
    set_up(referee, StandInReferee())
    record = msgspec.msgpack.decode(referee.prepared[number].call, type=CallRecord)
    live = rebuild(record, torch.device("cpu"))
    result = overload(record.op)(*live.args, **live.kwargs)
    assert result.isfinite().all()
    assert CONTROL[number].shapes == tuple(tuple(arg.shape) for arg in live.args if isinstance(arg, torch.Tensor))


# ---------------------------------------------------------------- ranks


class StandInGroup:
    """Ranks whose calls take so long; they lie in a list with all others that are made.

    Attributes:
        asked: for how many ranks, which kernel and which calls.
        closed: whether it was ended.
        fails: whether a rank dies when it is asked for a block.
    """

    def __init__(self, call_us: float, *, fails: bool = False) -> None:
        self._call_us = call_us
        self.links: list[Any] = []
        self.notices = ()
        self.wall_us = 100.0
        self.spread = RankSpread(0.0, 0.0)
        self.ranks = 0
        self.kernels: list[Kernel] = []
        self.prepared: list[PrepareTiming] = []
        self.closed = False
        self.fails = fails

    def resize(self, ranks: int) -> None:
        self.ranks = ranks

    def load(self, kernel: Kernel, _root: object, _schema: object, policy: str | None = None) -> None:
        assert policy is None
        self.kernels.append(kernel)

    def ask_each(self, request: msgspec.Struct, _types: object) -> list[msgspec.Struct]:
        self.wall_us = 100.0
        if isinstance(request, PrepareTiming):
            self.prepared.append(request)
            return [TimingPrepared(request.slots, request.variations, 0.1)] * self.ranks
        if isinstance(request, TimeBlock):
            if self.fails:
                raise WorkerFailed(Status.CRASHED, "rank 0: it died", ())
            self.wall_us += self._call_us * request.calls
        return [BlockTimed(None)] * self.ranks

    def close(self) -> None:
        self.closed = True


def set_up_ranks(
    groups: list[StandInGroup], *worlds: int, before: Clock | None = None, referee: StandInReferee | None = None
) -> Clock:
    """The clock of a run of ranks, whose groups are these."""
    made = iter(groups)
    return set_up_clock_of_ranks(
        cast("RefereeLink", referee or StandInReferee()),
        cast("Any", lambda: next(made)),
        ClockSettings(precisions=precisions_of("full", "E"), quantities="E", cores=(0,)),
        worlds=worlds,
        folder="ceilings",
        seed=1,
        before=before,
    )


def test_the_noise_of_ranks_is_that_of_groups() -> None:
    """One group against another one that does the same, for each number of ranks by itself."""
    groups = [StandInGroup(call_us) for call_us in (2_020.0, 2_000.0, 2_000.0, 2_100.0)]
    clock = set_up_ranks(groups, 2, 4)
    assert {2: pytest.approx(0.02, rel=0.01), 4: pytest.approx(0.1, rel=0.01)} == clock.noise_of_ranks
    assert {"E": clock.noise_of_ranks[4]} == clock.noise
    assert [2] * len(CONTROL_OF_RANKS) + [4] * len(CONTROL_OF_RANKS) == [pair.ranks for pair in clock.control]
    assert [2, 2, 4, 4] == [group.ranks for group in groups]
    assert all(group.closed for group in groups)
    assert 100.0 == clock.trip_us


def test_other_numbers_of_ranks_are_added_to_a_clock() -> None:
    """What the device reaches is measured once."""
    referee = StandInReferee()
    first = set_up_ranks([StandInGroup(2_000.0), StandInGroup(2_000.0)], 2, referee=referee)
    second = set_up_ranks([StandInGroup(2_000.0), StandInGroup(2_000.0)], 3, before=first, referee=referee)
    assert [2, 3] == [*second.noise_of_ranks]
    assert first.control == second.control[: len(first.control)]
    assert ["ceilings"] == referee.folders


def test_ranks_are_given_the_same_collectives() -> None:
    """With values of its own for each rank."""
    groups = [StandInGroup(2_000.0), StandInGroup(2_000.0)]
    set_up_ranks(groups, 3)
    assert ["all_reduce.default"] * 2 == [kernel.entry for group in groups for kernel in group.kernels]
    calls = [[request.call for request in group.prepared] for group in groups]
    assert calls[0] == calls[1]
    for call, control in zip(calls[0], CONTROL_OF_RANKS, strict=True):
        record = msgspec.msgpack.decode(call, type=CallRecord)
        programs = rebuild(record, torch.device("cpu")).args
        assert 3 == len(programs)
        [(first, *_), (other, *_), _] = [calls_of[0] for calls_of, _order, _late in programs]
        assert (control.elements,) == tuple(first.shape)
        assert not torch.equal(first, other)


def test_ranks_that_cannot_be_measured_claim_little() -> None:
    """Their blocks are too short: nobody knows what equal groups differ by."""
    clock = set_up_ranks([StandInGroup(1e-3), StandInGroup(1e-3)], 2)
    assert {2: UNKNOWN_NOISE} == clock.noise_of_ranks
    assert () == clock.control


def test_a_rank_that_dies_while_the_noise_is_measured_is_nobodys_fault() -> None:
    """It runs torch's own code, so it is done again."""
    groups = [StandInGroup(2_000.0, fails=True), StandInGroup(2_000.0)]
    with pytest.raises(ProcessLost, match="rank 0: it died"):
        set_up_ranks(groups, 2)
    assert all(group.closed for group in groups)
