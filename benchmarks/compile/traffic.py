"""Whether launches and bytes drop as `opsmith explain` says: its figures beside those of the hardware's counters.

    python -m benchmarks.compile.traffic OUT.json [--ops 'L2/14*,L3/26*'] [--minutes 6] [--ncu ncu] [--jobs 5]

For each model, two processes make one call of each of eager, inductor and opsmith, after others that compile and tune:
one counts as `opsmith explain` does, one runs under Nsight Compute, which needs hardware counters, and sees a mark
before each call. Launches are kernels; bytes are those between the multiprocessors and the L2 cache, which all that a
kernel reads and writes passes, and those of the memory behind it. Explain counts a tensor that a kernel reads or writes
once, however often a library reads it. The table comes last: of each, opsmith's share of eager's and of Inductor's.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.compile.jobs import selected
from benchmarks.compile.subjects import load, timed
from benchmarks.models.records import command_of, environment_of, write

from opsmith.compile import explain
from opsmith.compile.work import CompiledBytes, Work, eager_work, profiled_launches
from opsmith.core.environment import Environment
from opsmith.core.problems import SHIPPED_PROBLEMS

#: Problems in which passes change what is computed, and some in which Inductor fuses all there is.
MODELS = "L1/11_*,L1/64_*,L2/5_*,L2/10_*,L2/14_*,L2/15_*,L2/37_*,L2/53_*,L3/14_*,L3/26_*"
COLUMNS = ("eager", "inductor", "opsmith")
#: In the name of the kernel that waits.
MARK = "spin_kernel"
L2_BYTES, MEMORY_BYTES = "lts__t_bytes.sum", "dram__bytes.sum"


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """One call of a model in one column.

    Attributes:
        said_launches: as explain counts.
        said_bytes: likewise.
        launches: kernels that the hardware's profiler saw; None where it did not run.
        l2_bytes: between the multiprocessors and the L2 cache.
        memory_bytes: between that and memory.
    """

    said_launches: int
    said_bytes: int
    launches: int | None = None
    l2_bytes: int | None = None
    memory_bytes: int | None = None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is written: model -> column -> its call."""

    command: tuple[str, ...]
    environment: Environment
    models: dict[str, dict[str, Call]]


def main() -> int:
    """Measure, write the record after each model, print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--ops", default=MODELS)
    parser.add_argument("--minutes", type=float, default=6, help="no model is begun later")
    parser.add_argument("--ncu", default="ncu", help="Nsight Compute's command")
    parser.add_argument("--jobs", type=int, default=5, help="models that are counted without it at a time")
    parser.add_argument("--sizes", default="full", choices=("small", "full"))
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "WHAT"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        model, what = options.one
        small = options.sizes == "small"
        print(json.dumps({one: called(model, one, small=small) for one in COLUMNS} if what == "count" else ""))
        if what == "call":
            for column in COLUMNS:
                call_for_profiler(model, column, small=small)
        return 0
    until = time.monotonic() + options.minutes * 60
    found: dict[str, dict[str, Call]] = {}
    with ThreadPoolExecutor(options.jobs) as pool:
        models = selected(options.ops, SHIPPED_PROBLEMS)
        all_said = [pool.submit(_output, _command(model, "count", options)) for model in models]
        for model, said in zip(models, all_said, strict=True):
            if time.monotonic() > until:
                pool.shutdown(wait=False, cancel_futures=True)
                break
            try:
                found[model] = measured(model, json.loads(said.result().splitlines()[-1]), options)
            except subprocess.CalledProcessError as exc:
                print(f"{model}: not counted: {exc}", flush=True)
                continue
            record = Record(
                command=command_of("benchmarks.compile.traffic"), environment=environment_of("cuda"), models=found
            )
            write(options.out, record)
    print(table(found))
    return 0


def measured(model: str, said: dict[str, dict[str, int]], options: argparse.Namespace) -> dict[str, Call]:
    """A model's calls: what was said of them, and what the hardware's profiler sees."""
    profiler = [options.ncu, "--profile-from-start", "off", "--clock-control", "none", "--csv", "--page", "raw"]
    profiler += ["--metrics", f"{L2_BYTES},{MEMORY_BYTES}", "--target-processes", "all"]
    try:
        seen = read_counters(_output([*profiler, *_command(model, "call", options)]))
    except (OSError, subprocess.CalledProcessError) as exc:
        print(f"{model}: no counters: {exc}", flush=True)
        seen = []
    calls = {}
    for place, column in enumerate(COLUMNS):
        launches, sums = seen[place] if len(seen) == len(COLUMNS) else (None, {})
        calls[column] = Call(
            said_launches=said[column]["launches"],
            said_bytes=said[column]["bytes"],
            launches=launches,
            l2_bytes=sums.get(L2_BYTES),
            memory_bytes=sums.get(MEMORY_BYTES),
        )
    return calls


def _command(model: str, what: str, options: argparse.Namespace) -> list[str]:
    command = [sys.executable, "-m", "benchmarks.compile.traffic", str(options.out), "--sizes", options.sizes]
    return [*command, "--one", model, what]


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout  # noqa: S603 - Our own.


UNITS = {"byte": 1, "Kbyte": 10**3, "Mbyte": 10**6, "Gbyte": 10**9}


def read_counters(text: str) -> list[tuple[int, dict[str, int]]]:
    """Of each call kernels and the sum of each metric in bytes, from Nsight Compute's raw page as CSV.

    The page begins with a line of names; one of units follows, then a line for each kernel. A call begins behind the
    kernel that is its mark. What the program itself printed stands before.
    """
    lines = text.splitlines()
    begin = next((number for number, line in enumerate(lines) if line.startswith('"ID"')), None)
    if begin is None:
        return []
    units, *kernels = csv.DictReader(io.StringIO("\n".join(lines[begin:])))
    calls: list[list[dict[str, str]]] = []
    for kernel in kernels:
        if MARK in kernel["Kernel Name"]:
            calls.append([])
        else:
            calls[-1].append(kernel)
    metrics = [metric for metric in (L2_BYTES, MEMORY_BYTES) if metric in units]
    return [(len(call), {metric: _sum(call, metric, units[metric]) for metric in metrics}) for call in calls]


def _sum(kernels: Sequence[dict[str, str]], metric: str, unit: str) -> int:
    return round(sum(float(kernel[metric].replace(",", "")) * UNITS[unit] for kernel in kernels))


def called(model: str, column: str, *, small: bool) -> dict[str, int]:
    """What explain counts of one call, after everything has been compiled."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    module, run, moved = _prepared(model, column, device, small=small)
    if moved is None:
        work = eager_work(lambda: run(module), device)
    else:
        run(module)
        bytes_moved = moved.bytes_moved
        run(module)
        work = Work(launches=profiled_launches(lambda: run(module), device), bytes_moved=bytes_moved)
    return {"launches": work.launches, "bytes": work.bytes_moved}


def call_for_profiler(model: str, column: str, *, small: bool) -> None:
    """One call that Nsight Compute sees, behind its mark, after others that compile and tune."""
    module, run, _ = _prepared(model, column, "cuda", small=small)
    for _ in range(2):
        run(module)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStart()
    torch.cuda._sleep(1)  # Its kernel is the MARK.
    run(module)
    torch.cuda.synchronize()
    torch.cuda.cudart().cudaProfilerStop()


def _prepared(
    model: str, column: str, device: str, *, small: bool
) -> tuple[Any, Callable[[Any], object], CompiledBytes | None]:
    """A model, compiled but for eager, what calls it, and the bytes that each call moves once it was compiled."""
    subject = load(model, small=small)
    module, run = subject.module.eval().to(device), timed(subject, "inference", device)
    if column == "eager":
        return module, run, None
    compiled, moved = explain.counted(module, explain.ALONE if column == "inductor" else {"graphs": "off"})
    return compiled, run, moved


def table(models: dict[str, dict[str, Call]]) -> str:
    """A row for each model and quantity: what explain says and what was seen."""
    lines = [f"{'model':<36} {'':<10} {'eager':>12} {'inductor':>12} {'opsmith':>12}  {'/eager':>7} {'/inductor':>9}"]
    for model, calls in models.items():
        rows: dict[str, list[tuple[int | None, int | None]]] = {
            "launches": [(calls[one].said_launches, calls[one].launches) for one in COLUMNS],
            "MB": [(calls[one].said_bytes, calls[one].l2_bytes) for one in COLUMNS],
            "MB memory": [(None, calls[one].memory_bytes) for one in COLUMNS],
        }
        for quantity, pairs in rows.items():
            for kind, figures in (("said", [one for one, _ in pairs]), ("seen", [one for _, one in pairs])):
                if None not in figures:
                    lines.append(_row(model, f"{quantity} {kind}", [one or 0 for one in figures]))
    return "\n".join(lines)


def _row(model: str, name: str, figures: Sequence[int]) -> str:
    scale = 1e6 if name.startswith("MB") else 1
    eager, inductor, ours = figures
    shares = [f"{ours / other:.2f}" if other else "-" for other in (eager, inductor)]
    cells = " ".join(f"{one / scale:>12,.0f}" for one in figures)
    return f"{model:<36} {name:<10} {cells}  {shares[0]:>7} {shares[1]:>9}"


if __name__ == "__main__":
    sys.exit(main())
