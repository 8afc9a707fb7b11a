"""What small calls of traced models cost their caller with the shipped kernels installed, paired with eager.

    python -m benchmarks.dispatch.overhead_rows --rows overhead -o FILE [--dataset FILE.parquet] [--ops PATTERNS]
    python -m benchmarks.dispatch.overhead_rows --rows smallest -o FILE

Of each op for which something can be installed, a few inputs are taken: of those that mostly wait for their launch, as
the dataset has it, or the smallest ones. Each is called in blocks, in eager mode and with its op enabled, in turns; a
block's time is from its first call to the end of its last one on the device. The figure of an input is the median over
the rounds of eager's time by that with kernels; that of an op the geometric mean of its inputs', of the whole the
geometric mean over ops. A call that the kernel declines goes to eager through the dispatcher, and counts so.
"""

from __future__ import annotations

import argparse
import datetime as dt
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import msgspec
import torch
import triton

import opsmith
from opsmith.aten.schemas import overload
from opsmith.calls.live import rebuild
from opsmith.core.environment import Environment
from opsmith.core.op import matches
from opsmith.core.run import Selection, write_atomically
from opsmith.errors import BadInput
from opsmith.prewarm.fake_calls import recorded_calls
from opsmith.runner.machine.environment import describe_environment
from opsmith.suites.traces import Traces

ROUNDS, WARM_UP = 7, 5


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One input.

    Attributes:
        op: the overload.
        inputs: shapes of its tensors.
        eager_us, installed_us: medians over the rounds.
        speedup: median over the rounds of their ratio.
        planned: the calls were repeated from a launch plan.
        fallback: why the kernel did not answer, or None if it did.
    """

    op: str
    inputs: str
    eager_us: float
    installed_us: float
    speedup: float
    planned: bool
    fallback: str | None


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed."""

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    geomean: float
    geomean_served: float
    ops: dict[str, float]
    failed: dict[str, str]
    rows: tuple[Row, ...]


def measure_op(op: str, selection: Selection, inputs: int, calls: int, device: str) -> list[Row]:
    """The inputs of one op, in this process."""
    torch.set_num_threads(1)
    with opsmith.enabled(ops=op, device=device, choose="all"):
        pass  # Raises where no kernel answers it, before anything else is done.
    suite = Traces()
    suite.select(selection)
    records = list(recorded_calls(suite, op, op, "recorded" if device == "cuda" else "f32", device))
    rows = []
    for record in reversed(records):  # The largest come first.
        live = rebuild(record, torch.device(device))
        call = partial(overload(op), *live.args, **live.kwargs)
        shapes = ", ".join(str([*value.shape]) for value in live.args if isinstance(value, torch.Tensor))
        rows.append(_row(op, shapes, call, calls, device))
        if len(rows) == inputs:
            break
    return rows


@torch.no_grad()
def _row(op: str, shapes: str, call: Callable[[], Any], calls: int, device: str) -> Row:
    eager, installed = [], []
    planned, fallback = False, None
    for number in range(ROUNDS):
        for with_kernels in (number % 2 == 0, number % 2 == 1):
            if not with_kernels:
                eager.append(_block_us(call, calls, device))
                continue
            with opsmith.enabled(ops=op, device=device, choose="all"):
                installed.append(_block_us(call, calls, device))
                [served] = [one for one in opsmith.active().ops if one.op == op]
            planned = bool(served.planned)
            fallback = None if served.calls else ", ".join(map(str, served.fallbacks)) or "not called"
    return Row(
        op=op,
        inputs=shapes,
        eager_us=round(statistics.median(eager), 3),
        installed_us=round(statistics.median(installed), 3),
        speedup=round(statistics.median(e / i for e, i in zip(eager, installed, strict=True)), 6),
        planned=planned,
        fallback=fallback,
    )


def _block_us(call: Callable[[], Any], calls: int, device: str) -> float:
    for _ in range(WARM_UP):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(calls):
        call()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / calls * 1e6


def measured(
    ops: list[str], selection: Selection, inputs: int, calls: int, device: str
) -> Iterator[tuple[str, list[Row] | str]]:
    """Each op with its rows, or with why there are none; a process that is lost costs its op."""
    pool = _process()
    for op in ops:
        try:
            yield op, pool.submit(measure_op, op, selection, inputs, calls, device).result()
        except BrokenProcessPool:
            pool = _process()
            yield op, "its process ended"
        except BadInput as exc:  # Nothing answers it.
            yield op, str(exc)
        except Exception as exc:  # noqa: BLE001 - one op's failure is not the others'
            pool.shutdown()
            pool = _process()  # Whatever became of its device.
            yield op, " ".join(f"{type(exc).__name__}: {exc}".split())[:300]
    pool.shutdown()


def _process() -> ProcessPoolExecutor:
    return ProcessPoolExecutor(1, get_context("spawn"))


def main() -> None:
    """Measure op after op, print the table, write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--dataset", type=Path, help="instead of opsmith's own")
    parser.add_argument("--rows", choices=("overhead", "smallest"), default="overhead")
    parser.add_argument("--inputs", type=int, default=3, help="of an op at most")
    parser.add_argument("--calls", type=int, default=100, help="of a block")
    parser.add_argument("--ops", default="", help="comma-separated overloads, packets or wildcards")
    parser.add_argument("--minutes", type=float, default=math.inf, help="what is not measured then is left out")
    parser.add_argument("-o", "--out", type=Path, help="write the record here as JSON")
    options = parser.parse_args()
    patterns = [part for part in options.ops.split(",") if part]
    dataset = None if options.dataset is None else str(options.dataset.absolute())
    selection = Selection(dataset=dataset, overhead_dominated="only" if options.rows == "overhead" else "with")
    suite = Traces()
    suite.select(selection)
    dtype = "recorded" if options.device == "cuda" else "f32"
    known = suite.entries(dtype, options.device)
    ops = [op for op in known if not patterns or any(matches(op, one) for one in patterns)]
    rows: list[Row] = []
    failed: dict[str, str] = {}
    end = time.monotonic() + 60 * options.minutes
    for op, found in measured(ops, selection, options.inputs, options.calls, options.device):
        if isinstance(found, str):
            failed[op] = found
            print(f"{op}: {found}", flush=True)
        else:
            rows += found
        if time.monotonic() > end:
            break
    record = _record(rows, failed, options.device)
    print(f"{len(rows)} inputs of {len(record.ops)} ops: {record.geomean:.3f}x, served {record.geomean_served:.3f}x")
    if options.out:
        write_atomically(options.out, msgspec.json.format(msgspec.json.encode(record), indent=1))


def _record(rows: list[Row], failed: dict[str, str], device: str) -> Record:
    if not rows:
        sys.exit("no op has such inputs and a kernel")
    of_op: dict[str, list[float]] = {}
    served: dict[str, list[float]] = {}
    for row in rows:
        of_op.setdefault(row.op, []).append(row.speedup)
        if row.fallback is None:
            served.setdefault(row.op, []).append(row.speedup)
    ops = {op: round(statistics.geometric_mean(speedups), 6) for op, speedups in of_op.items()}
    facts = {"torch": str(torch.__version__), "triton": triton.__version__, "cuda": torch.version.cuda}
    name = torch.cuda.get_device_name() if device == "cuda" else ""
    return Record(
        command=("python", "-m", "benchmarks.dispatch.overhead_rows", *sys.argv[1:]),
        environment=describe_environment(facts, device=device, device_name=name),
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        geomean=round(statistics.geometric_mean(ops.values()), 4),
        geomean_served=round(statistics.geometric_mean([statistics.geometric_mean(one) for one in served.values()]), 4)
        if served
        else 0.0,
        ops=ops,
        failed=failed,
        rows=tuple(rows),
    )


if __name__ == "__main__":
    main()
