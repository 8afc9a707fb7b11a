"""Compile the Triton kernels of ``examples/distributed_triton`` for Hopper, without a GPU.

Each kernel is compiled as its host code launches it, for every number of ranks; ``python -m
tests.offline_collectives``.
"""

from __future__ import annotations

import os
import re
import sys
from typing import Any

os.environ["TRITON_INTERPRET"] = "0"

import torch
import triton
import triton.language as tl
from tests.triton_collectives import module
from triton.runtime.jit import MockTensor

from opsmith.prewarm.compiling import AbsentGPU

#: What a device address is to the compiler: a 64-bit integer and a multiple of 16.
ADDRESS = 1 << 40


def compiled(kernel: Any, *args: Any, **meta: Any) -> str:
    """The PTX of a launch."""
    binary = kernel.warmup(*args, grid=(1,), **meta)
    ptx: str = binary.asm["ptx"]
    return ptx


def meetings(ptx: str) -> str:
    """How often blocks meet, how often all warps have seen the signals before these are taken away, and the loads."""
    signals = ptx.count("atom.global.sys.release.add")
    waits = re.findall(r"ld\.volatile(?:(?!ld\.volatile).)*?atom\.global\.sys\.acquire", ptx, re.DOTALL)
    seen = sum("bar.sync" in wait for wait in waits)
    return f"{signals} meetings, {seen} seen by all warps, {'wide' if 'v4' in ptx else 'narrow'} loads"


def main() -> None:
    """Compile, and print a line for each."""
    triton.runtime.driver.set_active(AbsentGPU(90))
    reduce, multiply = module("all_reduce__default"), module("fused_matmul_reduce_scatter__default")
    for dtype, wide, reduction in (
        (torch.float32, tl.float32, "sum"),
        (torch.bfloat16, tl.float32, "avg"),
        (torch.float16, tl.float32, "max"),
        (torch.int64, tl.int64, "product"),
        (torch.uint8, tl.uint8, "min"),
    ):
        for ranks in (2, 4):
            x = MockTensor(dtype)
            step = reduce.STEP_BYTES // dtype.itemsize
            own = {"RANK": ranks - 1, "RANKS": ranks, "PEERS": ranks}
            of_values = {"STEP": step, "REDUCTION": reduction, "WIDE": wide, "num_warps": reduce.WARPS}
            for shots, parts in (("one shot", 1), ("two shots", ranks)):
                of_inputs = (x, x, ADDRESS, ADDRESS, 1 << 20, step)
                ptx = compiled(reduce.all_reduce_kernel, *of_inputs, PARTS=parts, **own, **of_values)
                sys.stdout.write(f"{shots} {dtype} {ranks} ranks: {meetings(ptx)}\n")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows, columns, depth = multiply.TILES[dtype.itemsize]
        x = MockTensor(dtype)
        tiles = {"RANK": 1, "RANKS": 4, "ROWS": rows, "COLUMNS": columns, "DEPTH": depth}
        sizes = (1024, 4096, 512, 512, 1, 4096, 1, 1024, 0)
        ptx = compiled(multiply.multiply_kernel, x, x, ADDRESS, *sizes, **tiles, num_warps=8, num_stages=3)
        sys.stdout.write(f"matmul {dtype}: {'tensor cores' if 'mma' in ptx else 'no tensor cores'}\n")
        block = multiply.ADDED_AT_A_TIME
        compiled(multiply.add_kernel, x, x, 1 << 20, RANKS=4, MEAN=True, BLOCK=block, num_warps=8)


if __name__ == "__main__":
    main()
