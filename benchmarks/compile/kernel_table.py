"""Write the table of shipped kernels that compiled graphs may call, from runs against Inductor.

    opsmith run --suite traces --backend opsmith --baseline compile --timing full --device cuda -o RUN
    python -m benchmarks.compile.kernel_table RUN... [-o src/opsmith/compile/measured.json] [--at-least 1.05]

A row is an overload in one dtype on one GPU of which all cases passed, every timed case is FASTER or SAME than the
baseline, and whose geometric mean is at least what is asked. Elementwise overloads have none: in graphs they fuse. Rows
of other GPUs in the table stay.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from pathlib import Path

import msgspec

from opsmith.compile import shipped
from opsmith.compile.shipped import Row, Table
from opsmith.core.run import RunDirectory, write_atomically
from opsmith.core.timing import Label, Timing
from opsmith.core.verdict import Status, Verdict

_BASELINES = {"compile", "max-autotune"}


def rows_of(directory: Path, at_least: float) -> list[Row]:
    """The rows that a run is good for.

    Raises:
        ValueError: the run has another baseline than torch's compiler.
    """
    run = RunDirectory.open(directory)
    manifest = run.manifest()
    if manifest.options.baseline not in _BASELINES:
        raise ValueError(f"{directory} was timed against {manifest.options.baseline}; give --baseline compile")
    cases: dict[tuple[str, str], list[Verdict]] = defaultdict(list)
    for verdict in run.verdicts():
        cases[verdict.op, verdict.dtype].append(verdict)
    found = []
    for (op, dtype), verdicts in sorted(cases.items()):
        timed = _timed(verdicts)
        speedup = math.exp(sum(math.log(one.speedup) for one in timed) / len(timed)) if timed else 0.0
        if speedup >= at_least and shipped.may_have_row(op):
            row = Row(
                op=op,
                dtype=dtype,
                hardware=manifest.environment.device_name,
                speedup=round(speedup, 3),
                inputs=len(timed),
                record=directory.name,
            )
            found.append(row)
    return found


def _timed(verdicts: list[Verdict]) -> list[Timing]:
    """The times on the device of an overload that is right and nowhere slower; empty for any other."""
    asked = [verdict for verdict in verdicts if not verdict.expects_error]
    timed = [timing for verdict in asked for timing in verdict.timings if timing.quantity == "K"]
    right = all(verdict.status is Status.PASSED for verdict in asked)
    return timed if right and all(one.label in {Label.FASTER, Label.SAME} for one in timed) else []


def main() -> int:
    """Read runs, write the table, print how many rows it has."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("-o", "--out", type=Path, default=Path(shipped.__file__).with_name("measured.json"))
    parser.add_argument("--at-least", type=float, default=1.05)
    options = parser.parse_args()
    rows = [row for run in options.runs for row in rows_of(run, options.at_least)]
    measured_on = {row.hardware for row in rows}
    kept = [row for row in shipped.measured() if row.hardware not in measured_on]
    table = Table(format=1, rows=(*kept, *rows))
    write_atomically(options.out, msgspec.json.format(msgspec.json.encode(table), indent=1) + b"\n")
    print(f"{len(rows)} rows of {', '.join(sorted(measured_on)) or 'no GPU'}, {len(kept)} kept: {options.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
