"""What the benchmark of device contexts counts."""

from __future__ import annotations

import time

import pytest
from benchmarks.executors.contexts import Maker, lives_of, measured


@pytest.mark.slow
def test_lives_are_counted_over_all_makers() -> None:
    """As many as fit into the time, and none that was not finished."""
    row = measured([Maker("cpu", "1", None)], 2, 1.0)
    assert 0 == row["makers that failed"]
    assert row["lives"] >= 2
    assert row["lives_per_s"] == pytest.approx(row["lives"] / 1.0, rel=0.5)
    assert {"driver_ms", "context_ms", "end_ms"} == row["median_ms"].keys()


def test_a_process_that_makes_no_context_is_no_life() -> None:
    """A device that is not there ends the maker."""
    with pytest.raises(RuntimeError, match="could not be made"):
        next(lives_of(Maker("nowhere", "1", None), time.monotonic() + 10))
