"""Timed pairs of a whole model; both sides are stand-ins on a machine whose time only they pass."""

from __future__ import annotations

import random
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from opsmith.core.timing import Cause, Label, Timing
from opsmith.evaluation.timing.statistics import least_block_us, precisions_of
from opsmith.runner.clock.timed_pairs import TooShort
from opsmith.whole_models import judging
from opsmith.whole_models.judging import MOST_CALLS, _TimedPair
from opsmith.whole_models.messages import BlockRun, Done, RenewInputs, RunBlock
from opsmith.whole_models.processes import Process


class Machine:
    """Time that passes only when a side works."""

    def __init__(self) -> None:
        self.now_us = 0.0
        self.jitter = random.Random(5)


class StandInProcess:
    """A side whose calls take so long, and one alone in its block another time."""

    def __init__(self, machine: Machine, call_us: float, trip_us: float, trip_noise: float, first_us: float) -> None:
        self._machine = machine
        self._call_us, self._first_us = call_us, first_us
        self._trip_us = trip_us
        self._trip_noise = trip_noise
        self.renewals: list[RenewInputs] = []

    def ask(self, request: RunBlock | RenewInputs, _reply_type: Any, *, timeout_s: float) -> BlockRun | Done:
        assert timeout_s > 0
        if isinstance(request, RenewInputs):
            self.renewals.append(request)
            self._machine.now_us += 700.0  # Beside the clock.
            return Done()
        call_us = self._first_us if request.calls == 1 else self._call_us
        call_us *= self._machine.jitter.lognormvariate(0.0, 0.002)
        noise = self._trip_noise * self._machine.jitter.uniform(-1, 1)
        self._machine.now_us += self._trip_us * (1 + noise) + request.calls * call_us
        return BlockRun(request.calls * call_us if request.quantity == "K" else None)


def timed(
    quantity: str, *call_us: float, trip_us: float = 60.0, trip_noise: float = 0.0, first_us: float | None = None
) -> Timing | TooShort | None:
    """Eager and a column; a call alone in its block takes another time where it is given."""
    machine = Machine()
    sides = [StandInProcess(machine, us, trip_us, trip_noise, first_us or us) for us in call_us]
    return timed_sides(quantity, machine, sides)


def timed_sides(quantity: str, machine: Machine, sides: Sequence[StandInProcess]) -> Timing | TooShort | None:
    """What the judge says of two sides."""
    clock = SimpleNamespace(monotonic=lambda: machine.now_us / 1e6, perf_counter=lambda: machine.now_us / 1e6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(judging, "time", clock)
        reference, candidate = (cast("Process", side) for side in sides)
        pair = _TimedPair(reference, candidate, random.Random(3), 60.0)
        return pair.time(quantity, precisions_of("quick", "KE", whole_models=True)[quantity], 0.0)


@pytest.mark.parametrize("quantity", ["K", "E"])
def test_equal_models_are_the_same(quantity: str) -> None:
    """And what a call takes is found."""
    timing = timed(quantity, 2_000.0, 2_000.0)
    assert isinstance(timing, Timing)
    assert Label.SAME is timing.label
    assert timing.candidate_us == pytest.approx(2_000.0, rel=0.01)
    assert timing.calls_per_block in {10, 11}
    assert 0 == timing.too_short


@settings(max_examples=80, deadline=None)
@given(
    quantity=st.sampled_from(["K", "E"]),
    call_us=st.tuples(st.floats(0.0, 3.0), st.floats(0.0, 3.0)),
    trip_us=st.floats(1.0, 400.0),
    trip_noise=st.floats(0.0, 1.0),
)
def test_no_block_that_is_too_short_says_anything(
    quantity: str, call_us: tuple[float, float], trip_us: float, trip_noise: float
) -> None:
    """With as many calls as a block may have."""
    found = timed(quantity, *call_us, trip_us=trip_us, trip_noise=trip_noise)
    longest_us = MOST_CALLS * min(call_us)
    least_us = least_block_us(quantity, trip_us if quantity == "E" else 0.0)
    if isinstance(found, Timing):
        assert longest_us >= least_us * (1 - trip_noise) - trip_us * trip_noise
        assert found.calls_per_block * min(found.reference_us, found.candidate_us) >= 0.9 * least_us * (1 - trip_noise)
    else:
        assert isinstance(found, TooShort)
        assert longest_us <= (1 + trip_noise) * (1.1 * least_us + trip_us)
        assert Cause.TOO_SHORT is found.undecided.cause


def test_blocks_that_are_too_short_get_more_calls() -> None:
    """The call that was tried took long, as the first one of a busy machine may."""
    timing = timed("E", 5.0, 5.0, first_us=10_000.0)
    assert isinstance(timing, Timing)
    assert MOST_CALLS == timing.calls_per_block
    assert timing.candidate_us == pytest.approx(5.0, rel=0.05)


@pytest.mark.parametrize("quantity", ["K", "E"])
def test_each_pair_of_blocks_is_on_values_that_no_call_has_met(quantity: str) -> None:
    """Both sides get the same, as many sets as the block has calls, and nobody could know them before."""
    machine = Machine()
    sides = [StandInProcess(machine, 2_000.0, 60.0, 0.0, 2_000.0) for _ in range(2)]
    timing = timed_sides(quantity, machine, sides)
    assert isinstance(timing, Timing)
    reference, candidate = ([renewal for renewal in side.renewals if renewal.calls > 1] for side in sides)
    assert reference == candidate
    assert len(reference) == len({renewal.key for renewal in reference}) == timing.blocks
    assert {timing.calls_per_block} == {renewal.calls for renewal in reference}


@pytest.mark.parametrize("number", [0, 1])
def test_a_side_that_takes_nothing_is_no_measurement(number: int) -> None:
    """Whichever it is, the other one has no time either."""
    times = [2_000.0, 2_000.0]
    times[number] = 0.0
    found = timed("E", *times)
    assert isinstance(found, TooShort)
    assert (number,) == found.short
