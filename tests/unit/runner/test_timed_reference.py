"""How many sets of inputs a timed call may have, and what is made anew of them."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import msgspec
import pytest
import torch

from opsmith.core.fresh_values import Freshness, Redraw
from opsmith.runner.clock.clock_setup import ControlCall
from opsmith.runner.clock.stopwatch import MOST_SLOTS
from opsmith.runner.protocol.timing_messages import BLOCK_US_CPU, PrepareTiming, TimingPrepared
from opsmith.runner.referee import timed_reference
from opsmith.runner.referee.timed_reference import SPARE_CALLS_CPU, TimedReference
from opsmith.tasks.problem import record_call

ADD = ControlCall("add.Tensor", ((8,), (8,))).serialized()


@pytest.mark.parametrize(
    ("calls_us", "slots"),
    [
        ([330.0, 3.0, 4.0], MOST_SLOTS),
        ([3.0, 330.0, 330.0], MOST_SLOTS),
        ([480.0, 480.0, 480.0], SPARE_CALLS_CPU * BLOCK_US_CPU / 480.0),
        ([24_000.0, 3.0, 3.0], 2),
    ],
)
def test_one_call_that_was_held_up_takes_no_sets_away(
    calls_us: list[float], slots: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quickest of the first ones counts; one that takes long by itself is not made again."""
    ends_s = itertools.accumulate(itertools.chain.from_iterable((1.0, us / 1e6) for us in calls_us))
    times_s = itertools.chain(ends_s, itertools.count(100.0))
    monkeypatch.setattr(timed_reference, "time", SimpleNamespace(perf_counter=lambda: next(times_s)))
    prepared = TimedReference(PrepareTiming(ADD, MOST_SLOTS), torch.device("cpu")).prepared
    assert slots == prepared.slots


def prepared(op: str, *arguments: torch.Tensor | int) -> TimingPrepared:
    """What the referee says of a recorded call."""
    call = msgspec.msgpack.encode(record_call(op, [*arguments], {}))
    return TimedReference(PrepareTiming(call, 8), torch.device("cpu")).prepared


def test_what_an_op_refuses_stays_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eager wants lengths in descending order, which is known; else they stay, and the record says so."""
    numbers, lengths = torch.randn(5, 3, 2), torch.tensor([5, 5, 2])
    found = prepared("_pack_padded_sequence.default", numbers, lengths, False)
    assert [Redraw.BLENDED, Redraw.DRAWN] == [one.how for one in found.variations]
    assert found.values is Freshness.FRESH
    monkeypatch.setattr(timed_reference, "known_domains", lambda _record: {})
    found = prepared("_pack_padded_sequence.default", numbers, lengths, False)
    assert [Redraw.BLENDED, Redraw.FIXED] == [one.how for one in found.variations]
    assert found.values is Freshness.PARTLY


def test_indices_and_numbers_are_made_anew() -> None:
    """An index stays inside the table, which eager's own call shows."""
    found = prepared("index_select.default", torch.randn(5, 3), 0, torch.tensor([4, 0, 0, 3]))
    assert [Redraw.BLENDED, Redraw.CHOSEN] == [one.how for one in found.variations]
    assert found.values is Freshness.FRESH


def test_places_of_which_none_may_come_twice_are_drawn_together() -> None:
    """A scatter to one place twice would depend on the order, and so would the judgement."""
    source = torch.randn(6)
    found = prepared("index_copy.default", torch.randn(9), 0, torch.tensor([4, 0, 8, 3, 1, 2]), source)
    assert [Redraw.BLENDED, Redraw.DRAWN, Redraw.BLENDED] == [one.how for one in found.variations]


def test_a_call_without_elements_repeats_itself() -> None:
    """There is nothing to be made anew."""
    assert prepared("relu.default", torch.empty(0)).values is Freshness.FIXED
