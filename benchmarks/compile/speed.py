"""How fast compiled models are: eager, Inductor's default, and the backend opsmith, in one process for each model.

Several models are compiled at a time; all others stand still while one is timed.

    python -m benchmarks.compile.speed OUT.jsonl --device cuda [--ops 'L1/*,L3/2*'] [--problems DIR] [--minutes 20]
        [--precisions f32,tf32,bf16] [--modes inference,training] [--sizes full] [--columns eager,inductor,opsmith]
        [--options mode=reduce-overhead] [--timeout 300] [--jobs 14]

f32 forbids tf32 in products and convolutions, tf32 allows it, bf16 is autocast. Columns take turns in random order,
block by block; a time is the median over blocks, and a speedup the median ratio of neighbouring blocks. A column whose
results leave eager's (1e-3 of the largest element in f32, 3e-2 in tf32 and bf16) has no time, unless they are as near
to float64's as eager's are: gradients that are zero but for roundings are noise in each. Each line of OUT is one
model in one mode and one precision; the same command continues a record, and stops when its minutes are over. The table
comes last: geomean of Inductor's time over ours, the share of models below 0.95, geomean over eager.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import functools
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import msgspec
import torch
from benchmarks.compile.jobs import Job, add_options, have_done, lacks_memory, selected
from benchmarks.compile.subjects import Float64, inference, load, timed, training
from benchmarks.models.records import environment_of
from torch import Tensor, nn

from opsmith.compile.built_in import LIBRARY_CALLS
from opsmith.compile.report import collected
from opsmith.core.problems import SHIPPED_PROBLEMS

MODES = {"inference": inference, "training": training}
PRECISIONS = ("f32", "tf32", "bf16")
#: Largest distance from eager, relative to the largest element: columns that are further off have no time.
TOLERANCE = {"f32": 1e-3, "tf32": 3e-2, "bf16": 3e-2}
#: A block lasts at least this long, and there are this many of them for each column.
BLOCK_S, BLOCKS = 0.02, 12


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one mode and one precision.

    Attributes:
        model: its name.
        mode: ``inference`` or ``training``.
        precision: ``f32``, ``tf32`` or ``bf16``.
        ms: column -> median time of a call in milliseconds.
        over: column -> median ratio of its time to opsmith's.
        compile_s: column -> seconds of the first call. opsmith records CUDA graphs later, while blocks are sized.
        peak_mib: column -> peak device memory of the second call, which no CUDA graph answers yet; empty on a CPU.
        wrong: column -> relative distance from eager beyond what is allowed.
        kernels: library calls that shipped kernels make in the column opsmith.
        note: why there is no time, in one line.
    """

    model: str
    mode: str
    precision: str
    ms: dict[str, float] = {}
    over: dict[str, float] = {}
    compile_s: dict[str, float] = {}
    peak_mib: dict[str, float] = {}
    wrong: dict[str, float] = {}
    kernels: int = 0
    note: str = ""


@contextlib.contextmanager
def precision_of(name: str, device: str) -> Iterator[None]:
    """Products and convolutions in strict float32, in tf32, or under autocast."""
    allowed = name == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed
    with torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=name == "bf16"):
        yield


def measure(job: Job, options: argparse.Namespace, take_turn: Callable[[], None]) -> Measured:
    """Compile every column of one job, and time them when it is its turn."""
    mode, precision = job.parts
    try:
        with precision_of(precision, options.device):
            return _measure(job.model, mode, precision, options, take_turn)
    except Exception as exc:  # noqa: BLE001 - a model's or a compiler's, which may raise anything
        note = f"{type(exc).__name__}: {' '.join(str(exc).split())}"[:300]
        return Measured(model=job.model, mode=mode, precision=precision, note=note)


def _measure(
    model: str, mode: str, precision: str, options: argparse.Namespace, take_turn: Callable[[], None]
) -> Measured:
    subject = load(model, small=options.sizes == "small", problems=options.problems)
    module = subject.module.train(mode == "training").to(options.device)
    run = MODES[mode](subject, options.device)
    exact = Float64(MODES[mode], subject, module, options.device)
    bare = timed(subject, mode, options.device)
    expected = run(copy.deepcopy(module))
    calls: dict[str, Callable[[], object]] = {}
    compile_s: dict[str, float] = {}
    wrong: dict[str, float] = {}
    peak_mib: dict[str, float] = {}
    torch._dynamo.reset()
    kernels = 0
    for column in options.columns.split(","):
        compiled = _compiled(copy.deepcopy(module), column, options)
        started = time.perf_counter()
        with collected() as reports:
            found = run(compiled)
        kernels += sum(one.fired for one in reports.passes if one.name == LIBRARY_CALLS)
        compile_s[column] = round(time.perf_counter() - started, 2)
        far = distance(expected, found)
        if not far <= TOLERANCE[precision] and not exact.is_as_near(found, expected):
            wrong[column] = far
            continue
        calls[column] = functools.partial(bare, compiled)
        peak_mib |= _peak(column, calls[column], options.device)
    take_turn()
    times = blocks_in_turns(calls, options.device)
    return Measured(
        model=model,
        mode=mode,
        precision=precision,
        ms={column: round(statistics.median(blocks) * 1e3, 5) for column, blocks in times.items()},
        over={column: round(ratio(blocks, times["opsmith"]), 4) for column, blocks in times.items()}
        if "opsmith" in times
        else {},
        compile_s=compile_s,
        peak_mib=peak_mib,
        wrong=wrong,
        kernels=kernels,
    )


def _compiled(module: nn.Module, column: str, options: argparse.Namespace) -> nn.Module:
    if column == "eager":
        return module
    settings: dict[str, Any] = {"fallback_random": True}
    if column == "opsmith":
        settings |= dict(one.split("=", 1) for one in options.options)
        return torch.compile(module, backend="opsmith", options=settings)  # type: ignore[return-value]
    if column == "inductor":
        return torch.compile(module, options=settings)  # type: ignore[return-value]
    if column in torch._inductor.list_mode_options():
        return torch.compile(module, mode=column)  # type: ignore[return-value]
    return torch.compile(module, backend=column)  # type: ignore[return-value]


def distance(expected: list[Tensor], found: list[Tensor]) -> float:
    """Of the worst tensor, relative to its largest element; not a number where structure or places of NaN differ."""
    if [one.shape for one in expected] != [one.shape for one in found]:
        return math.nan
    worst = 0.0
    for one, other in zip(expected, found, strict=True):
        if one.numel() and (one.is_floating_point() or one.is_complex()):
            finite = one.isfinite()
            if not torch.equal(finite, other.isfinite()):
                return math.nan
            size = one[finite].abs().max().item() if finite.any() else 0.0
            difference = (one - other)[finite].abs().max().item() if finite.any() else 0.0
            worst = max(worst, difference / (size or 1.0))
    return worst


def _peak(column: str, call: Callable[[], object], device: str) -> dict[str, float]:
    if torch.device(device).type != "cuda":
        return {}
    torch.cuda.reset_peak_memory_stats()
    call()
    torch.cuda.synchronize()
    return {column: round(torch.cuda.max_memory_allocated() / 2**20, 1)}


def blocks_in_turns(
    calls: Mapping[str, Callable[[], object]],
    device: str,
    *,
    blocks: int = BLOCKS,
    block_s: float = BLOCK_S,
    around: Callable[[str], AbstractContextManager[object]] = lambda _column: nullcontext(),
) -> dict[str, list[float]]:
    """Seconds of a call of each column, in blocks that take turns in random order.

    Args:
        calls: column -> makes a call.
        device: that is waited for.
        blocks: of each column.
        block_s: seconds that one lasts at least.
        around: what is held during a column's block.
    """
    repeats = {}
    for column, call in calls.items():
        with around(column):
            repeats[column] = _repeats(call, device, block_s)
    times: dict[str, list[float]] = {column: [] for column in calls}
    order = list(calls)
    for _ in range(blocks):
        random.shuffle(order)
        for column in order:
            with around(column):
                _time(calls[column], 1, device)  # What the block before left in caches is no part of this one.
                times[column].append(_time(calls[column], repeats[column], device))
    return times


def _repeats(call: Callable[[], object], device: str, block_s: float) -> int:
    _time(call, 2, device)
    return max(1, math.ceil(block_s / max(_time(call, 3, device), 1e-7)))


def _time(call: Callable[[], object], repeats: int, device: str) -> float:
    synchronise(device)
    started = time.perf_counter()
    for _ in range(repeats):
        call()
    synchronise(device)
    return (time.perf_counter() - started) / repeats


def synchronise(device: str) -> None:
    """Wait for what was enqueued."""
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()


def ratio(blocks: list[float], ours: list[float]) -> float:
    """The median one of neighbouring blocks."""
    return statistics.median(one / other for one, other in zip(blocks, ours, strict=True))


def table(record: list[Measured]) -> str:
    """One row for each mode and precision."""
    lines = [
        f"{'mode':<10} {'precision':<9} {'models':>6} {'x inductor':>10} {'<0.95':>6} {'x eager':>8} {'wrong':>5} none"
    ]
    for mode in MODES:
        for precision in PRECISIONS:
            asked = [one for one in record if (one.mode, one.precision) == (mode, precision)]
            timed = [one.over for one in asked if "inductor" in one.over]
            if not asked:
                continue
            below = sum(over["inductor"] < 0.95 for over in timed) / len(timed) if timed else 0.0
            over_inductor = _geomean([over["inductor"] for over in timed])
            over_eager = _geomean([over["eager"] for over in timed if "eager" in over])
            wrong = sum("opsmith" in one.wrong for one in asked)
            lines.append(
                f"{mode:<10} {precision:<9} {len(timed):>6} {over_inductor:>10} {below:>6.1%} {over_eager:>8} "
                f"{wrong:>5} {sum(not one.over for one in asked)}"
            )
    worst = sorted(
        (one.over["inductor"], one.model, one.mode, one.precision) for one in record if "inductor" in one.over
    )
    lines.extend(f"  {ratio:.2f} {' '.join(names)}" for ratio, *names in worst[:8])
    return "\n".join(lines)


def _geomean(ratios: list[float]) -> str:
    return f"{math.exp(statistics.fmean(map(math.log, ratios))):.3f}" if ratios else "-"


def main() -> int:
    """Time models and print the table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, minutes=20, timeout=300)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ops", default="*")
    parser.add_argument("--problems", type=Path, default=SHIPPED_PROBLEMS)
    parser.add_argument("--modes", default="inference,training")
    parser.add_argument("--precisions", default="f32,tf32,bf16")
    parser.add_argument("--columns", default="eager,inductor,opsmith")
    parser.add_argument("--options", action="append", default=[], metavar="NAME=VALUE", help="of the backend opsmith")
    parser.add_argument("--sizes", default="full", choices=("small", "full"))
    options = parser.parse_args()
    jobs = [
        Job(name, (mode, precision))
        for name in selected(options.ops, options.problems)
        for mode in options.modes.split(",")
        for precision in options.precisions.split(",")
    ]
    record = have_done(jobs, options, measure, _died, Measured, _crowded)
    facts = {"environment": environment_of(options.device), "table": table(record).splitlines()}
    options.out.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    print(table(record))
    return int(any(one.wrong for one in record))


def _crowded(line: Measured) -> bool:
    return lacks_memory(line.note)


def _died(job: Job, note: str) -> Measured:
    mode, precision = job.parts
    return Measured(model=job.model, mode=mode, precision=precision, note=note)


if __name__ == "__main__":
    sys.exit(main())
