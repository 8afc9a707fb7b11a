"""What the loop over merges in ``sort_bitonic`` costs and saves, against the same network written out.

    python -m benchmarks.kernels.sort_tiles -o sort-tiles.json

Sorts four million packed keys in tiles of some sizes, and as many as one program sorts. The record has seconds to
compile and microseconds to run.
"""

from __future__ import annotations

import argparse
import datetime as dt
import json
import platform
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl

from opsmith.kernels.common.ordering import partner_of, sort_bitonic

ELEMENTS = 1 << 22
#: Of a tile: the logarithm of its elements, how many a program sorts, and its warps.
TILES = ((11, 1, 8), (8, 8, 8), (6, 32, 8))


@triton.jit
def sort_written_out(x: tl.tensor, n: tl.tensor, log_size: tl.constexpr) -> tl.tensor:
    """As :func:`opsmith.kernels.common.ordering.sort_bitonic`, without its loop."""
    for log in tl.static_range(1, log_size + 1):
        falling = ((n >> log) & 1) != 0
        for j in tl.static_range(log):
            other = partner_of(x, 1 << (log - 1 - j))
            upper = (n & (1 << (log - 1 - j))) != 0
            x = tl.where(upper != falling, tl.maximum(x, other), tl.minimum(x, other))
    return x


@triton.jit
def sort_kernel(
    out_ptr: tl.tensor, x_ptr: tl.tensor, log_size: tl.constexpr, height: tl.constexpr, loop: tl.constexpr
) -> None:
    """Sort height tiles of ``2^log_size`` elements each."""
    i = tl.arange(0, height << log_size)
    n = i % (1 << log_size)
    offset = tl.program_id(0) * (height << log_size) + i
    x = tl.load(x_ptr + offset)
    tl.store(out_ptr + offset, sort_bitonic(x, n, log_size, 1) if loop else sort_written_out(x, n, log_size))


def measured(log: int, height: int, warps: int, *, loop: bool) -> dict[str, Any]:
    """One row of the record.

    Raises:
        AssertionError: it does not sort.
    """
    x = torch.randint(-(2**62), 2**62, (ELEMENTS,), device="cuda")
    out = torch.empty_like(x)

    def run(programs: int) -> None:
        sort_kernel[programs,](out, x, log, height, loop, num_warps=warps)

    start = time.perf_counter()
    run(ELEMENTS // (height << log))
    torch.cuda.synchronize()
    compiled_s = time.perf_counter() - start
    assert torch.equal(out, x.view(-1, 1 << log).sort(1).values.view(-1)), "it does not sort"
    all_us, one_us = (
        triton.testing.do_bench(partial(run, programs), return_mode="median") * 1e3
        for programs in (ELEMENTS // (height << log), 1)
    )
    return {
        "elements of a tile": 1 << log,
        "tiles of a program": height,
        "warps": warps,
        "written": "loop" if loop else "out",
        "compiled_s": round(compiled_s, 2),
        "all_us": round(all_us, 1),
        "one_program_us": round(one_us, 1),
    }


def main() -> None:
    """Measure, print and write the record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--out", type=Path, required=True)
    options = parser.parse_args()
    rows = [measured(*tile, loop=loop) for tile in TILES for loop in (False, True)]
    record = {
        "command": ["python", "-m", "benchmarks.kernels.sort_tiles", *sys.argv[1:]],
        "utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "platform": platform.platform(),
        "rows": rows,
    }
    options.out.write_text(json.dumps(record, indent=2) + "\n")
    for row in rows:
        print(row)


if __name__ == "__main__":
    main()
