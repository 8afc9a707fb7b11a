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
    """What is committed."""

    cases: int
    ops: int
    offences: tuple[str, ...]
    problems: dict[str, int]
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
    record = Record(
        cases=len(cases),
        ops=len({case.op for case in cases}),
        offences=tuple(f"{case.op} {case.case}: {case.offence}" for case in cases if case.offence is not None),
        problems=dict(Counter(case.problem for case in cases if case.problem is not None)),
        quantities=quantities,
    )
    text = msgspec.json.format(msgspec.json.encode(record), indent=1)
    write_atomically(options.out, text)
    print(text.decode())


if __name__ == "__main__":
    main()
