"""What it costs to watch a kernel: in its worker, for each call, and in the judge, for its source.

::

    python -m benchmarks.judging.supervision -o supervision.json
    python -m benchmarks.judging.supervision --device cuda -o supervision-cuda.json

A worker poisons the dispatcher when a kernel is loaded, and pauses that whenever it makes inputs or compares results
itself; ``of everything`` takes all of the poison out and puts it back, as a breach does. The judge reads the files of
the shipped backend for the first of its ops, and looks things up in what it has read for the others.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import torch

import opsmith.kernels
import opsmith.runner.worker.server  # What a worker has imported is what it looks after.
from opsmith.aten.schemas import aten_schemas
from opsmith.evaluation.integrity.static import examine
from opsmith.evaluation.integrity.supervision import Supervision, premises
from opsmith.runner.child.versions import versions
from opsmith.runner.machine.environment import describe_environment

POLICY = "native"
#: Two ops that are looked at one after another, by the names of their entries.
ENTRIES = {"mul.Tensor": "mul", "add.Tensor": "add"}


def milliseconds(work: Callable[[], Any]) -> float:
    """Of doing it once."""
    start = time.perf_counter()
    work()
    return (time.perf_counter() - start) * 1e3


def computed(x: torch.Tensor) -> None:
    """Something like what a worker computes for itself."""
    other = (x * 2 + 1).clone()
    torch.equal(x, other)
    float(other.sum())


def in_the_worker(device: torch.device, repeats: int) -> dict[str, float]:
    """Milliseconds of loading and of pauses, the median of so many; the same work without supervision is taken off."""
    premises()
    supervision = Supervision(device, lambda _line, _breach: None)
    x = torch.ones(64, device=device)
    computed(x)
    schema = aten_schemas()["mul.Tensor"]

    def paused() -> None:
        with supervision.paused():
            computed(x)

    def all_out_and_in() -> None:
        supervision.end()
        supervision.arm()

    begin_ms = milliseconds(lambda: supervision.begin(schema, POLICY))
    first_ms = milliseconds(paused)
    pause_ms = statistics.median(milliseconds(paused) for _ in range(repeats))
    everything_ms = statistics.median(milliseconds(all_out_and_in) for _ in range(repeats))
    supervision.end()
    own_ms = statistics.median(milliseconds(lambda: computed(x)) for _ in range(repeats))
    return {
        "loading": begin_ms,
        "first pause": first_ms - own_ms,
        "pause": pause_ms - own_ms,
        "of everything": everything_ms,
    }


def in_the_judge() -> dict[str, float]:
    """Milliseconds of examining the shipped backend for one op, and then for another."""
    folder = Path(opsmith.kernels.__file__).parent
    files = {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*.py")}
    first, then = (
        milliseconds(partial(examine, files, policy=POLICY, task=op, dsl="triton", entry=entry))
        for op, entry in ENTRIES.items()
    )
    return {"first op": first, "next op": then}


def main() -> int:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    device = torch.device(arguments.device)
    name = torch.cuda.get_device_name() if device.type == "cuda" else "cpu"
    environment = describe_environment(versions(), device=arguments.device, device_name=name)
    found = {"in the worker, ms": in_the_worker(device, arguments.repeats), "in the judge, ms": in_the_judge()}
    rounded = {what: {step: round(ms, 3) for step, ms in steps.items()} for what, steps in found.items()}
    record = {
        "asked": {"device": arguments.device, "repeats": arguments.repeats},
        "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "environment": msgspec.to_builtins(environment),
        **rounded,
    }
    arguments.out.write_text(json.dumps(record, indent=2) + "\n")
    print(json.dumps(rounded, indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
