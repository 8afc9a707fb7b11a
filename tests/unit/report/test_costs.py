"""What kernels cost beside their time, and when it is worth a line."""

from __future__ import annotations

import math

import pytest
from tests.report_runs import timed_case, verdict

from opsmith.core.run import TimedCase
from opsmith.report.costs import costs, first_calls_s, memory_excess

MIB = 1 << 20


def taking(peak_bytes: int | None, reference_peak_bytes: int | None, op: str = "relu.default") -> TimedCase:
    """A case with these peaks."""
    return timed_case(verdict(op), peak_bytes=peak_bytes, reference_peak_bytes=reference_peak_bytes)


def test_short_first_calls_are_not_worth_a_line() -> None:
    """Every first call takes some milliseconds; compiling takes seconds."""
    assert first_calls_s([timed_case(verdict(), first_call_s=0.3)] * 3) is None
    assert pytest.approx(1.2) == first_calls_s([timed_case(verdict(), first_call_s=0.3)] * 4)


def test_first_calls_that_nobody_measured_are_no_seconds() -> None:
    """One that is not known does not hide the others."""
    assert 5.0 == first_calls_s([timed_case(verdict()), timed_case(verdict(), first_call_s=5.0)])


def test_worst_memory_is_the_largest_ratio() -> None:
    """Of the cases above 1.5x; the denominator holds those where both sides are known."""
    excess = memory_excess(
        [
            taking(40 * MIB, 20 * MIB),
            taking(30 * MIB, 10 * MIB, "mm.default"),
            taking(15 * MIB, 10 * MIB),
            taking(None, 10 * MIB),
        ]
    )
    assert excess is not None
    assert (2, 3, "mm.default", 3.0, 30 * MIB) == (
        excess.cases,
        excess.measured,
        excess.op,
        excess.ratio,
        excess.peak_bytes,
    )


def test_rounded_up_kilobytes_are_no_excess() -> None:
    """Allocators hand out blocks: 1,024 bytes instead of 512 says nothing about a kernel."""
    assert memory_excess([taking(1024, 512)]) is None


def test_memory_where_the_reference_takes_none_is_an_excess() -> None:
    """An in-place op needs none; a kernel that allocates there is told of, without a division by zero."""
    excess = memory_excess([taking(8 * MIB, 0)])
    assert excess is not None
    assert math.inf == excess.ratio
    [(name, line)] = costs([taking(8 * MIB, 0)])
    assert ("memory", True) == (name, line.endswith("worst relu.default, where the reference takes none, 8 MiB"))


def test_cheap_kernels_have_no_costs() -> None:
    """Nothing is said where there is nothing to say."""
    assert [] == list(costs([taking(10 * MIB, 10 * MIB)]))
