"""The judge's clock on a machine that only counts: both sides are stand-ins that take the time they are told."""

from __future__ import annotations

import itertools
import os
import random
import re
from collections.abc import Callable, Collection, Sequence
from types import SimpleNamespace

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as settings_of_examples
from hypothesis import strategies as st

from opsmith.core.fresh_values import Redraw, Variation
from opsmith.core.timing import Cause, GraphCosts, Label, RankSpread, Timing
from opsmith.evaluation.timing.statistics import (
    PRECISIONS,
    PRECISIONS_HOST,
    least_block_us,
    precisions_of,
)
from opsmith.runner.clock import stopwatch
from opsmith.runner.clock.stopwatch import (
    LOOK_INTERVAL_S,
    PAIRS_A_CORE,
    SETTLING_US,
    TRIED_CORES,
    ClockSettings,
    Found,
    PairedClock,
    Place,
    empty_trip_us,
)
from opsmith.runner.clock.timed_pairs import DISCARDED_PER_COUNTED, ONE_SIDED, Dishonest, NotMeasured, TooShort
from opsmith.runner.clock.timed_processes import Counts
from opsmith.runner.clock.timed_ranks import RankCounts
from opsmith.runner.protocol.timing_messages import (
    BLOCK_US,
    BLOCK_US_CPU,
    BlockTimed,
    MakeReady,
    PrepareTiming,
    RenewInputs,
    TimeBlock,
    TimingPrepared,
    WarmUp,
    answer_spin_s,
    spin_s,
)

QUICK, QUICK_HOST = PRECISIONS["quick"], PRECISIONS_HOST["quick"]


class Machine:
    """Time that passes only when a side works.

    Attributes:
        now_us: what the judge's clock reads.
        asked: each side and what it was asked, in order.
        placed: the cores that the side and the judge could run on, each time.
        pinned: the judge's own cores.
        tried: of which the quickest was to be found, time after time.
        stopped: each side that was stopped, and after how many requests.
    """

    def __init__(self) -> None:
        self.now_us = 0.0
        self.asked: list[tuple[StandInSide, msgspec.Struct]] = []
        self.placed: list[tuple[set[int], set[int]]] = []
        self.pinned: set[int] = set()
        self.tried: list[tuple[int, ...]] = []
        self.stopped: list[tuple[StandInSide, int]] = []
        self.jitter = random.Random(11)

    def now_s(self) -> float:
        return self.now_us / 1e6

    def quickest(self, cores: Sequence[int]) -> int:
        """The first one that is asked about."""
        self.tried.append(tuple(cores))
        return cores[0]

    def blocks(self, quantity: str) -> list[tuple[StandInSide, TimeBlock]]:
        """The blocks with calls, without the graphs' replays of a cross-check."""
        return [
            (side, request)
            for side, request in self.asked
            if isinstance(request, TimeBlock) and request.quantity == quantity and request.calls
        ]

    def pairs(self) -> list[tuple[tuple[StandInSide, TimeBlock], tuple[StandInSide, TimeBlock]]]:
        """The pairs of captured blocks of K, which calibration's are not; each in the order that it ran in."""
        rounds: dict[int | None, list[tuple[StandInSide, TimeBlock]]] = {}
        for block in self.blocks("K"):
            if block[1].captured and not block[1].steady and block[1].round is not None:
                rounds.setdefault(block[1].round, []).append(block)
        return [(first, second) for first, second in rounds.values()]


class StandInSide:
    """A process whose calls take so long.

    Attributes:
        trip_us: that a request takes there and back.
        cores: that it may run on.
        cores_of: the same when it was asked to prepare inputs and to make ready.
        noise: of its calls, as a share.
        settling_us: that it goes on for when it has answered.
        trip_noise: of a trip, up to so much of it more or less.
        queueing_us: that a block waits for a processor.
        queued_share: of blocks, how many do.
        helping_us: that something else computes for the process meanwhile.
        outside_us: processor time that it uses for each turn besides its block.
        writing_us: processor time of its first thread for each renewal of its inputs.
        prepared: what it was asked to prepare last.
        ready: what it was asked to make ready.
        own_share: of what a call takes, what it says that it takes.
        call_us_of: by the number of a call, where it takes another time.
        noise_of: the same of the noise.
        unmeasured: calls that wait for the device.
        queued_call_us: that a call takes longer where it is no part of a graph.
        fails_at: the call, and its captured block, that is its last one.
        cold_us: that the first call after inputs were renewed takes longer.
    """

    def __init__(
        self, machine: Machine, call_us: float, *, slots: int = 512, nodes: float | None = 1.0, trip_us: float = 50.0
    ) -> None:
        self._machine = machine
        self.call_us = call_us
        self._slots = slots
        self._nodes = nodes
        self.trip_us = trip_us
        self.noise = 0.002
        self.own_share: float | None = 1.0
        self.call_us_of: dict[int, float] = {}
        self.noise_of: dict[int, float] = {}
        self.unmeasured: set[int] = set()
        self.fails_at = (-1, 0)
        self.settling_us = 0.0
        self.cold_us = 0.0
        self._is_cold = False
        self.queued_call_us = 0.0
        self.queueing_us = 0.0
        self.queued_share = 1.0
        self.helping_us = 0.0
        self.outside_us = self.writing_us = 0.0
        self._used_us = self._first_thread_us = 0.0
        self.trip_noise = 0.0
        self._queued_us = self._helped_us = 0.0
        self.wall_us = 0.0
        self.spread: RankSpread | None = None
        self.cores: set[int] = set()
        self.cores_of: dict[type, set[int]] = {}
        self.prepared: PrepareTiming | None = None
        self.ready: list[MakeReady] = []

    def ask(self, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        machine = self._machine
        machine.asked.append((self, request))
        machine.placed.append((self.cores, machine.pinned))
        start_us = machine.now_us
        try:
            return self._answer(request)
        finally:
            self.wall_us = machine.now_us - start_us

    def _answer(self, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        machine = self._machine
        machine.now_us += self.trip_us
        if self.trip_noise:
            machine.now_us += self.trip_us * self.trip_noise * machine.jitter.uniform(-1, 1)
        self.cores_of[type(request)] = self.cores
        if isinstance(request, PrepareTiming):
            self.prepared = request
            return TimingPrepared(min(request.slots, self._slots), request.variations or VARIATIONS, 0.1)
        if isinstance(request, MakeReady):
            self.ready.append(request)
            return BlockTimed(None, self._nodes if request.captured else None)
        if isinstance(request, RenewInputs):
            self._used_us += self.writing_us
            self._first_thread_us += self.writing_us
            machine.now_us += 1e4 if request.renewals[-1].sets else 0.0
            self._is_cold = True
            return BlockTimed(None)
        if isinstance(request, WarmUp):
            self._used_us += self.outside_us
            self._is_cold = self._is_cold and not request.warmings[-1].calls
            return BlockTimed(None)
        assert isinstance(request, TimeBlock)
        if request.calls and self.queueing_us and machine.jitter.random() < self.queued_share:
            machine.now_us += self.queueing_us
            self._queued_us += self.queueing_us
            self._helped_us += self.helping_us
        if request.captured and request.calls and request.pair == self.fails_at[0]:
            self.fails_at = (request.pair, self.fails_at[1] - 1)
            if self.fails_at[1] < 0:
                raise Dishonest("seen while it was timed")
        call_us = self.call_us_of.get(request.pair, self.call_us)
        call_us *= machine.jitter.lognormvariate(0.0, self.noise_of.get(request.pair, self.noise))
        call_us += 0.0 if request.captured and self._nodes is not None else self.queued_call_us
        machine.now_us += request.calls * request.replays * call_us
        self._used_us += request.calls * request.replays * call_us
        if request.calls and self._is_cold:
            machine.now_us += self.cold_us
            self._is_cold = False
        if request.quantity == "E":
            return BlockTimed(1e-3)  # Nobody should believe it.
        own_us = None if self.own_share is None or request.pair in self.unmeasured else call_us * self.own_share
        return BlockTimed(own_us, self._nodes if request.captured else None)

    def settle(self, most_s: float) -> float:
        return min(self.settling_us, most_s * 1e6)

    def used_us(self) -> float:
        return self._used_us

    def first_thread_us(self) -> float:
        return self._first_thread_us

    def stop(self) -> None:
        self._machine.stopped.append((self, len(self._machine.asked)))

    def counts(self) -> Counts:
        return Counts(self._queued_us, 0.0, self._helped_us)

    def run_on(self, cores: Collection[int]) -> None:
        self.cores = {*cores}


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine whose clock is the judge's, and that pins nothing."""
    return stand_in_machine(monkeypatch)


def stand_in_machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The same, where a fixture serves one example only."""
    machine = Machine()
    clock = SimpleNamespace(monotonic=machine.now_s)
    monkeypatch.setattr(stopwatch, "time", clock)

    def pin_judge(pid: int, cores: set[int]) -> None:
        assert pid == 0
        machine.pinned = cores

    monkeypatch.setattr(os, "sched_setaffinity", pin_judge)
    monkeypatch.setattr(stopwatch, "quickest", machine.quickest)
    return machine


#: How the stand-ins' inputs are made anew.
VARIATIONS = (Variation(Redraw.BLENDED),)


def rounds_of(requests: Sequence[msgspec.Struct], pair: int) -> list[int]:
    """The rounds of values that one call of a side has met."""
    rounds = []
    for request in requests:
        if isinstance(request, RenewInputs):
            rounds += [one.round for one in request.renewals if one.pair == pair]
        elif isinstance(request, TimeBlock) and request.pair == pair and request.round:
            rounds.append(request.round)
    return rounds


class Looker:
    """What is asked to verify; remembers when.

    Attributes:
        looks: sets of inputs and rounds.
        blocks: blocks of the candidate's that had been measured by then.
    """

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.looks: list[tuple[int, int]] = []
        self.blocks: list[int] = []

    def __call__(self, places: Sequence[Place]) -> None:
        [(_pair, slot, round_number)] = places
        self.looks.append((slot, round_number))
        side, last = self._machine.asked[-1]
        assert isinstance(last, TimeBlock)
        assert 0 <= slot < last.calls
        of_side = [request for other, request in self._machine.asked if other is side]
        assert rounds_of(of_side, last.pair)[-1] == round_number
        # The first block of each quantity is calibration's.
        self.blocks.append(sum(block is side for block, _ in self._machine.blocks(last.quantity)) - 1)


def settings(
    *, mode: str = "quick", quantities: str = "KE", throttled: Callable[[], str | None] | None = None
) -> ClockSettings:
    """Those of a run on a device, or on the CPU."""
    return ClockSettings(
        precisions=precisions_of(mode, quantities),
        quantities=quantities,
        cores=(0, 1, 2),
        noise={},
        graphs=GraphCosts(0.7, 0.0),
        throttled=throttled or stopwatch.never_throttled,
    )


def nobody_looks(_places: Sequence[Place]) -> None:
    """Every result is right here."""


def clock_of(
    reference: StandInSide,
    candidate: StandInSide,
    *,
    calls: int = 1,
    run: ClockSettings | None = None,
    seed: int = 1,
    look: Callable[[Sequence[Place]], None] = nobody_looks,
) -> PairedClock:
    """The clock of so many calls, ready."""
    requests = [b"call %d" % number for number in range(calls)]
    clock = PairedClock(reference, candidate, requests, settings=run or settings(), seed=seed, look=look)
    clock.prepare()
    return clock


def found_of(clock: PairedClock, quantity: str, *, cross_checked: Sequence[int] = ()) -> Found:
    """What is found of the only call."""
    [found] = clock.time(quantity, cross_checked=cross_checked)
    return found


def timing_of(clock: PairedClock, quantity: str, *, cross_checked: Sequence[int] = ()) -> Timing:
    """The time of the only call."""
    found = found_of(clock, quantity, cross_checked=cross_checked)
    assert isinstance(found, Timing), found
    return found


def timed(
    machine: Machine, reference_us: float, candidate_us: float, quantity: str = "K", mode: str = "quick"
) -> Timing:
    """Two sides whose calls take so long."""
    sides = StandInSide(machine, reference_us), StandInSide(machine, candidate_us)
    return timing_of(clock_of(*sides, run=settings(mode=mode)), quantity)


@pytest.mark.parametrize("quantity", ["K", "E"])
@pytest.mark.parametrize("mode", ["quick", "full"])
def test_equal_sides_are_the_same(machine: Machine, quantity: str, mode: str) -> None:
    """No difference is found where there is none."""
    timing = timed(machine, 20.0, 20.0, quantity, mode)
    assert Label.SAME is timing.label
    assert timing.low <= 1 <= timing.high
    assert timing.high - timing.low < 0.02
    assert 20.0 == pytest.approx(timing.reference_us, rel=0.01)
    assert 20.0 == pytest.approx(timing.candidate_us, rel=0.01)


@pytest.mark.parametrize(
    ("quantity", "share", "mode", "label"),
    [
        ("K", 1.05, "quick", Label.SLOWER),
        ("K", 0.95, "quick", Label.FASTER),
        ("K", 1.02, "full", Label.SLOWER),
        ("K", 0.98, "full", Label.FASTER),
        ("K", 1.005, "full", Label.SAME),
        ("K", 1.01, "quick", Label.SAME),
        ("E", 1.15, "quick", Label.SLOWER),
        ("E", 0.87, "quick", Label.FASTER),
        ("E", 1.07, "full", Label.SLOWER),
        ("E", 0.93, "full", Label.FASTER),
        ("E", 1.01, "full", Label.SAME),
        ("E", 1.03, "quick", Label.SAME),
    ],
)
def test_a_planted_difference_is_found(machine: Machine, quantity: str, share: float, mode: str, label: Label) -> None:
    """Of K 5 % at once and 2 % by full timing, of E three times as much; a fifth of it is nobody's claim."""
    timing = timed(machine, 20.0, 20.0 * share, quantity, mode)
    assert label is timing.label
    assert timing.low <= 1 / share <= timing.high


def test_what_the_machine_does_to_equal_sides_is_no_difference(machine: Machine) -> None:
    """The run's noise is of the quantity that is measured."""
    for noise, label in (({"K": 0.1}, Label.UNDECIDED), ({"E": 0.1}, Label.SLOWER)):
        run = msgspec.structs.replace(settings(), noise=noise)
        timing = timing_of(clock_of(StandInSide(machine, 20.0), StandInSide(machine, 21.2), run=run), "K")
        assert label is timing.label
        assert noise.get("K", 0.0) == timing.noise


def test_both_sides_of_a_pair_get_the_same_values_and_every_pair_its_own(machine: Machine) -> None:
    """What a side has computed in an earlier block is of no use in this one."""
    timed(machine, 20.0, 20.0)
    pairs = machine.pairs()
    assert 2 * len(pairs) == len([block for block in machine.blocks("K") if block[1].captured])
    rounds = [{request.round for _, request in pair} for pair in pairs]
    assert all(len(numbers) == 1 for numbers in rounds)
    assert len(pairs) == len(set.union(*rounds)) >= QUICK.least_pairs


def test_a_block_of_e_begins_with_fresh_values_outside_of_its_time(machine: Machine) -> None:
    """Writing them takes ten times as long as the block here."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    timing = timing_of(clock_of(*sides), "E")
    assert 20.0 == pytest.approx(timing.candidate_us, rel=0.01)
    trips = [TimeBlock(0, "E"), TimeBlock(0, "E", more=True)]
    without_trips = [(side, request) for side, request in machine.asked if request not in trips]
    for (side, written), (second_side, warmed), (third_side, block) in zip(
        without_trips, without_trips[1:], without_trips[2:], strict=False
    ):
        if isinstance(block, TimeBlock) and block.quantity == "E":
            assert isinstance(written, RenewInputs)
            assert isinstance(warmed, WarmUp)
            assert side is second_side is third_side
            [renewal], [warming] = written.renewals, warmed.warmings
            assert block.calls + warming.calls == warming.sets == renewal.sets


@pytest.mark.parametrize(
    ("call_us", "slots", "expected"),
    [(4.0, 512, 4), (20.0, 512, 2), (400.0, 512, 1), (4.0, 8, 1), (400.0, 3, 0), (2e3, 9, 0)],
)
def test_few_calls_warm_up(machine: Machine, call_us: float, slots: int, expected: int) -> None:
    """Where a call is long, they would take as long as the block, and where there are few sets, its sets."""
    reference = StandInSide(machine, call_us, slots=slots)
    clock = clock_of(reference, StandInSide(machine, call_us, slots=slots))
    clock.time("E")
    last = next(asked for _, asked in reversed(machine.asked) if isinstance(asked, WarmUp))
    assert expected == last.warmings[0].calls


@pytest.mark.parametrize(("slots", "longer_us"), [(512, 0.0), (3, 200.0)])
def test_what_the_first_calls_of_a_turn_take_longer_is_no_part_of_e(
    machine: Machine, slots: int, longer_us: float
) -> None:
    """They come before the block, on sets of their own; where there are but a few sets, all calls are the block's."""
    reference, candidate = (StandInSide(machine, 400.0, slots=slots) for _ in range(2))
    candidate.cold_us = 600.0
    clock = clock_of(reference, candidate)
    timing = timing_of(clock, "E")
    assert timing.calls_per_block == 3
    assert 400.0 == pytest.approx(timing.reference_us, rel=0.01)
    assert 400.0 + longer_us == pytest.approx(timing.candidate_us, rel=0.01)
    made = [renewal.sets for _, asked in machine.asked if isinstance(asked, RenewInputs) for renewal in asked.renewals]
    assert slots >= max(made)
    assert max(made) <= max(stopwatch.TRIED_SETS, *(ready.calls for ready in candidate.ready))


def test_the_values_of_all_calls_of_a_turn_are_written_at_once(machine: Machine) -> None:
    """To wait for a device takes as long as a block: sixteen calls would wait sixteen times."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(*sides, calls=3)
    machine.asked.clear()
    clock.time("E")
    values: dict[tuple[int, int], int] = {}
    for side, request in machine.asked:
        key = sides.index(side)
        if isinstance(request, RenewInputs):
            assert len(request.renewals) == 3
            values |= {(key, one.pair): one.round for one in request.renewals}
        elif isinstance(request, TimeBlock) and request.calls:
            assert values.pop((key, request.pair)), "a block on values that its call has met"
    assert not values


def test_the_order_within_pairs_is_random(machine: Machine) -> None:
    """A machine that slows down does so for both, and no process can tell when it is its turn."""
    orders = []
    for seed in (1, 2):
        machine.asked.clear()
        reference, candidate = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
        timing_of(clock_of(reference, candidate, run=settings(mode="full"), seed=seed), "K")
        orders.append([pair[0][0] is reference for pair in machine.pairs()])
        assert 5 <= sum(orders[-1]) <= len(orders[-1]) - 5
    assert orders[0] != orders[1]


def test_a_machine_that_slows_down_makes_no_side_slower(machine: Machine) -> None:
    """By a percent a block: ten times the difference between the sides, if there were any."""
    reference, candidate = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    ask = StandInSide.ask

    def slower_and_slower(side: StandInSide, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        reference.call_us *= 1.01
        candidate.call_us *= 1.01
        return ask(side, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StandInSide, "ask", slower_and_slower)
        timing = timing_of(clock_of(reference, candidate), "K")
    assert timing.low <= 1 <= timing.high
    assert timing.reference_us > 21


def test_e_is_the_judges_wall_clock_less_the_trip(machine: Machine) -> None:
    """What a process says of itself is not looked at, and no trip is charged to a call."""
    sides = StandInSide(machine, 2_000.0, trip_us=300.0), StandInSide(machine, 1_000.0, trip_us=300.0)
    assert 300.0 == pytest.approx(empty_trip_us(sides[0]))
    timing = timing_of(clock_of(*sides), "E")
    assert 2_000.0 == pytest.approx(timing.reference_us, rel=0.01)
    assert 1_000.0 == pytest.approx(timing.candidate_us, rel=0.01)
    assert 2.0 == pytest.approx(timing.speedup, rel=0.01)


def test_a_side_that_answers_empty_blocks_late_does_not_get_faster(machine: Machine) -> None:
    """The shorter trip of the two counts for both."""
    sides = StandInSide(machine, 2_000.0, trip_us=50.0), StandInSide(machine, 2_000.0, trip_us=650.0)
    timing = timing_of(clock_of(*sides), "E")
    assert 2_600.0 == pytest.approx(timing.candidate_us, rel=0.01)
    assert Label.SLOWER is timing.label


@pytest.mark.parametrize(("outside_us", "charged_us"), [(900.0, 800.0), (150.0, 0.0), (-500.0, 0.0)])
def test_what_a_candidate_computes_outside_of_its_blocks_is_charged(
    machine: Machine, outside_us: float, charged_us: float
) -> None:
    """Where both sides only write their inputs; what equal sides differ by, and less than the reference, is nothing.

    A call of 100 us, by which the ones that warm up may be longer, is not charged.
    """
    sides = StandInSide(machine, 100.0), StandInSide(machine, 100.0)
    for side in sides:
        side.outside_us = 3_000.0
    sides[1].outside_us += outside_us
    timing = timing_of(clock_of(*sides, run=settings(quantities="E")), "E")
    charged_us /= timing.calls_per_block
    assert 100.0 + charged_us == pytest.approx(timing.candidate_us, rel=0.02)
    assert charged_us == pytest.approx(timing.outside_us, rel=0.05)
    assert (Label.SLOWER if charged_us else Label.SAME) is timing.label


@pytest.mark.parametrize(("more_us", "charged_us"), [(4_000.0, 0.0), (6_000.0, 6_000.0), (-9_000.0, 0.0)])
def test_to_write_the_same_inputs_may_take_a_little_longer(machine: Machine, more_us: float, charged_us: float) -> None:
    """By some percent of what it takes the reference, which may be many times as long as a block."""
    sides = StandInSide(machine, 100.0), StandInSide(machine, 100.0)
    for side in sides:
        side.writing_us = 30_000.0
    sides[1].writing_us += more_us
    timing = timing_of(clock_of(*sides, run=settings(quantities="E")), "E")
    assert charged_us / timing.calls_per_block == pytest.approx(timing.outside_us, rel=0.05)


@pytest.mark.parametrize("first_thread", [True, False])
def test_work_that_is_hidden_while_much_is_written_is_charged(machine: Machine, *, first_thread: bool) -> None:
    """What computes beside the first thread, and what this one computes when it has written, is known exactly."""
    sides = StandInSide(machine, 100.0), StandInSide(machine, 100.0)
    for side in sides:
        side.writing_us = 90_000.0
    sides[1].outside_us += 900.0
    if not first_thread:
        sides[1].writing_us -= 50.0
    timing = timing_of(clock_of(*sides, run=settings(quantities="E")), "E")
    assert 800.0 / timing.calls_per_block == pytest.approx(timing.outside_us, rel=0.05)


def test_the_candidate_is_stopped_while_the_reference_runs(machine: Machine) -> None:
    """Before anything of the reference's turn; asking it lets it go on."""
    sides = StandInSide(machine, 100.0), StandInSide(machine, 100.0)
    clock = clock_of(*sides, run=settings(quantities="E"))
    first = len(machine.asked)
    clock.time("E")
    stopped = {asked for side, asked in machine.stopped if side is sides[1]}
    for number, (side, request) in enumerate(machine.asked[first:], first):
        is_block = isinstance(request, TimeBlock) and request.calls
        assert (number in stopped) == (side is sides[0] and bool(is_block or isinstance(request, RenewInputs)))


def test_what_goes_on_after_a_reply_is_added(machine: Machine) -> None:
    """A side that answers first and computes later has gained nothing."""
    sides = StandInSide(machine, 2_000.0), StandInSide(machine, 1_000.0)
    sides[1].settling_us = 100 * SETTLING_US
    timing = timing_of(clock_of(*sides), "E")
    assert 1_000.0 + 100 * SETTLING_US == pytest.approx(timing.candidate_us, rel=0.01)
    assert Label.SLOWER is timing.label


def test_what_never_ends_after_a_reply_is_not_waited_for_long(machine: Machine) -> None:
    """By far longer than the reference's blocks, which is enough to be slower."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    sides[1].settling_us = 1e9
    timing = timing_of(clock_of(*sides), "E")
    assert Label.SLOWER is timing.label
    assert timing.candidate_us < 1e5


def test_a_thread_may_take_a_while_to_fall_asleep(machine: Machine) -> None:
    """It has done its work, and the judge looks at once."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    sides[1].settling_us = SETTLING_US
    assert 1_000.0 == pytest.approx(timing_of(clock_of(*sides), "E").candidate_us, rel=0.01)


def test_a_block_that_others_disturb_is_repeated(machine: Machine) -> None:
    """Nothing is taken off it: its pair does not count, and the record says how many did not."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    for side in sides:
        side.queueing_us, side.queued_share = 4_000.0, 0.1
    timing = timing_of(clock_of(*sides), "E")
    assert 1_000.0 == pytest.approx(timing.candidate_us, rel=0.01)
    assert Label.SAME is timing.label
    assert timing.disturbed
    assert 0.05 < timing.disturbed_share < 0.9


def test_a_machine_that_never_rests_is_timed_as_it_is(machine: Machine) -> None:
    """With all of the waiting, and no pair forever."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    for side in sides:
        side.queueing_us = 4_000.0
    timing = timing_of(clock_of(*sides), "E")
    assert Label.SAME is timing.label
    assert 1_000.0 + 4_000.0 / timing.calls_per_block == pytest.approx(timing.candidate_us, rel=0.05)
    least, counted = QUICK_HOST.least_pairs, timing.blocks
    assert least + DISCARDED_PER_COUNTED * (counted - 1) <= timing.disturbed + DISCARDED_PER_COUNTED
    assert timing.disturbed <= least + DISCARDED_PER_COUNTED * counted


def test_a_candidate_that_always_waits_is_timed_with_its_waiting(machine: Machine) -> None:
    """Its own doing, where the reference never waits; what was discarded at first counts as well."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    sides[1].queueing_us = 4_000.0
    timing = timing_of(clock_of(*sides), "E")
    assert Label.SLOWER is timing.label
    assert 0 == timing.disturbed
    assert 1_000.0 + 4_000.0 / timing.calls_per_block == pytest.approx(timing.candidate_us, rel=0.05)


def test_a_candidate_does_not_choose_the_blocks_that_count(machine: Machine) -> None:
    """Slow ones that it has disturbed count with the others."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    sides[1].queueing_us, sides[1].queued_share = 4_000.0, 0.6
    timing = timing_of(clock_of(*sides, seed=3), "E")
    assert timing.disturbed <= ONE_SIDED
    assert timing.candidate_us > 1_000.0 + 1_000.0 / timing.calls_per_block


def test_a_wait_while_something_computes_for_the_process_is_its_own(machine: Machine) -> None:
    """A thread that yields to its helper has not waited for others."""
    sides = StandInSide(machine, 1_000.0), StandInSide(machine, 1_000.0)
    for side in sides:  # Both, so that nothing is noticed by its being one-sided.
        side.queueing_us = side.helping_us = 4_000.0
    timing = timing_of(clock_of(*sides), "E")
    assert 0 == timing.disturbed
    assert 1_000.0 + 4_000.0 / timing.calls_per_block == pytest.approx(timing.candidate_us, rel=0.05)


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("quantity", ["K", "E"])
def test_a_call_that_takes_nothing_is_no_measurement(machine: Machine, quantity: str, number: int) -> None:
    """On either side, with as many calls a block as there are sets of inputs."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    sides[number].call_us = 0.0
    found = found_of(clock_of(*sides), quantity)
    assert isinstance(found, TooShort)
    assert (number,) == found.short
    assert 500 < found.calls <= 512
    assert (quantity, Cause.TOO_SHORT) == (found.undecided.quantity, found.undecided.cause)
    assert f"{('reference', 'candidate')[number]}'s blocks of {found.calls} calls" in found.undecided.reason


@settings_of_examples(max_examples=60, deadline=None)
@given(
    quantity=st.sampled_from(["K", "E"]),
    call_us=st.tuples(st.floats(0.0, 30.0), st.floats(0.0, 30.0)),
    slots=st.integers(1, 10),
    trip_us=st.floats(1.0, 400.0),
    trip_noise=st.floats(0.0, 1.0),
)
def test_no_block_that_is_too_short_says_anything(
    quantity: str, call_us: tuple[float, float], slots: int, trip_us: float, trip_noise: float
) -> None:
    """Blocks of no more than ten calls, beside trips that are short or long, and that vary."""
    with pytest.MonkeyPatch.context() as patch:
        machine = stand_in_machine(patch)
        sides = [StandInSide(machine, us, slots=slots, trip_us=trip_us) for us in call_us]
        for side in sides:
            side.trip_noise = trip_noise
        clock = clock_of(sides[0], sides[1])
        found = found_of(clock, quantity)
    longest_us = slots * min(call_us)
    least_us = least_block_us(quantity, trip_us if quantity == "E" else 0.0)
    if isinstance(found, Timing):
        assert longest_us >= least_us / 2 - trip_us * trip_noise
        assert min(found.reference_us, found.candidate_us) * found.calls_per_block >= 0.9 * least_us / (1 + trip_noise)
    else:
        assert isinstance(found, TooShort)
        assert longest_us <= 1.5 * least_us * (1 + trip_noise)


def test_a_trip_that_seems_to_take_nothing_makes_no_block_long_enough(machine: Machine) -> None:
    """Of one that waited for a processor more is taken off than it took, and so it is of the block."""
    sides = StandInSide(machine, 0.01), StandInSide(machine, 0.01)
    for side in sides:
        side.trip_us = -500.0
    assert isinstance(found_of(clock_of(*sides), "E"), TooShort)


def test_blocks_that_are_too_short_get_more_calls(machine: Machine) -> None:
    """The call that was tried took fifty times as long as the next ones, as one of a busy machine may."""
    for quantity, least in (("E", 2 * 50.0), ("K", 10.0)):
        reference, candidate = StandInSide(machine, 600.0), StandInSide(machine, 600.0)
        clock = clock_of(reference, candidate)
        reference.call_us = candidate.call_us = 0.8
        timing = timing_of(clock, quantity)
        assert Label.SAME is timing.label
        assert timing.calls_per_block * timing.candidate_us >= least
        assert {timing.calls_per_block} == {request.calls for _, request in machine.blocks(quantity)[-8:]}
        sets = candidate.ready[-1].calls
        assert timing.calls_per_block <= sets <= 512
        assert timing.blocks >= (QUICK if quantity == "K" else QUICK_HOST).least_pairs


@pytest.mark.parametrize("pairs", [1, 2, 3, 5])
def test_blocks_get_more_calls_where_only_a_few_pairs_are_asked_for(machine: Machine, pairs: int) -> None:
    """As ``--timing-pairs`` does."""
    run = msgspec.structs.replace(settings(), precisions=precisions_of("quick", "KE", pairs=pairs))
    sides = StandInSide(machine, 600.0), StandInSide(machine, 600.0)
    clock = clock_of(*sides, run=run)
    for side in sides:
        side.call_us = 0.8
    timing = timing_of(clock, "E")
    assert timing.calls_per_block * timing.candidate_us >= 100.0
    assert pairs == timing.blocks


def test_a_block_that_happens_to_be_too_short_does_not_count(machine: Machine) -> None:
    """Its pair is counted, and another one takes its place."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(*sides)
    answer, left = StandInSide._answer, [1]

    def is_short_once(side: StandInSide, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        if isinstance(request, TimeBlock) and request.calls and side is sides[1] and left[0]:
            left[0] -= 1
            request = msgspec.structs.replace(request, calls=1)
        return answer(side, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StandInSide, "_answer", is_short_once)
        timing = timing_of(clock, "E")
    assert (1, QUICK_HOST.least_pairs) == (timing.too_short, timing.blocks)
    assert 20.0 == pytest.approx(timing.candidate_us, rel=0.02)
    assert Label.SAME is timing.label


@pytest.mark.parametrize("own_share", [-1.0, float("nan"), float("inf")])
def test_what_is_no_time_is_no_measurement(machine: Machine, own_share: float) -> None:
    """A process may say anything of itself."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 200.0)
    sides[1].own_share = own_share
    assert isinstance(found_of(clock_of(*sides), "K"), TooShort | Dishonest)


def test_a_candidate_that_claims_next_to_nothing_is_checked(machine: Machine) -> None:
    """Its own clock makes its blocks too short; the judge's says what they take."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 200.0)
    sides[1].own_share = 1e-6
    found = found_of(clock_of(*sides), "K")
    assert isinstance(found, Dishonest)
    assert "its own clock says" in str(found)


def test_pairs_while_the_clock_is_throttled_do_not_count(machine: Machine) -> None:
    """They are counted, and others take their place, until it is known to run freely again."""
    reference, candidate = StandInSide(machine, 20.0, trip_us=1e3), StandInSide(machine, 20.0, trip_us=1e3)
    asked_at_us: list[float] = []

    def throttled() -> str | None:
        asked_at_us.append(machine.now_us)
        answer = "thermal slowdown" if len(asked_at_us) == 2 else None
        candidate.call_us = 20.0 if answer is None else 90.0
        return answer

    run = settings(mode="full", throttled=throttled)
    timing = timing_of(clock_of(reference, candidate, run=run), "K")
    full = run.precisions["K"].least_pairs
    assert full == timing.blocks
    assert full + timing.discarded == len(machine.pairs())
    # All pairs between the answer and the next one, not only the one before which it was given.
    assert 3 <= timing.discarded < full
    assert 20.0 == pytest.approx(timing.candidate_us, rel=0.01)
    assert 1.0 == pytest.approx(timing.low, rel=0.02)


def test_whether_the_clock_is_throttled_is_asked_now_and_then(machine: Machine) -> None:
    """Asking takes about as long as a block."""
    asked_at_s: list[float] = []

    def throttled() -> None:
        asked_at_s.append(machine.now_s())

    timing = timing_of(
        clock_of(
            StandInSide(machine, 20.0, trip_us=1e3),
            StandInSide(machine, 20.0, trip_us=1e3),
            run=settings(mode="full", throttled=throttled),
        ),
        "K",
    )
    assert 1 < len(asked_at_s) < timing.blocks / 3
    assert all(later - earlier >= LOOK_INTERVAL_S for earlier, later in itertools.pairwise(asked_at_s))


def test_a_device_that_is_always_throttled_is_timed_as_it_is(machine: Machine) -> None:
    """Else its run would not end."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    timing = timing_of(clock_of(*sides, run=settings(throttled=lambda: "power cap")), "K")
    assert (QUICK.least_pairs, QUICK.least_pairs) == (timing.discarded, timing.blocks)


def test_a_secret_pair_and_the_last_one_are_looked_at(machine: Machine) -> None:
    """The slot too is chosen when the block is over; each time another one."""
    secret = {"K": set[int](), "E": set[int]()}
    slots = set()
    for seed in range(12):
        machine.asked.clear()
        look = Looker(machine)
        clock = clock_of(StandInSide(machine, 20.0), StandInSide(machine, 20.0), seed=seed, look=look)
        for quantity in "KE":
            timing_of(clock, quantity)
        early_of_k, early_of_e, last = look.blocks
        assert 1 <= early_of_k <= QUICK.least_pairs
        assert 1 <= early_of_e <= QUICK_HOST.least_pairs <= last
        assert 2 * (last + 1) == len(machine.blocks("E"))
        secret["K"].add(early_of_k)
        secret["E"].add(early_of_e)
        slots |= {slot for slot, _ in look.looks}
    assert len(secret["K"]) > 4
    assert len(secret["E"]) > 4
    assert len(slots) > 6


def replays(machine: Machine) -> list[tuple[StandInSide, TimeBlock]]:
    """The blocks of a cross-check."""
    return [block for block in machine.blocks("K") if block[1].steady]


@pytest.mark.parametrize("own_share", [0.1, 0.5, 0.8])
def test_a_side_whose_own_clock_is_far_below_the_judges_is_dishonest(machine: Machine, own_share: float) -> None:
    """It looked faster, so it was checked; many replays against one leave trips out of it."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 200.0, trip_us=3_000.0)
    sides[1].own_share = own_share
    found = found_of(clock_of(*sides), "K")
    assert isinstance(found, Dishonest)
    assert re.match(r"its own clock says .* us a call, the judge's (199|200)\.\d\d us", str(found))


@pytest.mark.parametrize("disturbed", [1, 2, 3])
def test_a_disturbance_of_the_judges_clock_is_no_lie(machine: Machine, disturbed: int) -> None:
    """Something that slows the device down while it is checked, and is over before it was checked three times."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 150.0)
    left = disturbed * stopwatch.SLOPES
    answer = StandInSide._answer

    def disturbs(side: StandInSide, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        nonlocal left
        if isinstance(request, TimeBlock) and request.replays > 1 and left:
            left -= 1
            machine.now_us += request.calls * request.replays * 150.0
        return answer(side, request)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(StandInSide, "_answer", disturbs)
        found = found_of(clock_of(*sides), "K")
    assert isinstance(found, Dishonest if disturbed == stopwatch.CROSS_CHECKS else Timing)


def test_a_side_that_is_faster_is_checked_and_found_so(machine: Machine) -> None:
    """Both clocks agree; only the candidate is asked."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 100.0)
    assert Label.FASTER is timing_of(clock_of(*sides), "K").label
    assert {sides[1]} == {side for side, _ in replays(machine)}
    assert {1, 9} == {request.replays for _, request in replays(machine)}


def test_every_block_of_a_cross_check_is_on_fresh_values(machine: Machine) -> None:
    """A silu in place that met its own results 135 times computed with numbers next to 0, which takes longer."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 100.0)
    timing_of(clock_of(*sides), "K")
    rounds = [request.round for _, request in replays(machine)]
    others = {request.round for _, request in machine.blocks("K") if not request.steady}
    assert None not in rounds
    assert len({*rounds} - others) == len(rounds) == 2 * stopwatch.SLOPES


@pytest.mark.parametrize("uncaptured", [0, 1])
def test_a_side_that_cannot_be_captured_is_compared_with_launches_of_the_other(
    machine: Machine, uncaptured: int
) -> None:
    """As what draws random numbers: two launches of a stream lie a microsecond further apart than two nodes."""
    sides = [StandInSide(machine, 20.0), StandInSide(machine, 20.0)]
    sides[uncaptured] = StandInSide(machine, 20.0, nodes=None)
    for side in sides:
        side.queued_call_us = 10.0
    timing = timing_of(clock_of(*sides), "K")
    assert (Label.SAME, None, None) == (timing.label, timing.reference_nodes, timing.candidate_nodes)
    assert timing.reference_us == pytest.approx(30.0, rel=0.02)


def test_a_little_below_is_no_lie(machine: Machine) -> None:
    """The judge's clock is read beside other work."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 200.0)
    sides[1].own_share = 0.9
    assert Label.FASTER is timing_of(clock_of(*sides), "K").label


@pytest.mark.parametrize("candidate_us", [20.0, 25.0])
def test_a_side_that_claims_nothing_is_checked_where_it_is_asked_only(machine: Machine, candidate_us: float) -> None:
    """One case of each kernel, whatever it shows."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, candidate_us)
    timing_of(clock_of(*sides), "K")
    assert [] == replays(machine)
    timing_of(clock_of(*sides), "K", cross_checked=[0])
    assert replays(machine)


def test_a_cross_check_that_is_asked_for_finds_a_lie_that_claims_nothing(machine: Machine) -> None:
    """A slow kernel may pretend to be as fast as eager."""
    sides = StandInSide(machine, 100.0), StandInSide(machine, 200.0)
    sides[1].own_share = 0.5
    assert Label.SAME is timing_of(clock_of(*sides), "K").label
    assert isinstance(found_of(clock_of(*sides), "K", cross_checked=[0]), Dishonest)


def test_calls_that_were_not_captured_are_not_held_against_the_wall_clock(machine: Machine) -> None:
    """The host queues them one by one, which takes it longer than the device needs."""
    sides = StandInSide(machine, 200.0), StandInSide(machine, 200.0, nodes=None)
    sides[1].own_share = 0.5
    timing = timing_of(clock_of(*sides), "K", cross_checked=[0])
    assert (Label.FASTER, None) == (timing.label, timing.candidate_nodes)
    assert [] == replays(machine)


def test_e_is_never_cross_checked(machine: Machine) -> None:
    """It is the judge's own clock already."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 10.0)
    timing_of(clock_of(*sides), "E", cross_checked=[0])
    assert [] == replays(machine)


@pytest.mark.parametrize("number", [0, 1])
def test_k_of_a_call_that_waits_for_the_device_is_not_measured(machine: Machine, number: int) -> None:
    """Whichever side it is; E still is."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    sides[number].own_share = None
    clock = clock_of(*sides)
    found = found_of(clock, "K")
    assert isinstance(found, NotMeasured)
    assert str(found).startswith("K: a call waits for the device")
    assert found is clock.pairs[0].problems["K"]
    assert Label.SAME is timing_of(clock, "E").label


def test_k_of_a_reference_that_launches_nothing_is_not_measured(machine: Machine) -> None:
    """A view has no time on the device to compare with."""
    clock = clock_of(StandInSide(machine, 0.01, nodes=0.0), StandInSide(machine, 20.0))
    found = found_of(clock, "K")
    assert isinstance(found, NotMeasured)
    assert "K: the reference launches nothing" == str(found)


@pytest.mark.parametrize(("captured", "taken_off"), [(True, 6.0), (False, 0.0)])
def test_what_a_graph_costs_is_no_part_of_k(machine: Machine, *, captured: bool, taken_off: float) -> None:
    """It would be a tenth of a short call that has no room for many sets of inputs; calls without a graph have none."""
    sides = [StandInSide(machine, 20.0, nodes=1.0 if captured else None, slots=2) for _ in range(2)]
    clock = clock_of(*sides)
    clock.settings = msgspec.structs.replace(clock.settings, graphs=GraphCosts(0.7, 12.0))
    timing = timing_of(clock, "K")
    assert 2 == timing.calls_per_block
    assert 20.0 - taken_off == pytest.approx(timing.reference_us, rel=0.02)


def test_k_comes_with_what_its_graphs_hold(machine: Machine) -> None:
    """Raw K is reported, with what its nodes cost."""
    sides = StandInSide(machine, 20.0, nodes=3.0), StandInSide(machine, 20.0, nodes=1.0)
    timing = timing_of(clock_of(*sides), "K")
    assert (3.0, 1.0, 0.7) == (timing.reference_nodes, timing.candidate_nodes, timing.node_us)


@pytest.mark.parametrize(
    ("quantities", "quantity", "reference_us", "candidate_us", "slots", "calls"),
    [
        ("KE", "K", 10.0, 10.0, 512, BLOCK_US["K"] / 10),
        ("KE", "K", 10.0, 2.0, 512, BLOCK_US["K"] / 2),
        ("KE", "K", 2.0, 10.0, 512, BLOCK_US["K"] / 2),
        ("KE", "E", 10.0, 10.0, 512, BLOCK_US["E"] / 10),
        ("E", "E", 10.0, 10.0, 512, BLOCK_US_CPU / 10),
        ("KE", "K", 10.0, 10.0, 16, 16),
        ("KE", "E", 100.0, 100.0, 3, 3),
        ("KE", "K", 5_000.0, 5_000.0, 512, 1),
        ("KE", "E", 5_000.0, 5_000.0, 512, 1),
    ],
)
def test_a_block_is_as_long_as_the_faster_sides_calls_need(
    machine: Machine,
    quantities: str,
    quantity: str,
    reference_us: float,
    candidate_us: float,
    slots: int,
    calls: float,
) -> None:
    """Never with more calls than there are sets of inputs, and never with none."""
    sides = StandInSide(machine, reference_us, slots=slots), StandInSide(machine, candidate_us, slots=slots)
    for side in sides:
        side.noise = 1e-9
    timing = timing_of(clock_of(*sides, run=settings(quantities=quantities)), quantity)
    assert calls == pytest.approx(timing.calls_per_block, abs=1)
    assert timing.calls_per_block <= slots
    assert {timing.calls_per_block} == {request.calls for _, request in machine.blocks(quantity)[-4:]}


def test_quiet_sides_need_the_least_number_of_pairs(machine: Machine) -> None:
    """A narrow interval ends it."""
    assert QUICK.least_pairs == timed(machine, 20.0, 20.0).blocks
    assert PRECISIONS["full"].least_pairs == timed(machine, 20.0, 20.0, mode="full").blocks


def test_noisy_sides_are_timed_until_the_interval_is_narrow(machine: Machine) -> None:
    """More pairs, not another answer."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    for side in sides:
        side.noise = 0.02
    timing = timing_of(clock_of(*sides, run=settings(mode="full")), "K")
    assert PRECISIONS["full"].least_pairs < timing.blocks < PRECISIONS["full"].most_pairs
    assert timing.high / timing.low <= (1 + PRECISIONS["full"].half_width) ** 2
    assert Label.SAME is timing.label


def test_sides_that_stay_noisy_are_timed_no_longer_than_the_budget(machine: Machine) -> None:
    """Nor is one slow case the whole run."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    for side in sides:
        side.noise = 0.5
    start_s = machine.now_s()
    timing = timing_of(clock_of(*sides), "K")
    assert Label.UNDECIDED is timing.label
    assert QUICK.least_pairs < timing.blocks < QUICK.most_pairs
    assert machine.now_s() - start_s < 3 * QUICK.budget_s


def test_no_more_pairs_are_timed_than_the_most(machine: Machine) -> None:
    """Even where they cost next to no time."""
    precision = msgspec.structs.replace(QUICK, most_pairs=40, budget_s=1e9)
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    for side in sides:
        side.noise = 0.5
    timing = timing_of(clock_of(*sides, run=msgspec.structs.replace(settings(), precisions={"K": precision})), "K")
    assert 40 == timing.blocks


def test_both_sides_share_a_core_that_the_judge_leaves_to_them(machine: Machine) -> None:
    """One core may be half as fast as the next: each pair gets the quickest of some that are drawn by chance."""
    cores = set()
    for seed in range(20):
        sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
        clock_of(*sides, seed=seed)
        assert {0, 1, 2} == {*machine.tried[-1]}
        assert sides[0].cores == sides[1].cores
        (core,) = sides[0].cores
        assert {0, 1, 2} == machine.pinned | {core}
        assert core not in machine.pinned
        assert {core} == sides[0].cores_of[TimeBlock]
        cores.add(core)
    assert {0, 1, 2} == cores


def stays_on_cores(machine: Machine, quantities: str, quantity: str) -> list[tuple[tuple[int, ...], int]]:
    """The cores that the side of a block could run on, and how many blocks were on them before there were others."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    precision = msgspec.structs.replace(QUICK_HOST, least_pairs=7 * PAIRS_A_CORE, half_width=1.0)
    precisions = settings(quantities=quantities).precisions | {quantity: precision}
    run = msgspec.structs.replace(settings(quantities=quantities), precisions=precisions, cores=tuple(range(100)))
    clock = clock_of(*sides, run=run)
    before = len(machine.asked)
    clock.time(quantity)
    cores = []
    for (_, request), (core, judge) in [*zip(machine.asked, machine.placed, strict=True)][before:]:
        if isinstance(request, TimeBlock) and request.quantity == quantity and request.calls:
            assert judge == {*range(100)} - core
            cores.append((*core,))
    assert 2 * 7 * PAIRS_A_CORE == len(cores)
    return [(core, len([*same])) for core, same in itertools.groupby(cores)]


def test_pairs_of_the_host_are_spread_over_many_cores(machine: Machine) -> None:
    """What a core does to one side more than to the other is no difference; each time the quickest of some is taken."""
    stays = stays_on_cores(machine, "KE", "E")
    assert [2 * PAIRS_A_CORE] * 7 == [blocks for _, blocks in stays]
    assert [core for (core,), _ in stays] == [tried[0] for tried in machine.tried[-7:]]
    assert {TRIED_CORES} == {len({*tried}) for tried in machine.tried}


@pytest.mark.parametrize(("quantities", "quantity"), [("KE", "K"), ("E", "E")])
def test_other_pairs_stay_on_their_core(machine: Machine, quantities: str, quantity: str) -> None:
    """To K it makes no difference, and a CPU's inputs lie in memory that is near to it."""
    assert 1 == len(stays_on_cores(machine, quantities, quantity))


def test_what_a_round_trip_takes_is_measured_all_the_while(machine: Machine) -> None:
    """It was slow when the pair was made ready, and taken off each block, that left next to nothing of 20 us."""
    sides = StandInSide(machine, 20.0, trip_us=600.0), StandInSide(machine, 30.0, trip_us=600.0)
    clock = clock_of(*sides)
    for side in sides:
        side.trip_us = 50.0
    timing = timing_of(clock, "E")
    assert timing.speedup == pytest.approx(2 / 3, rel=0.02)
    assert timing.candidate_us == pytest.approx(30.0, rel=0.02)


def test_a_candidate_that_is_slow_to_answer_gains_nothing(machine: Machine) -> None:
    """What its empty round trips take is not what is taken off its blocks."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(*sides)
    sides[1].trip_us = 300.0
    assert Label.SLOWER is timing_of(clock, "E").label


def test_on_a_machine_with_one_core_all_share_it(machine: Machine) -> None:
    """The judge has to run somewhere."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock_of(*sides, run=msgspec.structs.replace(settings(), cores=(3,)))
    assert ({3}, {3}, {3}) == (sides[0].cores, sides[1].cores, machine.pinned)


@pytest.mark.parametrize("quantities", ["KE", "E"])
def test_what_is_not_timed_is_done_side_by_side(machine: Machine, quantities: str) -> None:
    """On a device; a CPU's inputs would come to lie in memory near another core."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(*sides, run=settings(quantities=quantities))
    anywhere = {0, 1, 2} if quantities == "KE" else set()
    for side in sides:
        assert anywhere == side.cores_of[PrepareTiming]
        assert (anywhere or side.cores) == side.cores_of[MakeReady]
        assert 1 == len(side.cores)
    clock.let_go()
    assert (anywhere or sides[0].cores) == sides[0].cores


def test_the_candidate_prepares_what_the_reference_could(machine: Machine) -> None:
    """As many sets of inputs, whose values vary as eager takes them; a baseline is the reference's alone."""
    reference, candidate = StandInSide(machine, 20.0, slots=7), StandInSide(machine, 20.0)
    run = msgspec.structs.replace(settings(), warm=True, baseline="compile")
    clock = clock_of(reference, candidate, run=run)
    assert PrepareTiming(b"call 0", stopwatch.MOST_SLOTS, warm=True, baseline="compile") == reference.prepared
    assert PrepareTiming(b"call 0", 7, VARIATIONS, warm=True) == candidate.prepared
    assert 7 == clock.pairs[0].candidate_prepared.slots


def test_a_second_look_is_at_values_that_no_call_has_met(machine: Machine) -> None:
    """Every one at a block of its own, by the candidate alone."""
    rounds: list[int] = []
    reference, candidate = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(reference, candidate, look=lambda places: rounds.extend(place.round for place in places))
    timing_of(clock, "K")
    met = {request.round for _, request in machine.blocks("K")}
    machine.asked.clear()
    rounds.clear()
    clock.look_again(clock.pairs[0], 3)
    assert [candidate] * 3 == [side for side, _ in machine.asked]
    assert 3 == len(set(rounds) - met)


def test_calls_that_are_timed_together_are_found_as_they_are(machine: Machine) -> None:
    """Each has its own blocks, its own number of calls in them and its own answer."""
    reference, candidate = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    reference.call_us_of = {0: 20.0, 1: 40.0, 2: 5.0}
    candidate.call_us_of = {0: 20.0, 1: 20.0, 2: 10.0}
    found = clock_of(reference, candidate, calls=3).time("K")
    assert [Label.SAME, Label.FASTER, Label.SLOWER] == [timing.label for timing in found if isinstance(timing, Timing)]
    assert [13, 13, 50] == [timing.calls_per_block for timing in found if isinstance(timing, Timing)]
    assert [0, 1, 2] == [request.pair for request in candidate.ready]


def test_a_side_runs_its_blocks_of_all_calls_in_one_turn(machine: Machine) -> None:
    """A device takes longer to change from one process to another than a block lasts."""
    changes = []
    for calls in (1, 6):
        machine.asked.clear()
        clock = clock_of(StandInSide(machine, 20.0), StandInSide(machine, 20.0), calls=calls)
        clock.time("K")
        captured = [side for side, request in machine.blocks("K") if request.captured]
        changes.append(sum(side is not other for side, other in itertools.pairwise(captured)))
    assert changes[1] <= changes[0] + 1  # A turn more, as the places that are looked at fall.


def test_a_side_prepares_all_calls_before_the_other_begins(machine: Machine) -> None:
    """Else both wait for each other at the device."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock_of(*sides, calls=3)
    asked = [(side, request.pair) for side, request in machine.asked if isinstance(request, PrepareTiming)]
    assert [(side, number) for side in sides for number in range(3)] == asked


@pytest.mark.parametrize("quantity", ["K", "E"])
def test_a_side_is_told_whether_its_turn_goes_on(machine: Machine, quantity: str) -> None:
    """Then it waits awake; at the end of its turn it sleeps, since both sides run on one core."""
    clock = clock_of(StandInSide(machine, 20.0), StandInSide(machine, 20.0), calls=3)
    machine.asked.clear()
    clock.time(quantity)
    requests = [request for _, request in machine.blocks(quantity)]
    begins_next = [later.pair < request.pair for request, later in itertools.pairwise(requests)]
    assert [*begins_next, True] == [spin_s(request) == 0 for request in requests]
    assert all(answer_spin_s(request) > 0 for _, request in machine.asked)


def test_a_call_that_is_settled_takes_no_more_turns(machine: Machine) -> None:
    """A noisy one goes on alone."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    for side in sides:
        side.noise_of = {1: 0.5}
    quiet, noisy = clock_of(*sides, calls=2).time("K")
    assert isinstance(quiet, Timing)
    assert isinstance(noisy, Timing)
    assert QUICK.least_pairs == quiet.blocks < noisy.blocks


def test_a_call_that_cannot_be_measured_holds_nothing_against_the_others(machine: Machine) -> None:
    """Its problem is its own."""
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    sides[0].unmeasured = {1}
    clock = clock_of(*sides, calls=3)
    found = clock.time("K")
    assert [Timing, NotMeasured, Timing] == [type(one) for one in found]
    assert all(isinstance(one, Timing) for one in clock.time("E"))


def test_all_calls_are_looked_at(machine: Machine) -> None:
    """By their own numbers; together after a secret turn of E, and when all is over."""
    looks: list[list[int]] = []
    sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    clock = clock_of(*sides, calls=3, look=lambda places: looks.append([place.pair for place in places]))
    clock.time("K")
    assert [0, 1, 2] == sorted(itertools.chain(*looks))
    looks.clear()
    clock.time("E")
    assert [[0, 1, 2], [0, 1, 2]] == looks


def test_a_block_that_is_looked_at_ends_its_calls_turn(machine: Machine) -> None:
    """The next one would write over its results. Nothing else makes a turn shorter, but that it has enough."""
    looks: list[tuple[Place, int, bool]] = []
    lengths: set[int] = set()

    def look(places: Sequence[Place]) -> None:
        for place in places:
            _, last = next(block for block in reversed(machine.blocks("K")) if block[1].pair == place.pair)
            looks.append((place, len(places), last.round == place.round))

    for seed in range(40):
        sides = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
        machine.asked.clear()
        clock = clock_of(*sides, calls=6, seed=seed, look=look)
        before = len(machine.blocks("K"))
        clock.time("K")
        lengths.add(sum(request.pair == 0 for _, request in machine.blocks("K")[before:]))
    assert all(is_last for _place, _together, is_last in looks)
    assert {1, 2} <= {together for _place, together, _is_last in looks}
    assert {2 * QUICK.least_pairs} == lengths


def test_the_call_that_the_candidate_fails_at_is_known(machine: Machine) -> None:
    """Wherever it fails."""
    reference, candidate = StandInSide(machine, 20.0), StandInSide(machine, 20.0)
    candidate.fails_at = (2, 5)
    clock = PairedClock(reference, candidate, [b"call"] * 4, settings=settings(), seed=1, look=nobody_looks)
    clock.prepare()
    with pytest.raises(Dishonest):
        clock.time("K")
    assert 2 == clock.asked


# ---------------------------------------------------------------- ranks


class StandInRanks(StandInSide):
    """Ranks of which one computes and the others wait for it.

    Attributes:
        early_us: how much earlier than the last rank the first one has answered.
    """

    early_us = 0.0

    def ask(self, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        reply = super().ask(request)
        self.spread = RankSpread(self.early_us, self.early_us / 2)
        return reply

    def counts(self) -> RankCounts:  # type: ignore[override]
        return RankCounts((super().counts(),), (self._used_us,), share_cores=False)


OF_RANKS = msgspec.structs.replace(settings(quantities="E"), ranks=2)


def test_how_far_apart_ranks_were_is_part_of_their_time(machine: Machine) -> None:
    """Of one process there is nothing to say."""
    sides = StandInRanks(machine, 200.0), StandInRanks(machine, 200.0)
    sides[0].early_us, sides[1].early_us = 30.0, 90.0
    timing = timing_of(clock_of(*sides, run=OF_RANKS), "E")
    assert (RankSpread(30.0, 15.0), RankSpread(90.0, 45.0)) == (timing.reference_spread, timing.candidate_spread)
    alone = timing_of(clock_of(StandInSide(machine, 200.0), StandInSide(machine, 200.0)), "E")
    assert (None, None) == (alone.reference_spread, alone.candidate_spread)


def test_ranks_run_where_they_want(machine: Machine) -> None:
    """On one core they would wait for each other, and the judge does not know which one is free."""
    sides = StandInRanks(machine, 200.0), StandInRanks(machine, 200.0)
    machine.pinned = {9}
    clock_of(*sides, run=OF_RANKS).time("E")
    assert ([], {9}) == (machine.tried, machine.pinned)
    assert {frozenset(OF_RANKS.cores)} == {frozenset(side.cores) for side in sides}


def test_blocks_of_ranks_are_long_beside_what_asking_them_takes(machine: Machine) -> None:
    """A trip to ranks may take a millisecond, of which a usual block of 1.5 ms is no multiple."""
    sides = StandInRanks(machine, 100.0, trip_us=1_000.0), StandInRanks(machine, 100.0, trip_us=1_000.0)
    timing = timing_of(clock_of(*sides, run=OF_RANKS), "E")
    assert 8_000.0 == pytest.approx(timing.calls_per_block * timing.reference_us, rel=0.02)
    assert 0 == timing.too_short


def test_blocks_of_ranks_that_become_too_short_get_more_calls(machine: Machine) -> None:
    """Trips take longer where others begin to use the processors."""
    sides = StandInRanks(machine, 100.0, trip_us=50.0), StandInRanks(machine, 100.0, trip_us=50.0)
    clock = clock_of(*sides, run=OF_RANKS)
    [pair] = clock.pairs
    calls = pair.calls["E"]
    asked = len(machine.asked)

    class Slower(list[tuple[StandInSide, msgspec.Struct]]):
        def append(self, one: tuple[StandInSide, msgspec.Struct]) -> None:
            super().append(one)
            if len(self) > asked + 40:  # After more pairs than those that say how long blocks are.
                sides[0].trip_us = sides[1].trip_us = 2_000.0

    machine.asked = Slower(machine.asked)
    timing = timing_of(clock, "E")
    assert calls < timing.calls_per_block
    assert 4_000.0 <= timing.calls_per_block * timing.reference_us


@pytest.mark.parametrize("queueing_us", [0.0, 4_000.0])
@pytest.mark.parametrize(("outside_us", "charged_us"), [(1_900.0, 1_800.0), (250.0, 0.0), (-500.0, 0.0)])
def test_what_ranks_compute_outside_of_their_blocks_is_charged(
    machine: Machine, outside_us: float, charged_us: float, queueing_us: float
) -> None:
    """By the processor time of their blocks, which is not how long these take: ranks wait for each other.

    It is known of blocks that others disturb, too.
    """
    sides = StandInRanks(machine, 100.0), StandInRanks(machine, 100.0)
    for side in sides:
        side.outside_us, side.queueing_us = 3_000.0, queueing_us
    sides[1].outside_us += outside_us
    timing = timing_of(clock_of(*sides, run=OF_RANKS), "E")
    assert charged_us / timing.calls_per_block == pytest.approx(timing.outside_us, rel=0.05)


@pytest.mark.parametrize("request_", [RenewInputs(()), WarmUp(()), TimeBlock(1, "E", more=True)])
def test_ranks_on_a_cpu_sleep_until_they_are_asked(request_: msgspec.Struct) -> None:
    """One that waits awake takes a core from another one that is not as far yet."""
    assert (0.0, True) == (spin_s(request_, shares_cores=True), spin_s(request_) > 0)
