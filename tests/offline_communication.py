"""Compile opsmith's communicating kernels for Hopper, without a GPU; ``python -m tests.offline_communication``.

The host code of each kernel runs on small CPU tensors, as one of the ranks, and what it would launch is compiled.
"""

from __future__ import annotations

import os
import sys
import traceback
from types import SimpleNamespace
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
from benchmarks.distributed import kernels as measured
from triton.runtime.jit import MockTensor

from opsmith.prewarm.compiling import SHARED_MEMORY_BYTES, Compiler

#: What a device address is to the compiler: a 64-bit integer and a multiple of 16.
ADDRESS = 1 << 40
#: Of the device that is compiled for.
MULTIPROCESSORS = 132
#: Sizes as those of a model: multiples of 16, and no more than a CPU makes in no time.
SIZES = {"HIDDEN": 4096, "INNER": 1024, "PREFILL": 256, "VOCABULARY": 1024, "DECODE": (1, 16)}


def mocked(argument: Any) -> Any:
    """What the compiler sees of an argument."""
    return MockTensor(argument.dtype) if isinstance(argument, torch.Tensor) else argument


class Launches:
    """Stands in for launching: compiles.

    Attributes:
        lines: of each kernel what it takes.
    """

    def __init__(self) -> None:
        self.lines: dict[str, None] = {}

    def launch(self, kernel: Any, _grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
        """See :func:`opsmith.kernels.communication.symmetric.launch`."""
        binary = kernel.warmup(*map(mocked, args), grid=(1,), **meta)
        shared, ptx = binary.metadata.shared, binary.asm["ptx"]
        assert shared <= SHARED_MEMORY_BYTES, f"{kernel.__name__} takes {shared} bytes of shared memory"
        spills = "local" if ".local" in ptx else "no local"
        signals = ptx.count("atom.global.sys.release.add")
        wide = "wide" if ".v4" in ptx else "narrow"
        products = next((name for name in ("wgmma", "mma") if name in ptx), "none")
        self.lines[f"{kernel.__name__}: {signals} signals, {wide} accesses, {spills} memory, products {products}"] = (
            None
        )


def memory_of(ranks: int) -> Any:
    """What stands for symmetric memory on rank 1."""
    return SimpleNamespace(
        rank=1,
        world_size=ranks,
        buffer_ptrs_dev=ADDRESS,
        signal_pad_ptrs_dev=ADDRESS,
        get_buffer=lambda _rank, shape, dtype, storage_offset=0: torch.empty(shape, dtype=dtype),
    )


def main() -> int:
    """Compile, and print a line for each kernel and what fails."""
    Compiler(90)
    from opsmith.kernels.communication import exchange, experts, gather_scatter, products, symmetric

    vars(measured).update(SIZES)
    launches, failed = Launches(), 0
    # What it launches is compiled by other tests.
    vars(products).update(write_product=lambda *_: None, multiprocessors=lambda _device: MULTIPROCESSORS)
    for ranks in (2, 4):
        own = memory_of(ranks)
        vars(symmetric).update(memory_of=lambda *_, own=own: own, world_name=lambda: "0", INTERPRETED=True)
        for module in (exchange, experts):
            vars(module).update(gathered_counts=lambda counts, _name=None, ranks=ranks: torch.stack([counts] * ranks))
        make = measured.Maker(1, ranks, torch.device("cpu"))
        for row in measured.rows():
            try:
                function = measured.kernel(row.task)
                for module in [each for name, each in sys.modules.items() if "kernels.communication" in name]:
                    vars(module).update(launch=launches.launch)
                inputs = row.inputs(make)
                for dtype in (torch.bfloat16, torch.float32):
                    function(*(x.to(dtype) if is_float(x) else x for x in inputs))
            except Exception:  # noqa: BLE001 - whatever the kernel or the compiler raises is what is looked for
                failed += 1
                sys.stdout.write(f"FAILED {row.task} {row.label} on {ranks} ranks: {traceback.format_exc()[-3000:]}\n")
    x = torch.zeros(4096, dtype=torch.bfloat16)
    gather_scatter.all_gather(x, 4)
    gather_scatter.broadcast(x, 1)
    sys.stdout.write("".join(f"{line}\n" for line in sorted(launches.lines)))
    return int(failed > 0)


def is_float(x: Any) -> bool:
    """Whether it is a tensor of floats."""
    return isinstance(x, torch.Tensor) and x.is_floating_point()


if __name__ == "__main__":
    sys.exit(main())
