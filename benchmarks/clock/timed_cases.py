"""What the clock said of a run's cases, in few figures: eager against itself shows what it makes of equal sides.

python -m benchmarks.clock.timed_cases RUN -o timed.json
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from pathlib import Path

import msgspec

from opsmith.core.run import RunDirectory, write_atomically


class Quantity(msgspec.Struct, frozen=True, kw_only=True):
    """Labels, pairs of blocks and speedup of one quantity, over all cases that have it."""

    labels: dict[str, int]
    pairs: float
    median_speedup: float


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed.

    Attributes:
        cases: how many were timed.
        ops: of how many ops.
        offences: what was held against kernels.
        problems: why a quantity could not be timed, and how often.
        undecided: causes for which nothing can be said of a quantity, and how often.
        highest_percent_of_floor: of all times, the one nearest to what the device was measured to reach, or beyond it;
            None where nothing was held against that.
        values: how many cases had fresh values in every round, and how many did not.
        disturbed_share: the median share of a quantity's time that was discarded because others had the processor.
        quantities: K and E.
    """

    cases: int
    ops: int
    offences: tuple[str, ...]
    problems: dict[str, int]
    undecided: dict[str, int]
    highest_percent_of_floor: float | None
    values: dict[str, int]
    disturbed_share: float
    quantities: dict[str, Quantity]


def main() -> None:
    """Count, print, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    cases = list(RunDirectory(options.run).timed_cases())
    quantities = {}
    for quantity in "KE":
        timings = [timing for case in cases for timing in case.timings if timing.quantity == quantity]
        if timings:
            quantities[quantity] = Quantity(
                labels=dict(Counter(str(timing.label) for timing in timings)),
                pairs=round(statistics.mean(timing.blocks for timing in timings), 2),
                median_speedup=round(statistics.median(timing.speedup for timing in timings), 4),
            )
    all_timings = [timing for case in cases for timing in case.timings]
    shares = [timing.percent_of_floor for timing in all_timings if timing.percent_of_floor is not None]
    record = Record(
        cases=len(cases),
        ops=len({case.op for case in cases}),
        offences=tuple(f"{case.op} {case.case}: {case.offence}" for case in cases if case.offence is not None),
        problems=dict(Counter(case.problem for case in cases if case.problem is not None)),
        undecided=dict(Counter(f"{one.quantity}: {one.cause}" for case in cases for one in case.undecided)),
        highest_percent_of_floor=round(max(shares), 1) if shares else None,
        values=dict(Counter(str(case.values) for case in cases)),
        disturbed_share=round(statistics.median(timing.disturbed_share for timing in all_timings), 4),
        quantities=quantities,
    )
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    write_atomically(options.out, text)
    print(text.decode())


if __name__ == "__main__":
    main()
