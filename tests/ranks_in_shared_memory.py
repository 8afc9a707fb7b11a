"""One rank of a group on a CPU, whose symmetric memory is a file that all ranks map: ``FOLDER RANK RANKS``.

The kernels of ``examples/distributed_triton`` run under Triton's interpreter, whose atomics are the processor's. All
ranks run as processes beside each other and wait for each other as devices do.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

os.environ["TRITON_INTERPRET"] = "1"

import torch
from tests.triton_collectives import module

from opsmith.runner.child.triton_start import make_interpreter_quick

#: Bytes of a rank's buffer, and of its signal pad, which is as long as torch's.
BUFFER_BYTES, PAD_BYTES = 1 << 17, 2048
#: Reduction, dtype, elements: one block and several, with a last one that is not full.
CASES = [
    ("sum", torch.float32, 1),
    ("sum", torch.bfloat16, 7_000),
    ("avg", torch.float16, 20_011),
    ("max", torch.float32, 9_000),
    ("min", torch.int32, 5_003),
    ("product", torch.int64, 300),
    ("sum", torch.uint8, 65_536),
]
#: What a second shot has to save: never, and always where it saves anything.
SHOTS = {"one": 1 << 30, "two": 0}


def inputs(case: int, rank: int) -> torch.Tensor:
    """What a rank has, small enough that no order of additions matters for a half type."""
    _, dtype, elements = CASES[case]
    drawn = torch.randint(-3, 4, (elements,), generator=torch.Generator().manual_seed(100 * case + rank))
    return drawn.abs().to(dtype) if dtype is torch.uint8 else drawn.to(dtype)


def mapped(folder: Path, name: str, ranks: int, size_bytes: int) -> list[torch.Tensor]:
    """Each rank's part of a file, which is made where it is not there."""
    whole = torch.from_file(str(folder / name), shared=True, size=ranks * size_bytes, dtype=torch.uint8)
    return list(whole.view(ranks, size_bytes))


def main(folder: Path, rank: int, ranks: int) -> None:
    """Reduce every case, in one shot and in two, twice; leave the results in ``FOLDER/RANK.pt``."""
    make_interpreter_quick()
    example = module("all_reduce__default")
    example.STEP_BYTES, example.MOST_BLOCKS = 1024, 5
    buffers, pads = mapped(folder, "buffers", ranks, BUFFER_BYTES), mapped(folder, "pads", ranks, PAD_BYTES)
    addresses = [torch.tensor([part.data_ptr() for part in parts]) for parts in (buffers, pads)]
    buffers_address, pads_address = (table.data_ptr() for table in addresses)
    memory = SimpleNamespace(
        rank=rank, world_size=ranks, buffer_ptrs_dev=buffers_address, signal_pad_ptrs_dev=pads_address
    )
    example.get_symm_mem_workspace = lambda _group, _bytes: memory
    results = {}
    for shots, saved_bytes in SHOTS.items():
        example.SAVED_BYTES = saved_bytes
        for number, (reduction, *_) in enumerate(CASES):
            x = inputs(number, rank)
            for again in range(2):
                out = torch.empty_like(x)
                example._reduce(out, x, reduction, "group")
                results[shots, number, again] = out
    torch.save(results, folder / f"{rank}.pt")


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
