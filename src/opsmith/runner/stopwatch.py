"""The judge's clock: paired blocks of reference and candidate, in random order, one at a time.

Each side prepares its own copies of the inputs; while one runs a block the other is idle. E is the
judge's wall clock around a block, less an empty round trip to that process, so nothing that a
candidate patches in its own process changes it. K comes from the processes' own device events.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterator

from opsmith.core.verdict import Timing
from opsmith.evaluation.pairing import block_calls, paired_timing
from opsmith.runner.protocol import BlockTimed, TimeBlock

#: Paired blocks that an estimate rests on in quick mode.
QUICK_BLOCKS = 15
#: Empty round trips whose median is taken off every block.
EMPTY_TRIPS = 9

#: Sends a request to one side and returns its reply.
Side = Callable[[TimeBlock], BlockTimed]


def time_pair(reference: Side, candidate: Side, call: bytes, *, on_device: bool, seed: int) -> tuple[Timing, ...]:
    """Time one case on both sides.

    Args:
        reference: asks the referee.
        candidate: asks the worker.
        call: the serialized call.
        on_device: measure K as well.
        seed: of the order of the blocks and of the bootstrap.

    Returns:
        E, and K where both sides could be captured.
    """
    order = random.Random(seed)  # noqa: S311 - an order, not a secret
    sides = (reference, candidate)
    for side in sides:
        side(TimeBlock(1, call=call))
    trips_us = [_empty_trip_us(side) for side in sides]
    quantities = "EK" if on_device else "E"
    return tuple(t for quantity in quantities for t in _time_quantity(sides, trips_us, quantity, order, seed))


def _time_quantity(
    sides: tuple[Side, Side], trips_us: list[float], quantity: str, order: random.Random, seed: int
) -> Iterator[Timing]:
    calls = _calibrate(sides, trips_us, quantity)
    measured: tuple[list[float], list[float]] = ([], [])
    for _ in range(QUICK_BLOCKS):
        for number in order.sample((0, 1), 2):
            us = _block_us(sides[number], trips_us[number], calls, quantity)
            if us is None:
                return
            measured[number].append(us)
    yield paired_timing(*measured, calls_per_block=calls, quantity=quantity, seed=seed)


def _calibrate(sides: tuple[Side, Side], trips_us: list[float], quantity: str) -> int:
    """Calls a block, from the faster side: its blocks must be long enough too. Also warms up."""
    times = []
    for side, trip_us in zip(sides, trips_us, strict=True):
        for calls in (1, 10):
            us = _block_us(side, trip_us, calls, quantity)
        times.append(us or 1.0)
    return block_calls(min(times))


def _block_us(side: Side, trip_us: float, calls: int, quantity: str) -> float | None:
    side(TimeBlock(0))
    start = time.perf_counter()
    reply = side(TimeBlock(calls, quantity))
    wall_us = (time.perf_counter() - start) * 1e6
    return reply.device_us if quantity == "K" else max(wall_us - trip_us, 0.01) / calls


def _empty_trip_us(side: Side) -> float:
    trips = []
    for _ in range(EMPTY_TRIPS):
        start = time.perf_counter()
        side(TimeBlock(0))
        trips.append((time.perf_counter() - start) * 1e6)
    return statistics.median(trips)
