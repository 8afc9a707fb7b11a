"""The judge's clock: paired blocks of reference and candidate, their turns in random order, one at a time.

Each side prepares its own copies of the inputs; while one runs a block the other is idle. E is the
judge's wall clock around a block, less an empty round trip to that process, so nothing that a
candidate patches in its own process changes it. K comes from the processes' own device events; the
judge holds it against its own clock by the difference between many replays and one.
"""

from __future__ import annotations

import math
import os
import random
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from opsmith.core.timing import Label, Timing
from opsmith.evaluation.pairing import Estimate, Precision, estimate, timing_of
from opsmith.runner.protocol import BlockTimed, PrepareTiming, RenewInputs, TimeBlock, TimingPrepared

#: Microseconds that a block should take: of K several hundred ticks of an event, of E far more than
#: the jitter of a round trip between processes, which is larger on a CPU that others use as well.
BLOCK_US = {"K": 250.0, "E": 1_000.0}
BLOCK_US_CPU = 1_500.0
#: Blocks of one side before the other one's turn. A device takes time to change from one process to another; a host
#: is faster or slower for milliseconds, and blocks that follow each other would be so together.
BLOCKS_A_TURN = {"K": 4, "E": 1}
#: Calls that are tried at first to find out how many make a block.
TRIED_CALLS = 8
#: How many times more pairs there are at each look at the interval than at the one before.
LOOKS_APART = 1.25
#: Between two questions whether the device's clock is held back.
LOOK_INTERVAL_S = 0.02
#: Empty round trips, whose median is taken off every block.
EMPTY_TRIPS = 9
#: No block is shorter.
SHORTEST_US = 0.1
#: Sets of inputs that are asked for, so calls of a block at most.
MOST_SLOTS = 1_024
#: A replayed graph is held against the wall clock by so many replays more than one, so many times.
MORE_REPLAYS = 8
CROSS_CHECKS = 5
#: A worker's own clock may lie this much below the judge's; it is read beside other work.
CLOCK_SLACK = 0.85
CLOCK_SLACK_US = 10.0
#: A pool of threads may look for work for so long before it sleeps, microseconds.
SETTLING_US = 5_000.0


class NotMeasured(Exception):
    """A quantity cannot be measured of this call."""


class Dishonest(Exception):
    """The clock has shown that a kernel does not do what it is timed for."""


class Side(Protocol):
    """One of the two processes of a pair."""

    def ask(self, request: msgspec.Struct) -> TimingPrepared | BlockTimed:
        """Send a request and wait for its reply."""
        ...

    def settle(self) -> float:
        """Wait until nothing runs in the process any more; microseconds that it took."""
        ...

    def queued_us(self) -> float:
        """Microseconds that the process's first thread has waited for a processor so far."""
        ...

    def pin(self, core: int) -> None:
        """Let all threads of the process run on one core only."""
        ...


def never_held_back() -> str | None:
    """For a device whose clock nobody can watch."""
    return None


class ClockSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What holds for all pairs of a run.

    Attributes:
        precisions: by quantity, how long a pair is timed.
        quantities: what is measured; ``KE``, and ``E`` on a CPU.
        cores: each pair gets one of them, and the judge the others.
        noise: by quantity, what two equal sides differ by at most, as a share.
        node_us: what an empty node of a CUDA graph costs; None off CUDA.
        held_back: why the device's clock is held back just now, or None.
        warm: leave inputs in the device's cache.
        baseline: what the reference runs.
    """

    precisions: dict[str, Precision]
    quantities: str
    cores: tuple[int, ...]
    noise: dict[str, float] = {}
    node_us: float | None = None
    held_back: Callable[[], str | None] = never_held_back
    warm: bool = False
    baseline: str = "eager"


class PairedClock:
    """Times one case on both sides.

    Attributes:
        reference_prepared: what the reference said when its inputs were there.
        candidate_prepared: the same of the candidate.
        settings: of the run.

    Args:
        reference: the referee.
        candidate: the worker.
        call: the serialized call.
        settings: of the run.
        seed: of the order of the blocks and of what is verified.
        verify: judges the result of one set of inputs (its number, and the round of its values) of the
            candidate's last block; raises :class:`Dishonest` if it is not the answer.
    """

    def __init__(
        self,
        reference: Side,
        candidate: Side,
        call: bytes,
        *,
        settings: ClockSettings,
        seed: int,
        verify: Callable[[int, int], None],
    ) -> None:
        self._order = random.Random(seed)  # noqa: S311 - an order, and what is looked at, of a secret seed
        self._sides = (reference, candidate)
        self.settings = settings
        self._verify = verify
        self._round = 0
        self._next_look = 0
        self._next_question = 0.0
        self._is_held_back = False
        self._turns = _turns(self._order)
        self._nodes: list[float | None] = [None, None]
        warm, baseline = settings.warm, settings.baseline
        self.reference_prepared = _prepared(
            reference, PrepareTiming(call, MOST_SLOTS, varied=True, warm=warm, baseline=baseline)
        )
        self._slots = self.reference_prepared.slots
        self.candidate_prepared = _prepared(
            candidate, PrepareTiming(call, self._slots, self.reference_prepared.varied, warm=warm)
        )
        # One core of a shared machine may be half as fast as the next, for as long as somebody else uses it.
        core = self._order.choice(settings.cores)
        for side in self._sides:
            side.pin(core)
        os.sched_setaffinity(0, {*settings.cores} - {core} or {core})
        # Both are processes of the same kind: a longer trip to one of them is somebody else's doing.
        self._trip_us = min(empty_trip_us(side) for side in self._sides)

    def time(self, quantity: str, *, cross_check: bool = False) -> Timing:
        """Measure one quantity.

        Args:
            quantity: ``K`` or ``E``.
            cross_check: hold K against the judge's clock in any case; a FASTER one always is.

        Raises:
            NotMeasured: K cannot be told from E.
            Dishonest: a result that was chosen when its block was over is wrong, or the candidate's
                own clock does not agree with the judge's.
        """
        precision = self.settings.precisions[quantity]
        calls = self._calibrate(quantity)
        measured: tuple[list[float], list[float]] = ([], [])
        deadline = time.monotonic() + precision.budget_s
        looked_at = self._order.randrange(precision.least_pairs)  # One that nobody can know.
        self._next_look = precision.least_pairs
        discarded = 0
        found: Estimate | None = None
        while found is None:
            begun = len(measured[0])
            times = self._turns_us(calls, quantity, precision.most_pairs - begun, verified=looked_at - begun)
            if self._was_held_back() and discarded < precision.least_pairs:
                discarded += len(times[0])  # A device that never runs freely is timed as it is.
                continue
            for side, time_us in zip(measured, times, strict=True):
                side.extend(time_us)
            found = self._final_estimate(measured, precision, deadline)
        self._verify(self._order.randrange(calls), self._round)  # The last, by when it has seen all that it will see.
        timing = timing_of(
            *measured,
            found,
            precision=precision,
            noise=self.settings.noise.get(quantity, 0.0),
            calls_per_block=calls,
            quantity=quantity,
            discarded=discarded,
        )
        return self._of_graph(timing, calls, cross_check=cross_check) if quantity == "K" else timing

    def _was_held_back(self) -> bool:
        """Whether the device's clock was held back when this was asked last.

        Asking takes about as long as a block, so it is not done after every pair.
        """
        if time.monotonic() >= self._next_question:
            self._next_question = time.monotonic() + LOOK_INTERVAL_S
            self._is_held_back = self.settings.held_back() is not None
        return self._is_held_back

    def _final_estimate(
        self, measured: tuple[list[float], list[float]], precision: Precision, deadline: float
    ) -> Estimate | None:
        """The estimate if no more pairs are needed."""
        pairs = len(measured[0])
        if pairs < self._next_look:
            return None
        self._next_look = min(math.ceil(pairs * LOOKS_APART), precision.most_pairs)
        found = estimate(*measured)
        narrow = found.half_width <= math.log1p(precision.half_width)
        return found if narrow or pairs >= precision.most_pairs or time.monotonic() > deadline else None

    def _of_graph(self, timing: Timing, calls: int, *, cross_check: bool) -> Timing:
        """K with what is known of its graphs."""
        reference_nodes, candidate_nodes = self._nodes
        # Calls that are queued one by one keep the host busy, too: its clock says nothing about them.
        if candidate_nodes is not None and (cross_check or timing.label is Label.FASTER):
            self._cross_check(calls, timing.candidate_us)
        return msgspec.structs.replace(
            timing,
            node_us=self.settings.node_us,
            reference_nodes=reference_nodes,
            candidate_nodes=candidate_nodes,
        )

    def verify_again(self, times: int) -> None:
        """Look at results of so many further blocks of K, on values that no call has met.

        Raises:
            Dishonest: one of them is wrong.
        """
        calls = min(TRIED_CALLS, self._slots)
        for _ in range(times):
            self._round += 1
            self._block_us(1, calls, "K", self._round)
            self._verify(self._order.randrange(calls), self._round)

    def _calibrate(self, quantity: str) -> int:
        """Calls a block, from the faster side: its blocks must be long enough too. Also warms up."""
        calls = min(TRIED_CALLS, self._slots)
        block_us = BLOCK_US[quantity] if "K" in self.settings.quantities else BLOCK_US_CPU
        self._round += 1
        times = [self._block_us(number, calls, quantity, self._round, captured=False) for number in range(2)]
        return max(1, min(math.ceil(block_us / min(times)), self._slots))

    def _turns_us(self, calls: int, quantity: str, most: int, *, verified: int) -> tuple[list[float], list[float]]:
        """Microseconds a call of some blocks of each side, on values that no call of theirs has met.

        Args:
            calls: of a block.
            quantity: what is measured.
            most: blocks of each side.
            verified: the candidate's block of which a result is looked at, if it is one of these.
        """
        blocks = min(BLOCKS_A_TURN[quantity], most)
        rounds = range(self._round + 1, self._round + 1 + blocks)
        self._round += blocks
        times: tuple[list[float], list[float]] = ([], [])
        for number in next(self._turns):
            for block, round_number in enumerate(rounds):
                times[number].append(self._block_us(number, calls, quantity, round_number))
                if (number, block) == (1, verified):
                    self._verify(self._order.randrange(calls), round_number)
        return times

    def _block_us(self, number: int, calls: int, quantity: str, round_number: int, *, captured: bool = True) -> float:
        """Microseconds a call of one block on a round's values."""
        side = self._sides[number]
        if quantity == "K":
            reply = side.ask(TimeBlock(calls, "K", round=round_number, captured=captured))
            assert isinstance(reply, BlockTimed)
            if reply.own_us is None:
                raise NotMeasured("K: a call waits for the device, so that its time cannot be told from the host's")
            if number == 0 and reply.nodes == 0:
                raise NotMeasured("K: the reference launches nothing")
            self._nodes[number] = reply.nodes
            return max(reply.own_us, 1e-3)
        side.ask(RenewInputs(round_number, calls))
        _, wall_us = _clocked(side, TimeBlock(calls, "E"))
        settling_us = side.settle()
        if settling_us > SETTLING_US:
            wall_us += settling_us  # Something went on when the calls had returned.
        return max(wall_us - self._trip_us, SHORTEST_US) / calls

    def _cross_check(self, calls: int, own_us: float) -> None:
        """Hold the candidate's device time against the wall clock: (t(1 + n) - t(1)) / n replays.

        Raises:
            Dishonest: its own time is far below.
        """
        slopes = []
        for _ in range(CROSS_CHECKS):
            once, often = (
                _clocked(self._sides[1], TimeBlock(calls, "K", replays=replays))[1] for replays in (1, 1 + MORE_REPLAYS)
            )
            slopes.append((often - once) / MORE_REPLAYS)
        judged_us = statistics.median(slopes) / calls
        if own_us < CLOCK_SLACK * judged_us - CLOCK_SLACK_US / calls:
            raise Dishonest(
                f"its own clock says {own_us:.2f} us a call, the judge's {judged_us:.2f} us "
                f"(difference between {1 + MORE_REPLAYS} replays and one, median of {CROSS_CHECKS})"
            )


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


def _clocked(side: Side, request: TimeBlock) -> tuple[Any, float]:
    """A reply and its wall time in microseconds.

    Waiting for a processor is left out: it is what other work on the machine costs, not the call.
    """
    queued_us = side.queued_us()
    start = time.perf_counter()
    reply = side.ask(request)
    wall_us = (time.perf_counter() - start) * 1e6
    return reply, wall_us - (side.queued_us() - queued_us)


def empty_trip_us(side: Side) -> float:
    """An empty round trip to a process, in microseconds: the median of several."""
    return statistics.median([_clocked(side, TimeBlock(0, "E"))[1] for _ in range(EMPTY_TRIPS)])
