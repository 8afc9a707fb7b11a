"""Bus bandwidth of our collectives against NCCL's (on the CPU gloo's) by size, and a fused product against its parts.

::

    python -m benchmarks.distributed.bandwidth --ranks 4 -o bandwidth-4.json
    python -m benchmarks.distributed.bandwidth --ranks 2 --device cpu --sizes 1KiB,1MiB -o bandwidth-cpu.json

Ours are the kernels of ``examples/distributed_triton``, on the CPU those of ``examples/distributed``. Both sides take
turns; a time is the median over the rounds of the slowest rank's. Calls on a GPU are replayed from CUDA graphs, so
that what counts is the devices' time and not Python's; ``--no-graphs`` counts both. Before they are timed their
answers are compared; exit status 1 if one is wrong. The link's rate is that of a copy from one GPU to another, which
takes one direction. Without multicast: ``NCCL_NVLS_ENABLE=0 TORCH_SYMM_MEM_DISABLE_MULTICAST=1``.
"""

from __future__ import annotations

import argparse
import datetime as dt
import importlib.util
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from benchmarks.distributed.rates import algorithm_gb_s, bus_gb_s
from torch._C._distributed_c10d import FileStore
from torch.multiprocessing.spawn import spawn

from opsmith.core.dtypes import TORCH_NAMES

EXAMPLES = Path(__file__).parents[2] / "examples"
KERNELS = {"cpu": EXAMPLES / "distributed", "cuda": EXAMPLES / "distributed_triton"}
SIZES = "1KiB,4KiB,16KiB,64KiB,256KiB,1MiB,4MiB,16MiB,64MiB,256MiB,1GiB"
UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
#: Rows, columns and depth on each rank of fused products.
PRODUCTS = {"cpu": ((64, 64, 32),), "cuda": ((2048, 4096, 1024), (8192, 4096, 2048), (8192, 8192, 2048))}
ROUNDS = 7
#: A block of calls takes about so long, and has at most so many.
BLOCK_S = 0.02
MOST_CALLS = 200
LINK_BYTES = 256 << 20

Side = Callable[[], torch.Tensor]


def size_bytes(text: str) -> int:
    """Read ``64KiB``.

    Raises:
        ValueError: it is no number of KiB, MiB or GiB.
    """
    found = re.fullmatch(r"(\d+)(KiB|MiB|GiB)", text.strip())
    if found is None:
        raise ValueError(f"{text!r} is no size; write for example 64KiB,16MiB,1GiB")
    return int(found[1]) * UNITS[found[2]]


def repeat(side: Side, calls: int) -> None:
    """Call it so often."""
    for _ in range(calls):
        side()


class Rank:
    """One process of the measurement.

    Args:
        rank: which one.
        arguments: of the command.
    """

    def __init__(self, rank: int, arguments: argparse.Namespace) -> None:
        self.rank, self.ranks = rank, arguments.ranks
        self.type: str = arguments.device
        self.device = torch.device("cpu") if self.type == "cpu" else torch.device("cuda", rank)
        self.dtype: torch.dtype = getattr(torch, TORCH_NAMES[arguments.dtype])
        self.graphs: bool = arguments.graphs and self.type == "cuda"
        self.group = dist.distributed_c10d._get_default_group().group_name
        self.wrong: list[str] = []
        self.link = self.link_gb_s()

    def wait(self) -> None:
        """Until all work of this rank is done."""
        if self.type == "cuda":
            torch.cuda.synchronize(self.device)

    def slowest(self, seconds: float) -> float:
        """The largest of all ranks' numbers, on all of them."""
        figure = torch.tensor(seconds, dtype=torch.float64, device=self.device)
        dist.all_reduce(figure, dist.ReduceOp.MAX)
        return float(figure)

    def seconds(self, block: Callable[[], None]) -> float:
        """What a block of calls takes, on the slowest rank."""
        dist.barrier()
        self.wait()
        start = time.perf_counter()
        block()
        self.wait()
        return self.slowest(time.perf_counter() - start)

    def block(self, side: Side, calls: int, *, graph_wanted: bool) -> Callable[[], None]:
        """So many calls of a side, to be run again and again."""
        if not (graph_wanted and self.graphs):
            return partial(repeat, side, calls)
        graph = torch.cuda.CUDAGraph()
        # The threads of a process group may ask the device something meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            repeat(side, calls)
        return graph.replay

    def times_s(self, sides: Mapping[str, Side], *, graphs: bool = True) -> dict[str, float]:
        """Seconds of a call of each side, which take turns; in ``graphs`` if the command asks for them, too."""
        calls, blocks = {}, {}
        for name, side in sides.items():
            self.seconds(partial(repeat, side, 2))
            calls[name] = max(1, min(MOST_CALLS, round(BLOCK_S * 3 / self.seconds(partial(repeat, side, 3)))))
            blocks[name] = self.block(side, calls[name], graph_wanted=graphs)
            self.seconds(blocks[name])
        rounds = [{name: self.seconds(block) / calls[name] for name, block in blocks.items()} for _ in range(ROUNDS)]
        return {name: statistics.median(times[name] for times in rounds) for name in sides}

    def check(self, what: str, sides: Mapping[str, Side]) -> None:
        """Whether all sides say the same; their inputs are small integers, of which all sums are exact."""
        answers = {name: side().clone() for name, side in sides.items()}
        first = next(iter(answers.values()))
        self.wrong += [f"{what}: {name} on rank {self.rank}" for name, own in answers.items() if not own.equal(first)]

    def integers(self, *shape: int, most: int) -> torch.Tensor:
        """Random integers from ``-most`` to ``most``, others on each rank."""
        generator = torch.Generator(self.device).manual_seed(self.rank)
        drawn = torch.randint(-most, most + 1, shape, generator=generator, device=self.device, dtype=torch.int8)
        return drawn.to(self.dtype)

    def all_reduce(self, nbytes: int, ours: Callable[..., torch.Tensor]) -> dict[str, Any]:
        """Both sides at one size."""
        x = self.integers(nbytes // self.dtype.itemsize, most=8)
        reduced = torch.empty_like(x)

        def library() -> torch.Tensor:
            return self.finished(torch.ops._c10d_functional.all_reduce(x, "sum", self.group))

        def in_place() -> torch.Tensor:
            dist.all_reduce(reduced)
            return reduced

        answers: dict[str, Side] = {"library": library, "ours": lambda: ours(x, "sum", self.group)}
        self.check(f"all_reduce of {nbytes} bytes", answers)
        reduced.zero_()  # What is reduced again and again in place must not overflow.
        seconds = self.times_s({"library_in_place": in_place, **answers})
        found = {name: self._described("all_reduce", nbytes, taken) for name, taken in seconds.items()}
        return {"size_bytes": nbytes, **found, "speedup": round(seconds["library"] / seconds["ours"], 3)}

    def finished(self, pending: torch.Tensor) -> torch.Tensor:
        """A result of torch's functional collectives, which has to be waited for."""
        finished: torch.Tensor = torch.ops._c10d_functional.wait_tensor(pending)
        return finished

    def _described(self, collective: str, nbytes: int, seconds: float) -> dict[str, float | None]:
        bus = bus_gb_s(collective, self.ranks, nbytes, seconds)
        return {
            "us": round(seconds * 1e6, 2),
            "algorithm_gb_s": round(algorithm_gb_s(nbytes, seconds), 3),
            "bus_gb_s": round(bus, 3),
            "of_link": None if self.link is None else round(bus / self.link, 4),
        }

    def product(self, shape: tuple[int, int, int], ours: Callable[..., torch.Tensor]) -> dict[str, Any]:
        """A product whose sum is scattered: ours, torch's fused one, and its parts one after the other."""
        rows, columns, depth = shape
        a, b = self.integers(rows, depth, most=1), self.integers(depth, columns, most=1)
        # In half types a sum of more products than this may be rounded on its way.
        a[:, 32:] = 0

        def apart() -> torch.Tensor:
            scattered = torch.ops._c10d_functional.reduce_scatter_tensor(a @ b, "sum", self.ranks, self.group)
            return self.finished(scattered)

        sides: dict[str, Side] = {"apart": apart, "ours": lambda: ours(a, b, "sum", 0, self.group)}
        if self.type == "cuda":
            fused = torch.ops.symm_mem.fused_matmul_reduce_scatter
            sides["torch_fused"] = lambda: fused(a, b, "sum", 0, self.group)
        self.check(f"product {shape}", sides)
        seconds = self.times_s(sides)
        flop = 2 * rows * columns * depth
        return {
            "rows_columns_depth": shape,
            **{
                name: {"us": round(taken * 1e6, 2), "tflop_s": round(flop / taken / 1e12, 2)}
                for name, taken in seconds.items()
            },
            "speedup": round(seconds["apart"] / seconds["ours"], 3),
        }

    def link_gb_s(self) -> float | None:
        """The rate of a copy from this rank's GPU to its neighbour's; None on the CPU."""
        if self.type == "cpu":
            return None
        source = torch.empty(LINK_BYTES, dtype=torch.uint8, device=self.device)
        target = torch.empty_like(source, device=torch.device("cuda", (self.rank + 1) % self.ranks))
        # A graph belongs to one device.
        seconds = self.times_s({"copy": lambda: target.copy_(source)}, graphs=False)["copy"]
        return round(algorithm_gb_s(LINK_BYTES, seconds), 1)


def kernel(device: str, task: str) -> Callable[..., torch.Tensor]:
    """Our kernel of a task."""
    name = f"{task}__default"
    file = KERNELS[device] / name / f"{name}_implementation_v1.py"
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Callable[..., torch.Tensor] = getattr(module, f"{name}_kernel_impl")
    return found


def measure(rank: int, arguments: argparse.Namespace, folder: str) -> None:
    """What one process does; the first one writes what was found."""
    on_cuda = arguments.device == "cuda"
    if on_cuda:
        torch.cuda.set_device(rank)
    store = FileStore(f"{folder}/store", arguments.ranks)
    dist.init_process_group("nccl" if on_cuda else "gloo", store=store, rank=rank, world_size=arguments.ranks)
    own = Rank(rank, arguments)
    reduce, multiply = kernel(arguments.device, "all_reduce"), kernel(arguments.device, "fused_matmul_reduce_scatter")
    found = {
        "link_gb_s": own.link,
        "all_reduce": [own.all_reduce(size_bytes(size), reduce) for size in arguments.sizes.split(",")],
        "matmul_reduce_scatter": [own.product(shape, multiply) for shape in PRODUCTS[arguments.device]],
    }
    Path(folder, f"wrong-{rank}").write_text("\n".join(own.wrong))
    if rank == 0:
        Path(folder, "found.json").write_text(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


def main() -> int:
    """Measure, write the record, and say what is wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", default=SIZES, help="of an all-reduce's input, comma-separated")
    parser.add_argument("--dtype", default="bf16", help="short name; of few bits, whose sums are compared exactly")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cuda")
    parser.add_argument("--graphs", action=argparse.BooleanOptionalAction, default=True, help="replay CUDA graphs")
    parser.add_argument("-o", "--out", type=Path, required=True)
    arguments = parser.parse_args()
    try:
        for size in arguments.sizes.split(","):
            size_bytes(size)
    except ValueError as exc:
        parser.error(str(exc))
    if arguments.device == "cuda" and torch.cuda.device_count() < arguments.ranks:
        parser.error(f"--ranks {arguments.ranks} needs as many GPUs; there are {torch.cuda.device_count()}")
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        spawn(measure, (arguments, folder), arguments.ranks)
        wrong = [line for path in sorted(Path(folder).glob("wrong-*")) for line in path.read_text().splitlines()]
        found = json.loads(Path(folder, "found.json").read_text())
    record = {
        "measured_utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "asked": {name: value for name, value in vars(arguments).items() if not isinstance(value, Path)},
        "device": torch.cuda.get_device_name(0) if arguments.device == "cuda" else "cpu",
        "torch": torch.__version__,
        "library": f"NCCL {'.'.join(map(str, torch.cuda.nccl.version()))}" if arguments.device == "cuda" else "gloo",
        "environment": {
            name: os.environ.get(name) for name in ("NCCL_NVLS_ENABLE", "TORCH_SYMM_MEM_DISABLE_MULTICAST")
        },
        "wall_s": round(time.monotonic() - started, 1),
        "wrong": wrong,
        **found,
    }
    arguments.out.write_text(json.dumps(record, indent=1) + "\n")
    sys.stdout.write("".join(f"wrong: {line}\n" for line in wrong))
    for row in found["all_reduce"]:
        sides = (f"{side} {row[side]['us']:9.1f} us {row[side]['bus_gb_s']:7.1f} GB/s" for side in ("ours", "library"))
        sys.stdout.write(f"{row['size_bytes']:>11} B  {'  '.join(sides)}  speedup {row['speedup']:.2f}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
