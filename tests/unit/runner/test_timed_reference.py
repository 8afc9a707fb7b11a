"""How many sets of inputs a timed call may have."""

from __future__ import annotations

import itertools
from types import SimpleNamespace

import pytest
import torch

from opsmith.runner.clock.clock_setup import ControlCall
from opsmith.runner.clock.stopwatch import MOST_SLOTS
from opsmith.runner.protocol.timing_messages import BLOCK_US_CPU, PrepareTiming
from opsmith.runner.referee import timed_reference
from opsmith.runner.referee.timed_reference import SPARE_CALLS_CPU, TimedReference

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
