"""The judge's clock: paired blocks of reference and candidate, their turns in random order, one at a time.

Each side prepares its own copies of the inputs; while one runs a block the other is idle. E is the
judge's wall clock around a block, less an empty round trip, so nothing that a candidate patches in its
own process changes it. Nothing else is taken off: a block that other work on the machine disturbs is
repeated. K comes from the processes' own device events; the judge holds it against its own clock by
the difference between many replays and one.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, Protocol

import msgspec

from opsmith.core.timing import GraphCosts, Label, RankSpread, Timing
from opsmith.evaluation.timing.statistics import Precision, least_block_us, middle_spread, timing_of
from opsmith.runner.clock.timed_pairs import (
    DISTURBED_SHARE,
    Block,
    Dishonest,
    NotMeasured,
    Pair,
    Series,
    TooShort,
    WorkOutside,
)
from opsmith.runner.machine.cores import quickest, siblings_of
from opsmith.runner.protocol.timing_messages import (
    BLOCK_US,
    BLOCK_US_CPU,
    BlockTimed,
    MakeReady,
    PrepareTiming,
    Renewal,
    RenewInputs,
    TimeBlock,
    TimingPrepared,
    Warming,
    WarmUp,
)

#: Blocks of one side before the other one's turn. A device takes time to change from one process to another; a host
#: is faster or slower for milliseconds, and blocks that follow each other would be so together.
BLOCKS_A_TURN = {"K": 4, "E": 1}
#: Cores of which the quickest is taken for a group of pairs, and pairs of blocks of E on a device before another one
#: is: a core is fast or slow for some ten milliseconds, and what both sides take then differs by another ratio.
TRIED_CORES = 4
PAIRS_A_CORE = 4
#: Sets of inputs that are used at first to find out how many calls make a block.
TRIED_SETS = 8
#: Between two questions whether the device's clock is throttled.
LOOK_INTERVAL_S = 0.02
#: The last so many empty round trips, whose median is taken off every block.
EMPTY_TRIPS = 9
#: Blocks that last for less than this share of what they should get more calls: the first ones are slow. At most so
#: many times as many at once.
SHORT_SHARE = 1 / 3
LEAST_GROWTH, MOST_GROWTH = 2, 16
#: A block should be so many times as long as it has to be at least: more than 1 / SHORT_SHARE, so that it grows.
LONGER_THAN_LEAST = 4
#: Sets of inputs that are asked for, so calls of a block at most.
MOST_SLOTS = 1_024
#: A replayed graph is held against the wall clock by so many replays more than one, in the median of so many times;
#: so often before anything is held against a kernel.
MORE_REPLAYS = 8
SLOPES = 6
CROSS_CHECKS = 3
#: A worker's own clock may lie this much below the judge's; it is read beside other work.
CLOCK_SLACK = 0.85
CLOCK_SLACK_US = 10.0
#: A thread that has done its work may take so long to fall asleep, microseconds.
SETTLING_US = 100.0
#: What goes on after a block is waited for, and added to it: for so many times as long as the longest block of the
#: reference took, and for so long at least and at most. Then it is stopped for the reference's turn.
MOST_SETTLING, LEAST_SETTLING_S, MAX_SETTLING_S = 20, 0.1, 5.0
#: What is found of a pair.
Found = Timing | TooShort | NotMeasured | Dishonest


class Counted(Protocol):
    """What Linux has counted of a side at one moment."""

    def disturbed_us(self, until: Any) -> float:
        """How long somebody else's work made a request longer that began then, by what was counted at its end."""
        ...

    def computed_us(self, until: Any) -> float | None:
        """Processor time that it took; None where it is all of its time."""
        ...


class Side(Protocol):
    """One of the two processes of a pair."""

    def ask(self, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        """Send a request and wait for its reply."""
        ...

    @property
    def wall_us(self) -> float:
        """Microseconds of the judge's clock from the last request to its reply."""
        ...

    @property
    def spread(self) -> RankSpread | None:
        """Of ranks, how much earlier than the last one others had answered that request; None of one process."""
        ...

    def settle(self, most_s: float) -> float:
        """Wait until nothing runs in the process any more, for so long at most; microseconds that it took."""
        ...

    def counts(self) -> Counted:
        """What Linux has counted of the process so far."""
        ...

    def run_on(self, cores: Collection[int]) -> None:
        """Let all threads of the process run on these cores only."""
        ...

    def used_us(self) -> float:
        """Processor time, in microseconds, that the process and all that it has started have had so far."""
        ...

    def first_thread_us(self) -> float:
        """The same of the thread that answers requests, which has answered and sleeps."""
        ...

    def stop(self) -> None:
        """Keep all of them from running until the process is asked again."""
        ...


def never_throttled() -> str | None:
    """For a device whose clock nobody can watch."""
    return None


class ClockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all pairs of a run.

    Attributes:
        precisions: by quantity, how long a pair is timed.
        quantities: what is measured; ``KE``, and ``E`` on a CPU.
        cores: each pair gets one of them, and the judge those that share nothing with it.
        noise: by quantity, what two equal sides differ by at most, as a share.
        graphs: what CUDA graphs cost; None off CUDA.
        throttled: why the device's clock is throttled just now, or None.
        warm: leave inputs in the device's cache.
        baseline: what the reference runs.
        ranks: processes of either side, if they are ranks, which run where they want.
        noise_of_ranks: the noise of E of so many ranks.
    """

    precisions: dict[str, Precision]
    quantities: str
    cores: tuple[int, ...]
    noise: dict[str, float] = {}
    graphs: GraphCosts | None = None
    throttled: Callable[[], str | None] = never_throttled
    warm: bool = False
    baseline: str = "eager"
    ranks: int | None = None
    noise_of_ranks: dict[int, float] = {}


class Place(NamedTuple):
    """Of a result: the number of its call, that of a set of inputs, and the round of their values."""

    pair: int
    slot: int
    round: int


class Clocked(NamedTuple):
    """A reply and its time, in microseconds.

    Attributes:
        reply: of the process.
        wall_us: from the request to the reply.
        disturbed_us: how much of that is a wait for a processor that somebody else had.
        before_us: that the judge took before it sent the request, for which a process may have waited awake.
        computed_us: processor time of ranks, which do not wait awake.
        spread: how far apart they were at its end.
    """

    reply: Any
    wall_us: float
    disturbed_us: float
    before_us: float
    computed_us: float | None
    spread: RankSpread | None

    @property
    def is_disturbed(self) -> bool:
        """Whether that is much of it."""
        return self.disturbed_us > DISTURBED_SHARE * self.wall_us


class PairedClock:
    """Times calls of one kernel on both sides, several of them together; :meth:`prepare` comes first.

    A device takes a millisecond to change from one process to another, so a side that has its turn runs its
    blocks of all calls.

    Attributes:
        settings: of the run.
        pairs: the calls, in the order given.
        asked: the number of the call that the candidate was asked about last.

    Args:
        reference: the referee.
        candidate: the worker.
        calls: the serialized calls.
        settings: of the run.
        seed: of the order of the blocks and of what is looked at.
        look: given places of results, it keeps what the candidate's last blocks returned there, to be judged.
    """

    def __init__(
        self,
        reference: Side,
        candidate: Side,
        calls: Sequence[bytes],
        *,
        settings: ClockSettings,
        seed: int,
        look: Callable[[Sequence[Place]], None],
    ) -> None:
        self._order = random.Random(seed)  # noqa: S311 - an order, and what is looked at, of a secret seed
        self._sides = (reference, candidate)
        self._requests = calls
        self.settings = settings
        self._look = look
        self._next_question = 0.0
        self._is_throttled = False
        self._turns = _turns(self._order)
        self._trips_us: deque[float] = deque(maxlen=EMPTY_TRIPS)
        self._longest_us = 0.0
        self._cores: Sequence[int] = settings.cores
        self.pairs: list[Pair] = []
        self.asked = 0

    def prepare(self) -> None:
        """Make both sides' inputs, and find out how many calls make a block."""
        with ThreadPoolExecutor(1) as thread:
            self.let_go()
            self._prepare_inputs()
            self._change_core()
            # Both are processes of the same kind: a longer trip to one of them is somebody else's doing.
            self._trips_us.append(min(empty_trip_us(side) for side in self._sides))
            for quantity in self.settings.quantities:
                self._calibrate(quantity)
            self.let_go()
            reference_ready = thread.submit(self._make_ready, 0, self.pairs)
            self._make_ready(1, self.pairs)
            reference_ready.result()
            self._run_on(self._cores)

    @property
    def _may_change_cores(self) -> bool:
        """Not on a CPU: there inputs would come to lie in memory that is near to another core."""
        return "K" in self.settings.quantities

    def let_go(self) -> None:
        """Let both sides run side by side, as long as nothing is timed, where they may change cores."""
        if self._may_change_cores:
            self._run_on(self.settings.cores)

    def _change_core(self) -> None:
        """Let both sides run on one core, the quickest of some that are drawn, and the judge beside it.

        Ranks run on all, and so does the judge.
        """
        cores = self.settings.cores
        if self.settings.ranks is not None:
            return
        core = quickest(self._order.sample(cores, min(TRIED_CORES, len(cores))))
        self._cores = [core]
        self._run_on(self._cores)
        os.sched_setaffinity(0, {*cores} - siblings_of(core) or {core})

    def _run_on(self, cores: Collection[int]) -> None:
        for side in self._sides:
            side.run_on(cores)

    def _prepare_inputs(self) -> None:
        """Those of all calls on one side, then on the other: each waits for the device several times a call."""
        references = [self._prepare_reference(number) for number in range(len(self._requests))]
        for number, (call, reference) in enumerate(zip(self._requests, references, strict=True)):
            self.asked = number
            request = PrepareTiming(call, reference.slots, reference.variations, pair=number, warm=self.settings.warm)
            self.pairs.append(Pair(number, reference, _prepared(self._sides[1], request), self._order))

    def _prepare_reference(self, number: int) -> TimingPrepared:
        settings = self.settings
        return _prepared(
            self._sides[0],
            PrepareTiming(
                self._requests[number],
                MOST_SLOTS,
                pair=number,
                warm=settings.warm,
                baseline=settings.baseline,
            ),
        )

    def _calibrate(self, quantity: str) -> None:
        """Calls a block, from the faster side: its blocks must be long enough too. Also warms up."""
        fastest_us: dict[int, float] = {}
        for number in range(2):
            for pair in self.pairs:
                calls = min(TRIED_SETS, pair.reference_prepared.slots)
                [round_number] = pair.new_rounds(1)
                try:
                    if quantity == "E":
                        calls -= pair.warm_up_calls(calls)
                        self._renew(number, [(pair, round_number, calls)], ())
                    block = self._block(number, pair, calls, quantity, round_number, captured=False)
                except NotMeasured as problem:
                    pair.problems[quantity] = problem
                    continue
                fastest_us[pair.number] = min(block.call_us, fastest_us.get(pair.number, math.inf))
        for pair in self.pairs:
            if quantity not in pair.problems:
                wanted_us, call_us = self._wanted_us(quantity), fastest_us[pair.number]
                # What took next to nothing was too short to be measured, and is found to be so later.
                is_long = MOST_SLOTS * call_us > wanted_us
                calls = max(math.ceil(wanted_us / call_us), 1) if is_long else MOST_SLOTS
                pair.calls[quantity] = _possible_calls(pair, quantity, calls)

    def _wanted_us(self, quantity: str) -> float:
        """How long a block should take."""
        if "K" in self.settings.quantities:
            return BLOCK_US[quantity]
        if self.settings.ranks is None:
            return BLOCK_US_CPU
        # To ask several of them takes so long that a usual block is none.
        return max(BLOCK_US_CPU, LONGER_THAN_LEAST * least_block_us("E", max(self._trips_us)))

    def _is_to_begin_again(self, series: Series, quantity: str) -> bool:
        may_grow = not series.is_sized or (self.settings.ranks is not None and series.blocks.are_too_short)
        return may_grow and self._begins_again(series, quantity)

    def _begins_again(self, series: Series, quantity: str) -> bool:
        """Where the first blocks are short, begin again with more calls a block, if there are inputs for them.

        Where blocks are found to be too short later, as a trip to ranks that others hold up takes longer, too.
        """
        wanted_us, now_us = self._wanted_us(quantity), series.blocks.at_first_us
        if series.problem is not None or now_us is None:
            return False
        pair = series.pair
        calls = pair.calls[quantity]
        are_short = now_us < SHORT_SHARE * wanted_us or series.blocks.are_too_short
        growth = max(min(wanted_us / now_us, MOST_GROWTH), LEAST_GROWTH)
        more = _possible_calls(pair, quantity, math.ceil(calls * growth))
        series.is_sized = not are_short or more <= calls
        if series.is_sized:
            return False
        pair.calls[quantity] = more
        with _shared([series]):
            for number in range(2):
                self._make_ready(number, [pair])
        series.begin_again()
        return True

    def _make_ready(self, number: int, pairs: Sequence[Pair]) -> None:
        for pair in pairs:
            if number == 1:
                self.asked = pair.number
            if pair.calls:
                of_host = pair.calls.get("E", 0)
                sets = max(pair.calls.get("K", 0), of_host + pair.warm_up_calls(of_host))
                request = MakeReady(pair.number, sets, pair.calls.get("K"))
                reply = self._sides[number].ask(request)
                assert isinstance(reply, BlockTimed)
                pair.nodes[number] = reply.nodes

    def time(self, quantity: str, *, cross_checked: Collection[int] = ()) -> list[Found]:
        """Measure one quantity.

        A result of each call is looked at after a block that nobody can know, and another one after the last
        block, by when it has seen all that it will see; what is measured first leaves that to the next.

        Args:
            quantity: ``K`` or ``E``.
            cross_checked: of these calls K is held against the judge's clock in any case; a FASTER one always is.

        Returns:
            for each call its time, or why there is none: its blocks are too short, K cannot be told from E, or the
            candidate's own clock does not agree with the judge's.
        """
        precision, noise = self.settings.precisions[quantity], self.settings.noise.get(quantity, 0.0)
        of_all = self._order.randrange(precision.least_pairs)
        everything = [
            # Where each turn is a block, results of all calls are looked at together.
            Series(
                pair,
                precision,
                noise,
                looked_at=of_all if BLOCKS_A_TURN[quantity] == 1 else self._order.randrange(precision.least_pairs),
            )
            for pair in self.pairs
            if quantity in pair.calls
        ]
        if quantity == self.settings.quantities == "E" and len(everything) == 1:
            everything[0].watch_outside(self.settings.ranks or 1)
        running = everything
        changes_cores = quantity == "E" and self._may_change_cores
        of_this_core = itertools.cycle(range(PAIRS_A_CORE))
        while running:
            if changes_cores and next(of_this_core) == 0:
                with _shared(running):
                    self._change_core()
            self._take_turns(running, quantity)
            is_throttled = self._was_throttled()
            goes_on = [series.goes_on(is_throttled=is_throttled) for series in running]
            running = [
                series
                for series, more in zip(running, goes_on, strict=True)
                if self._is_to_begin_again(series, quantity) or more
            ]
        measured = {series.pair.number: series for series in everything if series.problem is None}
        if quantity == self.settings.quantities[-1]:
            self.let_go()
            self._look([self._somewhere(series.pair, quantity, series.pair.round) for series in measured.values()])
        return [
            self._found(measured[pair.number], quantity, cross_checked=cross_checked)
            if pair.number in measured
            else pair.problems[quantity]
            for pair in self.pairs
        ]

    def _take_turns(self, running: Sequence[Series], quantity: str) -> None:
        """One turn of each side: some blocks of each call, on values that no call of theirs has met."""
        for series in running:
            series.begin_turn(BLOCKS_A_TURN[quantity])
        for number in next(self._turns):
            going_on = [series for series in running if series.problem is None]
            if number == 0:
                self._sides[1].stop()  # Nothing that it has left running disturbs the reference.
            if quantity == "E":
                with _shared(going_on):  # To wait for a device takes as long as a block.
                    self._renew(
                        number,
                        [(one.pair, one.rounds[0], one.pair.calls["E"]) for one in going_on],
                        [one.outside for one in going_on if one.outside is not None],
                    )
                    trip = clocked(self._sides[number], TimeBlock(0, "E", more=True))
                for series in going_on:
                    if series.outside is not None and trip.computed_us is None:
                        series.outside.idle(number, trip.before_us)
                # The candidate could be slow to answer on purpose.
                if number == 0 and not trip.is_disturbed:
                    self._trips_us.append(trip.wall_us)
            for series in going_on:
                self._run_blocks(number, series, quantity, is_last=series is running[-1])
            places = [
                self._somewhere(series.pair, quantity, series.rounds[-1])
                for series in going_on
                if number == 1 and series.is_looked_at and series.problem is None
            ]
            if places:
                with _shared(going_on):
                    self._look(places)

    def _renew(self, number: int, rounds: Sequence[tuple[Pair, int, int]], watched: Collection[WorkOutside]) -> None:
        """Get a side ready for a block of so many calls of E of each pair, on the values of a round."""
        side = self._sides[number]
        warmings = [
            Warming(pair.number, calls + (warm := pair.warm_up_calls(calls)), warm) for pair, _, calls in rounds
        ]
        renewals = [
            Renewal(round_, warming.sets, pair.number)
            for (pair, round_, _), warming in zip(rounds, warmings, strict=True)
        ]
        for outside in watched:
            outside.begin_turn(number, side.used_us(), side.first_thread_us())
        # A process that sleeps is one whose processor time is known.
        side.ask(RenewInputs(tuple(renewals), more=not watched))
        for outside in watched:
            outside.end_writing(number, side.first_thread_us())
        side.ask(WarmUp(tuple(warmings)))

    def _run_blocks(self, number: int, series: Series, quantity: str, *, is_last: bool) -> None:
        """The blocks of one call's turn, the last call's if ``is_last``."""
        pair = series.pair
        calls = pair.calls[quantity]
        with _shared([series]):
            try:
                for round_number in series.rounds:
                    if number == 0:
                        self._sides[1].stop()
                    more = not (is_last and round_number == series.rounds[-1])
                    block = self._block(number, pair, calls, quantity, round_number, more=more)
                    series.turn[number].append(block)
                    if series.outside is not None:
                        series.outside.end_block(number, block)
            except NotMeasured as problem:
                series.problem = pair.problems[quantity] = problem

    def _somewhere(self, pair: Pair, quantity: str, round_number: int) -> Place:
        """One of the results of a block, chosen when it is over."""
        return Place(pair.number, self._order.randrange(pair.calls[quantity]), round_number)

    def _was_throttled(self) -> bool:
        """Whether the device's clock was throttled when this was asked last.

        Asking takes about as long as a block, so it is not done after every pair.
        """
        if time.monotonic() >= self._next_question:
            self._next_question = time.monotonic() + LOOK_INTERVAL_S
            self._is_throttled = self.settings.throttled() is not None
        return self._is_throttled

    def _found(self, series: Series, quantity: str, *, cross_checked: Collection[int]) -> Found:
        if not series.blocks.are_too_short:
            return self._timing(series, quantity, cross_checked=cross_checked)
        found = series.blocks.what_is_too_short(quantity)
        if quantity == "K" and 1 in found.short and series.pair.nodes[1] is not None:
            try:  # It may say so of longer ones.
                self._cross_check(series.pair, found.calls, found.at_most_us[1])
            except Dishonest as offence:
                return offence
        return found

    def _timing(self, series: Series, quantity: str, *, cross_checked: Collection[int]) -> Timing | Dishonest:
        pair = series.pair
        assert series.found is not None
        calls = pair.calls[quantity]
        timing = timing_of(
            *series.measured,
            series.found,
            precision=self.settings.precisions[quantity],
            noise=self.settings.noise.get(quantity, 0.0),
            calls_per_block=calls,
            quantity=quantity,
            discarded=series.discarded,
            too_short=len(series.blocks.too_short),
            disturbed=len(series.blocks.disturbed),
            disturbed_share=series.blocks.disturbed_share,
            outside_us=series.charged_us,
        )
        timing = msgspec.structs.replace(
            timing,
            reference_spread=middle_spread(series.blocks.spreads[0]),
            candidate_spread=middle_spread(series.blocks.spreads[1]),
        )
        if quantity != "K":
            return timing
        reference_nodes, candidate_nodes = pair.nodes
        # Calls that are queued one by one keep the host busy, too: its clock says nothing about them.
        if candidate_nodes is not None and (pair.number in cross_checked or timing.label is Label.FASTER):
            try:
                self._cross_check(pair, calls, timing.candidate_us)
            except Dishonest as offence:
                return offence
        return msgspec.structs.replace(
            timing,
            node_us=None if self.settings.graphs is None else self.settings.graphs.node_us,
            reference_nodes=reference_nodes,
            candidate_nodes=candidate_nodes,
        )

    def look_again(self, pair: Pair, times: int) -> None:
        """Look at results of so many further blocks of K, on values that no call has met."""
        calls = pair.calls["K"]
        for round_number in pair.new_rounds(times):
            self._block(1, pair, calls, "K", round_number)
            self._look([self._somewhere(pair, "K", round_number)])

    def _block(
        self,
        number: int,
        pair: Pair,
        calls: int,
        quantity: str,
        round_number: int,
        *,
        captured: bool = True,
        more: bool = False,
    ) -> Block:
        """How long a block on a round's values takes; ``more`` blocks of the same turn may follow.

        The values are there already for E; a block of K begins with writing them.
        """
        side = self._sides[number]
        if number == 1:
            self.asked = pair.number
        if quantity == "K":
            captured = captured and pair.is_captured()
            reply = side.ask(TimeBlock(calls, "K", pair=pair.number, round=round_number, captured=captured, more=more))
            assert isinstance(reply, BlockTimed)
            if reply.own_us is None:
                raise NotMeasured("K: a call waits for the device, so that its time cannot be told from the host's")
            if number == 0 and reply.nodes == 0:
                raise NotMeasured("K: the reference launches nothing")
            pair.nodes[number] = reply.nodes
            graphs = self.settings.graphs
            graph_us = 0.0 if graphs is None or reply.nodes is None else graphs.graph_us  # It is no kernel's time.
            return Block(calls, reply.own_us * calls - graph_us, least_block_us("K", graph_us))
        timed = clocked(side, TimeBlock(calls, "E", pair=pair.number, more=more))
        wall_us = timed.wall_us
        if number == 0:
            self._longest_us = max(self._longest_us, wall_us)
        settling_us = side.settle(min(max(LEAST_SETTLING_S, MOST_SETTLING * self._longest_us / 1e6), MAX_SETTLING_S))
        if settling_us > SETTLING_US:
            wall_us += settling_us  # Something went on when the calls had returned.
        trip_us = statistics.median(self._trips_us)
        return Block(
            calls,
            wall_us - trip_us,
            least_block_us("E", trip_us),
            timed.disturbed_us,
            timed.before_us,
            timed.spread,
            timed.computed_us,
        )

    def _cross_check(self, pair: Pair, calls: int, own_us: float) -> None:
        """Hold the candidate's device time against the wall clock, and again if it is found to be far below.

        What else goes on makes the judge's time longer, but not every time.

        Raises:
            Dishonest: it is far below each time.
        """
        self.asked = pair.number
        for _ in range(CROSS_CHECKS):
            judged_us = self._judged_us(pair, calls)
            if own_us >= CLOCK_SLACK * judged_us - CLOCK_SLACK_US / calls:
                return
        raise Dishonest(
            f"its own clock says {own_us:.2f} us a call, the judge's {judged_us:.2f} us "
            f"(difference between {1 + MORE_REPLAYS} replays and one, median of {SLOPES}, found {CROSS_CHECKS} times)"
        )

    def _judged_us(self, pair: Pair, calls: int) -> float:
        """Microseconds a call of the candidate's graph by the wall clock: (t(1 + n) - t(1)) / n replays.

        Both are on fresh values: what a call in place makes of its own results, over and over, may take another time.
        Writing them is part of both. The two take turns in being first.
        """
        slopes = []
        for number in range(SLOPES):
            order = (1, 1 + MORE_REPLAYS)[:: -1 if number % 2 else 1]
            taken_us = {replays: self._replayed_us(pair, calls, replays) for replays in order}
            slopes.append((taken_us[1 + MORE_REPLAYS] - taken_us[1]) / MORE_REPLAYS)
        return statistics.median(slopes) / calls

    def _replayed_us(self, pair: Pair, calls: int, replays: int) -> float:
        [round_number] = pair.new_rounds(1)
        request = TimeBlock(calls, "K", pair=pair.number, round=round_number, replays=replays, steady=True)
        return clocked(self._sides[1], request).wall_us


@contextlib.contextmanager
def _shared(running: Sequence[Series]) -> Iterator[None]:
    """Put what is done within it down to some calls alike."""
    start = time.monotonic()
    yield
    for series in running:
        series.spent_s += (time.monotonic() - start) / len(running)


def _possible_calls(pair: Pair, quantity: str, calls: int) -> int:
    """So many calls a block, or as many as there are sets of inputs for."""
    slots = pair.reference_prepared.slots
    calls = min(calls, slots)
    return min(calls, slots - pair.warm_up_calls(calls)) if quantity == "E" else calls


def _turns(order: random.Random) -> Iterator[list[int]]:
    """Whose turn it is, first and second: every second time the other way round, so that what drifts hits both."""
    while True:
        sides = order.sample((0, 1), 2)
        yield sides
        yield sides[::-1]


def _prepared(side: Side, request: PrepareTiming) -> TimingPrepared:
    reply = side.ask(request)
    assert isinstance(reply, TimingPrepared)
    return reply


def clocked(side: Side, request: TimeBlock) -> Clocked:
    """Send a request and wait for its reply, by the judge's clock."""
    start = time.monotonic()
    before = side.counts()
    before_us = (time.monotonic() - start) * 1e6
    reply = side.ask(request)
    after = side.counts()
    return Clocked(reply, side.wall_us, before.disturbed_us(after), before_us, before.computed_us(after), side.spread)


def empty_trip_us(side: Side) -> float:
    """An empty round trip to a process that has prepared a call, in microseconds: the median of several.

    As before a block, it has renewed its inputs and is awake. Trips that others disturb count only if all are.
    """
    trips = []
    for _ in range(EMPTY_TRIPS):
        side.ask(RenewInputs((Renewal(0, 0),)))
        trips.append(clocked(side, TimeBlock(0, "E")))
    undisturbed = [trip.wall_us for trip in trips if not trip.is_disturbed]
    return statistics.median(undisturbed or [trip.wall_us for trip in trips])
