"""How many processes a lane has, for what it is opened for."""

from __future__ import annotations

import pytest

from opsmith.core.run import Options
from opsmith.runner.device_lane import MAX_WORKERS_AHEAD, workers_ahead
from opsmith.runner.lane import LaneWork


@pytest.mark.parametrize(
    ("isolation", "kernels", "limit", "expected"),
    [
        ("kernel", None, 150, MAX_WORKERS_AHEAD),
        ("kernel", None, 70, 5),
        ("kernel", 28, 150, 2),
        ("kernel", 0, 150, 1),
        ("kernel", None, 14, 1),
        ("backend", None, 150, 1),
        ("backend", 500, 150, 1),
    ],
)
def test_a_slot_has_workers_ready_for_what_it_is_asked(
    isolation: str, kernels: int | None, limit: int, expected: int
) -> None:
    """One whose worker goes on to the next kernel needs no others; they would hold half of a device's memory."""
    options = Options(suite="opinfo", backend="opsmith", device="cuda", dtypes=("f32",), isolation=isolation)
    assert expected == workers_ahead(LaneWork(options=options, seed=1, kernels=kernels), 14, limit)
