"""How many verdicts a second the process that keeps a run's books can take from its lanes.

    python -m benchmarks.capacity.books -o FILE

The fleet and the record are real; lanes are stand-ins in the same process that pass every case at once, and what they
take counts as well. Seconds are those of the processor.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path

from tests.unit.runner.fleet_stand_ins import StandInLane, job

from opsmith.core.environment import cpu_name
from opsmith.core.run import Options, RunDirectory, write_atomically
from opsmith.runner.fleet.fleet import Fleet

LANES = (4, 32, 128)


def main() -> int:
    """Measure, and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kernels", type=int, default=2000)
    parser.add_argument("--verdicts", type=int, default=37, help="of each kernel")
    parser.add_argument("-o", "--out", type=Path, required=True)
    asked = parser.parse_args()
    record = {
        "kernels": asked.kernels,
        "verdicts_a_kernel": asked.verdicts,
        "us_a_verdict": {str(lanes): round(us_a_verdict(lanes, asked.kernels, asked.verdicts), 1) for lanes in LANES},
        "cpu": cpu_name(),
        "cpu_count": os.cpu_count(),
        "python": platform.python_version(),
        "load_of_the_machine": os.getloadavg(),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
    }
    write_atomically(asked.out, (json.dumps(record, indent=2) + "\n").encode())
    sys.stdout.write(json.dumps(record["us_a_verdict"]) + "\n")
    return 0


def us_a_verdict(lanes: int, kernels: int, verdicts: int) -> float:
    """Microseconds of the processor for each verdict, from the lane to the line in the record."""
    jobs = [job(f"op{number}", verdicts) for number in range(kernels)]
    options = Options(suite="opinfo", backend="test", device="cuda", dtypes=("f32",))
    fleet = Fleet([StandInLane(number) for number in range(lanes)], options)
    with tempfile.TemporaryDirectory() as place, RunDirectory(Path(place)).appender("verdicts.jsonl") as append:
        started, count = time.process_time(), 0
        for verdict in fleet.judge(jobs):
            append(verdict)
            count += 1
        return (time.process_time() - started) / count * 1e6


if __name__ == "__main__":
    sys.exit(main())
