"""Opsmith's communicating kernels against eager NCCL, on one GPU for each rank.

::

    python -m benchmarks.distributed.kernels --ranks 2 -o kernels-2
    python -m benchmarks.distributed.kernels --ranks 2 -o kernels-2 --only 9_AllGatherGemm,11_GemmAllReduce --sweep

Each row is a parallel problem at a size. What it is compared with is the problem's own ``Model`` on NCCL, or what is
faster there. Both sides
take turns. A time is that of a block of calls between two events of the device, divided by their number: ranks start
together, after a barrier on the device, and what counts is the slowest rank; the median of the rounds. Calls are
replayed from CUDA graphs, so that what counts is the devices' time and not Python's, but for those that have the host
wait for a count; ``eager`` calls them from Python as well. ``--sweep`` times some with other constants.

Results are compared before they are timed; exit status 1 if one is off. ``DIR/record.json`` has all rows,
``DIR/run.json`` the command and the environment. Without multicast:
``NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib
import json
import math
import os
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import torch
import torch.distributed as dist
from benchmarks.models.records import environment_of
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import ProcessException, spawn
from torch.utils._pytree import tree_leaves

from opsmith.backends import manifest
from opsmith.core.problems import SHIPPED_PARALLEL
from opsmith.kernels.communication import all_reduce, products, symmetric
from opsmith.tasks.problem_module import import_problem

ROOT = Path(__file__).parents[2]
KERNELS = ROOT / "src" / "opsmith" / "kernels"
ROUNDS = 9
#: A block of calls takes about so long, and has at most so many.
BLOCK_S, MOST_CALLS = 0.01, 100
WARM_UPS = 3
#: Symmetric memory that is connected before anything is timed.
WORKSPACE_BYTES = 256 << 20
#: A result may be off by so much of its largest: both sides round to bfloat16 at other places.
MOST_OFF = 0.03

#: Ranks that take longer to meet, and a row that takes longer, hang.
START_LIMIT_S, ROW_LIMIT_S = 60, 30
#: Each of a sweep's constants is compiled.
SWEPT_ROW_LIMIT_S = 120
#: Files of a group of ranks: its rows, and the one that it is at.
ROWS, CURRENT = "rows.jsonl", "current"

KIB, MIB = 1 << 10, 1 << 20
#: Llama 7B: hidden states, the inner size of its MLP, and tokens of a prefill and of decoding batches.
HIDDEN, INNER, PREFILL, DECODE = 4096, 11008, 2048, (1, 16, 64)
VOCABULARY = 32000

Side = Callable[[], Any]


class Row(NamedTuple):
    """A problem at a size.

    Attributes:
        task: the problem.
        label: its size.
        inputs: makes a rank's inputs.
        in_graph: calls can be captured.
    """

    task: str
    label: str
    inputs: Callable[[Maker], list[Any]]
    in_graph: bool = True


class Maker:
    """Makes inputs on one rank; the same shapes on all of them."""

    def __init__(self, rank: int, ranks: int, device: torch.device) -> None:
        self.rank, self.ranks, self.device = rank, ranks, device
        self._own = torch.Generator(device).manual_seed(rank)
        self._shared = torch.Generator(device).manual_seed(99)

    def normal(self, *shape: int, scale: float = 1.0, shared: bool = False) -> torch.Tensor:
        """Normal numbers in bfloat16, others on each rank unless they are shared."""
        generator = self._shared if shared else self._own
        return (torch.randn(shape, generator=generator, device=self.device) * scale).bfloat16()

    def integers(self, below: int, *shape: int, shared: bool = False) -> torch.Tensor:
        """Integers from 0 on."""
        generator = self._shared if shared else self._own
        return torch.randint(below, shape, generator=generator, device=self.device)


def rows() -> list[Row]:
    """What is measured."""
    return [*_collectives(), *_products(), *_norms(), *_vocabulary(), *_experts()]


def _collectives() -> Iterator[Row]:
    for size in (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB):
        label = f"{size // KIB} KiB"
        yield Row("1_AllReduce", label, lambda make, size=size: [make.normal(size // 2)])  # type: ignore[misc]
    for size in (MIB, 16 * MIB):
        label, count = f"{size // KIB} KiB", size // 2 // HIDDEN
        yield Row("2_ReduceScatterRows", label, lambda make, count=count: [make.normal(count, HIDDEN)])  # type: ignore[misc]
    yield Row("3_GatherUnevenRows", "8 MiB", lambda make: [make.normal(1024, HIDDEN)], in_graph=False)


def _products() -> Iterator[Row]:
    def gathered(make: Maker, columns: int) -> list[Any]:
        x = make.normal(PREFILL // make.ranks, HIDDEN)
        return [x, make.normal(HIDDEN, columns // make.ranks, scale=HIDDEN**-0.5)]

    def summed(make: Maker, tokens: int, depth: int) -> list[Any]:
        own = depth // make.ranks
        return [make.normal(tokens, own), make.normal(own, HIDDEN, scale=depth**-0.5)]

    for name, columns in (("qkv", 3 * HIDDEN), ("up", 2 * INNER)):
        yield Row("9_AllGatherGemm", name, lambda make, columns=columns: gathered(make, columns))  # type: ignore[misc]
    for name, depth in (("output", HIDDEN), ("down", INNER)):
        yield Row("10_GemmReduceScatter", name, lambda make, depth=depth: summed(make, PREFILL, depth))  # type: ignore[misc]
        for tokens in (PREFILL, *DECODE):
            label = f"{name} {tokens}"
            yield Row("11_GemmAllReduce", label, lambda make, t=tokens, d=depth: summed(make, t, d))  # type: ignore[misc]


def _norms() -> Iterator[Row]:
    def normed(make: Maker, tokens: int) -> list[Any]:
        residual = make.normal(tokens, HIDDEN, shared=True)
        return [make.normal(tokens, HIDDEN), residual, make.normal(HIDDEN, shared=True)]

    def multiplied(make: Maker, tokens: int) -> list[Any]:
        own = HIDDEN // make.ranks
        x, weight = make.normal(tokens, own), make.normal(own, HIDDEN, scale=HIDDEN**-0.5)
        return [x, weight, make.normal(tokens, HIDDEN, shared=True), make.normal(HIDDEN, shared=True)]

    for tokens in (*DECODE, 256, PREFILL):
        yield Row("16_AllReduceResidualNorm", str(tokens), lambda make, t=tokens: normed(make, t))  # type: ignore[misc]
    for tokens in DECODE:
        yield Row("12_GemmAllReduceNorm", str(tokens), lambda make, t=tokens: multiplied(make, t))  # type: ignore[misc]


def _vocabulary() -> Iterator[Row]:
    def logits(make: Maker, *shape: int) -> list[Any]:
        targets = make.integers(VOCABULARY, *shape, shared=True)
        return [make.normal(*shape, VOCABULARY // make.ranks, scale=3), targets]

    yield Row("17_VocabularyCrossEntropy", "4096", lambda make: logits(make, 4096))
    yield Row("18_VocabularyLogProbs", "8 x 512", lambda make: logits(make, 8, 512))
    yield Row("44_DividedSoftmax", "4096", lambda make: logits(make, 4096)[:1])


def _experts() -> Iterator[Row]:
    def dispatched(make: Maker) -> list[Any]:
        return [make.normal(4096, HIDDEN), make.integers(4 * make.ranks, 4096, 2), 4]

    def combined(make: Maker) -> list[Any]:
        of_a_rank = 4096 * 2 // make.ranks
        counts = torch.full((make.ranks,), of_a_rank, dtype=torch.int64, device=make.device)
        places = torch.randperm(of_a_rank * make.ranks, device=make.device).view(-1, 2)
        return [make.normal(of_a_rank * make.ranks, HIDDEN), counts, places, make.normal(len(places), 2)]

    yield Row("29_ExpertDispatch", "4096 x 2", dispatched, in_graph=False)
    yield Row("30_ExpertCombine", "4096 x 2", combined, in_graph=False)


def reduce_scatter(x: torch.Tensor) -> torch.Tensor:
    """NCCL's in one call; the problem's Model copies its parts first."""
    own = x.new_empty((len(x) // dist.get_world_size(), *x.shape[1:]))
    dist.reduce_scatter_tensor(own, x)
    return own


def gather_multiply(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """As :func:`reduce_scatter`, of an all-gather."""
    rows = x.new_empty((len(x) * dist.get_world_size(), *x.shape[1:]))
    dist.all_gather_into_tensor(rows, x)
    return rows @ weight


#: What is faster on NCCL than a problem's own Model, and means the same for these inputs.
LIBRARY: dict[str, Callable[..., Any]] = {
    "2_ReduceScatterRows": reduce_scatter,
    "9_AllGatherGemm": gather_multiply,
    "10_GemmReduceScatter": lambda x, weight: reduce_scatter(x @ weight),
}

_TILES = ((128, 256, 64, 8, 3), (128, 128, 64, 4, 4))
_FEW_TILES = ((64, 32, 128, 4, 4), (64, 32, 256, 4, 4), (64, 32, 64, 4, 8), (64, 32, 128, 8, 6), (64, 64, 128, 4, 5))
_BLOCKS: dict[str, tuple[Any, ...]] = {"symmetric.MOST_BLOCKS": (32, 128), "symmetric.STEP_BYTES": (8192, 32768)}
#: What the sweep tries: problem -> constant of a module -> its values.
SWEEP: dict[str, dict[str, tuple[Any, ...]]] = {
    "1_AllReduce": _BLOCKS,
    "16_AllReduceResidualNorm": {"symmetric.MOST_BLOCKS": (32, 128)},
    "9_AllGatherGemm": {"products.COPIERS": (8, 32), "products.TILES": _TILES},
    "10_GemmReduceScatter": {"products.TILES": _TILES},
    "11_GemmAllReduce": {
        "products.PUSHED_BYTES": (0, 1 << 40),
        "products.TILES": _TILES,
        "products.FEW_ROWS": (0,),
        "products.FEW_TILE": _FEW_TILES,
    },
    "12_GemmAllReduceNorm": {"products.FEW_ROWS": (0,)},
}


def multiply_then_reduce(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product of cuBLAS's in symmetric memory, and opsmith's all-reduce of it.

    Policy ``native`` refuses it, so it is measured and not chosen.
    """
    out = a.new_empty(len(a), b.shape[1])
    group = symmetric.Group(out.numel() * out.element_size())
    torch.mm(a, b, out=group.own((len(a), b.shape[1]), a.dtype))
    all_reduce.reduce_buffers(out.view(-1), None, group)
    return out


#: What else the sweep times: problem -> name -> another answer.
OTHERS: dict[str, dict[str, Callable[..., Any]]] = {
    "11_GemmAllReduce": {"cuBLAS, our all-reduce": multiply_then_reduce}
}


def kernel(task: str) -> Callable[..., Any]:
    """Opsmith's kernel of a problem."""
    entry = manifest.read(KERNELS).ranks[task].entry
    assert entry is not None
    file, _, name = entry.rpartition(":")
    module = importlib.import_module("opsmith.kernels." + file.removesuffix(".py").replace("/", "."))
    found: Callable[..., Any] = getattr(module, name)
    return found


def off(one: Any, other: Any) -> float:
    """By how much results differ, of the largest; infinite where shapes do."""
    pairs = list(zip(tree_leaves(one), tree_leaves(other), strict=True))
    if any(a.shape != b.shape for a, b in pairs):
        return math.inf
    return max(
        (
            float((a.double() - b.double()).abs().max() / b.double().abs().max().clamp(min=1))
            for a, b in pairs
            if a.numel()
        ),
        default=0.0,
    )


class Clock:
    """Times sides on all ranks.

    Args:
        meet: a barrier on the device.
        device: of this rank.
    """

    def __init__(self, meet: Callable[[], None], device: torch.device) -> None:
        self._meet, self._device = meet, device

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' numbers, on all of them."""
        figure = torch.tensor(seconds, dtype=torch.float64, device=self._device)
        dist.all_reduce(figure, dist.ReduceOp.MAX)
        return float(figure)

    def seconds(self, block: Callable[[], None]) -> tuple[float, float]:
        """What a block takes from the common start to the end of the slowest rank, and to that of the fastest."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize(self._device)
        dist.barrier()
        torch.cuda.synchronize(self._device)
        self._meet()
        start.record()
        block()
        end.record()
        torch.cuda.synchronize(self._device)
        own = start.elapsed_time(end) / 1e3
        return self.slowest(own), -self.slowest(-own)

    def times_us(self, sides: Mapping[str, Side], *, in_graph: bool) -> dict[str, dict[str, float]]:
        """Of each side microseconds of a call, the median of the rounds, and the median spread between ranks."""
        blocks: dict[str, tuple[int, Callable[[], None]]] = {}
        for name, side in sides.items():
            for _ in range(WARM_UPS):
                side()
            estimate, _ = self.seconds(lambda side=side: repeat(side, WARM_UPS))  # type: ignore[misc]
            calls = max(1, min(MOST_CALLS, round(BLOCK_S * WARM_UPS / estimate)))
            blocks[name] = calls, self._block(side, calls, in_graph=in_graph)
            blocks[name][1]()
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in sides}
        for _ in range(ROUNDS):
            for name, (_, block) in blocks.items():
                found[name].append(self.seconds(block))
        return {
            name: {
                "us": round(statistics.median(slow for slow, _ in times) / blocks[name][0] * 1e6, 2),
                "spread_us": round(statistics.median(slow - fast for slow, fast in times) / blocks[name][0] * 1e6, 2),
            }
            for name, times in found.items()
        }

    def _block(self, side: Side, calls: int, *, in_graph: bool) -> Callable[[], None]:
        if not in_graph:
            return lambda: repeat(side, calls)
        graph = torch.cuda.CUDAGraph()
        # The threads of a process group may ask the device something meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            repeat(side, calls)
        return graph.replay


def repeat(side: Side, calls: int) -> None:
    """Call it so often."""
    for _ in range(calls):
        side()


class Measurement:
    """What one rank does."""

    def __init__(self, rank: int, arguments: argparse.Namespace) -> None:
        self.device = torch.device("cuda", rank)
        self.make = Maker(rank, arguments.ranks, self.device)
        group = symmetric.Group(WORKSPACE_BYTES)
        self.clock = Clock(group.meet, self.device)
        self._sweeps: bool = arguments.sweep

    def row(self, row: Row) -> dict[str, Any]:
        """Both sides of a row: compared, then timed in graphs and from Python."""
        inputs = row.inputs(self.make)
        model = LIBRARY.get(row.task) or import_problem(SHIPPED_PARALLEL / f"{row.task}.py").Model()
        ours = kernel(row.task)
        with torch.no_grad():
            sides: dict[str, Side] = {"nccl": lambda: model(*inputs), "ours": lambda: ours(*inputs)}
            difference = self.clock.slowest(off(sides["ours"](), sides["nccl"]()))
            found: dict[str, Any] = {"task": row.task, "label": row.label, "off": difference}
            found["timed"] = "graph" if row.in_graph else "eager"
            found |= self.clock.times_us(sides, in_graph=row.in_graph)
            found["speedup"] = round(found["nccl"]["us"] / found["ours"]["us"], 3)
            if row.in_graph:
                found["eager"] = self.clock.times_us(sides, in_graph=False)
            if self._sweeps:
                found["sweep"] = dict(self._sweep(row, sides["ours"], len(inputs[0])))
                others = {name: partial(other, *inputs) for name, other in OTHERS.get(row.task, {}).items()}
                times = self.clock.times_us(others, in_graph=True)
                found["sweep"] |= {name: times[name]["us"] for name in others}
        return found

    def _sweep(self, row: Row, side: Side, rows: int) -> Iterator[tuple[str, float]]:
        is_few = row.task == "11_GemmAllReduce" and rows <= products.FEW_ROWS
        for name, values in SWEEP.get(row.task, {}).items():
            if row.task == "11_GemmAllReduce" and is_few != ("FEW" in name):
                continue  # It changes nothing.
            for value in values:
                with self._changed(name, value):
                    times = self.clock.times_us({"ours": side}, in_graph=True)
                yield f"{name}={value}", times["ours"]["us"]

    @contextmanager
    def _changed(self, name: str, value: Any) -> Iterator[None]:
        module, _, constant = name.partition(".")
        place = {"products": products, "symmetric": symmetric}[module]
        before = getattr(place, constant)
        made = value
        if constant == "TILES":
            made = {**before, 2: products.Tile(*value)}
        elif constant == "FEW_TILE":
            made = products.Tile(*value)
        setattr(place, constant, made)
        try:
            yield
        finally:
            setattr(place, constant, before)


def measure(rank: int, arguments: argparse.Namespace, folder: str) -> None:
    """What one process does; the first one writes each row as it is known."""
    torch.cuda.set_device(rank)
    store = FileStore(f"{folder}/store", arguments.ranks)
    dist.init_process_group(
        "nccl", store=store, rank=rank, world_size=arguments.ranks, device_id=torch.device("cuda", rank)
    )
    measurement = Measurement(rank, arguments)
    for row in rows():
        key = f"{row.task} {row.label}"
        if key in arguments.done or (arguments.only and row.task not in arguments.only.split(",")):
            continue
        if measurement.clock.slowest(time.monotonic() - arguments.started) > arguments.seconds:
            break
        Path(folder, CURRENT).write_text(key)
        try:
            found = measurement.row(row)
        except Exception:  # noqa: BLE001 - whatever a kernel raises
            Path(folder, f"failed-{rank}").write_text(traceback.format_exc())
            os._exit(1)  # The other ranks wait for this one: nothing more comes of this group.
        if rank == 0:
            with Path(folder, ROWS).open("a") as file:
                file.write(json.dumps(found) + "\n")
            sys.stdout.write(line_of(found))
            sys.stdout.flush()
    dist.barrier()
    dist.destroy_process_group()


def run_group(arguments: argparse.Namespace, folder: Path) -> str | None:
    """Run all ranks until nothing is left to measure, one fails, or one takes too long; why they ended, if early."""
    ranks = spawn(measure, (arguments, str(folder)), arguments.ranks, join=False)
    seen, since = "", time.monotonic()
    row_limit_s = SWEPT_ROW_LIMIT_S if arguments.sweep else ROW_LIMIT_S
    try:
        while not ranks.join(timeout=1):
            current = folder / CURRENT
            now = current.read_text() if current.exists() else ""
            if now != seen:
                seen, since = now, time.monotonic()
            elif time.monotonic() - since > (limit_s := row_limit_s if now else START_LIMIT_S):
                return f"took more than {limit_s} s"
    except ProcessException as exc:
        told = [path.read_text()[-1500:] for path in sorted(folder.glob("failed-*"))]
        return told[0] if told else str(exc)[-1500:]
    finally:
        for process in ranks.processes:
            process.kill()
    return None


def line_of(row: Mapping[str, Any]) -> str:
    """A row of the table."""
    eager = row.get("eager")
    text = (
        f"{row['task']:<26} {row['label']:<12} {row['timed']:<5} ours {row['ours']['us']:9.1f} us  "
        f"nccl {row['nccl']['us']:9.1f} us  {row['speedup']:5.2f}x  spread {row['ours']['spread_us']:.1f}"
    )
    if eager is not None:
        text += f"  eager {eager['ours']['us']:.1f} / {eager['nccl']['us']:.1f}"
    if row["off"] > MOST_OFF:
        text += f"  WRONG by {row['off']:.3g}"
    swept = "".join(f"\n    {name}: {us:.1f}" for name, us in row.get("sweep", {}).items())
    return text + swept + "\n"


def geomean(found: list[dict[str, Any]], task: str) -> float | None:
    """Of the speedups of a task."""
    speedups = [row["speedup"] for row in found if row["task"] == task]
    return round(statistics.geometric_mean(speedups), 3) if speedups else None


def main() -> int:
    """Measure, write the record, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="problems, comma-separated")
    parser.add_argument("--sweep", action="store_true", help="time some with other constants, too")
    parser.add_argument("--seconds", type=float, default=600, help="begin no row after so many")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    if torch.cuda.device_count() < arguments.ranks:
        parser.error(f"--ranks {arguments.ranks} needs as many GPUs; there are {torch.cuda.device_count()}")
    arguments.started, arguments.done = time.monotonic(), set()
    arguments.out.mkdir(parents=True, exist_ok=True)
    found: list[dict[str, Any]] = []
    failed: dict[str, str] = {}
    while time.monotonic() - arguments.started < arguments.seconds:
        with tempfile.TemporaryDirectory() as folder:
            why = run_group(arguments, Path(folder))
            if (lines := Path(folder, ROWS)).exists():
                found += [json.loads(line) for line in lines.read_text().splitlines()]
            current = Path(folder, CURRENT)
            if why is None or not current.exists():
                failed |= {} if why is None else {"start": why}
                break
            failed[current.read_text()] = why
            sys.stdout.write(f"{current.read_text()}: FAILED {why[-700:]}\n")
            # A kernel that hangs at one size takes as long at the next.
            lost = {name.partition(" ")[0] for name in failed}
            arguments.done = {f"{row['task']} {row['label']}" for row in found}
            arguments.done |= {f"{row.task} {row.label}" for row in rows() if row.task in lost}
    wall_s = round(time.monotonic() - arguments.started, 1)
    geomeans = {task: geomean(found, task) for task in dict.fromkeys(row["task"] for row in found)}
    small = [row for row in found if row["task"] == "1_AllReduce" and int(row["label"].split()[0]) <= 1024]
    geomeans["1_AllReduce up to 1 MiB"] = geomean(small, "1_AllReduce")
    record = {"geomeans": geomeans, "rows": found, "failed": failed}
    (arguments.out / "record.json").write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / "run.json").write_text(json.dumps(_run(wall_s), indent=1) + "\n")
    sys.stdout.write("".join(f"geomean {task}: {value}\n" for task, value in geomeans.items()))
    sys.stdout.write(f"failed: {', '.join(failed) or 'none'}; wall {wall_s} s\n")
    return bool(failed) or any(row["off"] > MOST_OFF for row in found)


def _run(wall_s: float) -> dict[str, Any]:
    names = ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")
    return {
        "command": "python -m benchmarks.distributed.kernels " + " ".join(sys.argv[1:]),
        "made_utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "wall_s": wall_s,
        "environment": msgspec.to_builtins(environment_of("cuda"))
        | {
            "devices": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
            "nccl": ".".join(map(str, torch.cuda.nccl.version())),
            **{name: os.environ.get(name) for name in names},
        },
    }


if __name__ == "__main__":
    sys.exit(main())
