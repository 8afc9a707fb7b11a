"""One rank of opsmith's communicating kernels on a CPU, whose symmetric memory is a file: ``FOLDER RANK RANKS``.

As :mod:`tests.ranks_in_shared_memory`, of the kernels of ``opsmith/kernels/communication`` that answer parallel
problems: of each task every case in every dtype, as it is and with its floats in every other element of transposed
memory; symmetric memory holds garbage before each call.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "1"

import torch
from tests.ranks_in_shared_memory import mapped
from torch.utils._pytree import tree_map_only

from opsmith.backends import manifest
from opsmith.core.problems import SHIPPED_PARALLEL
from opsmith.kernels.communication import all_reduce, products, symmetric
from opsmith.runner.child.triton_start import make_interpreter_quick
from opsmith.suites.parallel.layouts import strided
from opsmith.tasks.parallel_problem import ParallelProblem

KERNELS = Path(symmetric.__file__).parents[1]
#: Bytes of a rank's buffer, and of its signal pad, which is as long as torch's.
BUFFER_BYTES, PAD_BYTES = 8 << 20, 2048
#: Few blocks of short steps, so that small inputs have several, and the last is not full.
MOST_BLOCKS, STEP_BYTES = 3, 512
#: Bytes from which on a second shot pays, and products are pushed: among the small sizes there are some of either kind.
SAVED_BYTES, PUSHED_BYTES = 2000, 300
#: Products of few rows have several tiles, more than blocks; among the small sizes there are some of more rows.
FEW_ROWS, FEW_COLUMNS, MULTIPROCESSORS = 4, 2, 3
DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16, "f16": torch.float16}
#: Garbage before a call: not a number in any float type.
GARBAGE = 0xFF


def tasks() -> tuple[str, ...]:
    """The parallel problems that opsmith's own kernels answer."""
    return tuple(task for task in manifest.read(KERNELS).ranks if not task.endswith(".default"))


def kernel(task: str) -> Callable[..., Any]:
    """The function that answers a task."""
    entry = manifest.read(KERNELS).ranks[task].entry
    assert entry is not None
    file, _, name = entry.rpartition(":")
    module = importlib.import_module("opsmith.kernels." + file.removesuffix(".py").replace("/", "."))
    found: Callable[..., Any] = getattr(module, name)
    return found


def problem(task: str) -> ParallelProblem:
    """A problem, at its small sizes."""
    return ParallelProblem(task, SHIPPED_PARALLEL / f"{task}.py", torch.device("cpu"), small=True)


def cases(loaded: ParallelProblem, ranks: int) -> Iterator[tuple[str, list[list[Any]]]]:
    """A label and every rank's arguments, the same in every process."""
    for case in loaded.cases:
        for dtype in loaded.dtypes or DTYPES:
            drawn = loaded.inputs(case, ranks, 7, DTYPES[dtype])
            yield f"{case} {dtype}", [[converted(leaf, DTYPES[dtype]) for leaf in own] for own in drawn]


def converted(leaf: Any, dtype: torch.dtype) -> Any:
    """A tensor of floats in another dtype."""
    floating = isinstance(leaf, torch.Tensor) and leaf.is_floating_point()
    return leaf.to(dtype) if floating else leaf


def share_memory(folder: Path, rank: int, ranks: int) -> torch.Tensor:
    """Let the kernels find files where they look for symmetric memory; this rank's buffer."""
    buffers, pads = mapped(folder, "buffers", ranks, BUFFER_BYTES), mapped(folder, "pads", ranks, PAD_BYTES)
    tables = [torch.tensor([part.data_ptr() for part in parts]) for parts in (buffers, pads)]

    def get_buffer(of: int, shape: tuple[int, ...], dtype: torch.dtype, storage_offset: int = 0) -> torch.Tensor:
        elements = torch.Size(shape).numel()
        return buffers[of].view(dtype)[storage_offset : storage_offset + elements].view(shape)

    memory = SimpleNamespace(
        rank=rank,
        world_size=ranks,
        buffer_ptrs_dev=tables[0].data_ptr(),
        signal_pad_ptrs_dev=tables[1].data_ptr(),
        get_buffer=get_buffer,
        kept=(tables, pads),
    )

    def memory_of(_group: str, size_bytes: int) -> Any:
        assert size_bytes <= BUFFER_BYTES, size_bytes
        return memory

    vars(symmetric).update(memory_of=memory_of, world_name=lambda: "0", MOST_BLOCKS=MOST_BLOCKS, STEP_BYTES=STEP_BYTES)
    all_reduce.SAVED_BYTES, products.PUSHED_BYTES = SAVED_BYTES, PUSHED_BYTES
    few_tile = products.FEW_TILE._replace(n=FEW_COLUMNS)
    vars(products).update(FEW_ROWS=FEW_ROWS, FEW_TILE=few_tile, multiprocessors=lambda _device: MULTIPROCESSORS)
    return buffers[rank]


def main(folder: Path, rank: int, ranks: int) -> None:
    """Answer every case; leave the results in ``FOLDER/RANK.pt``."""
    make_interpreter_quick()
    torch.set_num_threads(1)
    own = share_memory(folder, rank, ranks)
    results: dict[str, list[Any]] = {}
    for task in tasks():
        loaded, function = problem(task), kernel(task)
        for label, inputs in cases(loaded, ranks):
            layouts = (lambda leaf: leaf), (lambda leaf: strided(leaf) if leaf.is_floating_point() else leaf)
            for layout in layouts:
                group = symmetric.Group(0)
                group.meet()
                own.fill_(GARBAGE)
                group.meet()
                answer = function(*tree_map_only(torch.Tensor, layout, inputs[rank]))
                answers = list(answer) if isinstance(answer, tuple) else [answer]
                results.setdefault(f"{task} {label}", []).append(answers)
    torch.save(results, folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
