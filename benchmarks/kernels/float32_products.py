"""Products of strict float32 on a GPU: cuBLAS, the shipped product, and the same with factors split beforehand.

    OPSMITH_LAUNCHER=off python -m benchmarks.kernels.float32_products OUT.json [--seconds 60]

A row is a size: microseconds of cuBLAS and of each way in a CUDA graph of ten, and the largest error of each against
float64, relative to the largest value, for numbers of one sign, whose errors of one sign add up. It tells from which
size on splitting beforehand pays, and with which tile.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch
from benchmarks.kernels.library_class import error, time_us
from benchmarks.models.records import command_of, environment_of, write

from opsmith.core.environment import Environment
from opsmith.kernels import matmul

#: Matrices, rows, terms, columns, and which factors lie along the terms of the other: as in models, and squares.
SIZES = (
    (1, 4096, 4096, 4096, "nn"),
    (1, 4096, 4096, 4096, "nt"),
    (1, 4096, 4096, 4096, "tn"),
    (1, 8192, 1024, 4096, "nt"),
    (1, 8192, 4096, 1024, "nt"),
    (1, 2048, 2048, 2048, "nt"),
    (1, 1024, 1024, 1024, "nt"),
    (1, 16384, 768, 768, "nt"),
    (1, 16384, 768, 3072, "nt"),
    (1, 512, 512, 512, "nt"),
    (64, 512, 512, 512, "nn"),
    (1, 2048, 30522, 768, "nn"),
    (1, 8205, 2949, 5921, "nn"),
    (1, 1001, 1003, 1007, "nn"),
    (1, 1536, 1536, 1536, "nt"),
    (16, 1024, 1024, 1024, "nn"),
    (1, 65536, 256, 256, "nt"),
    (1, 4096, 4096, 512, "nt"),
    (1, 4096, 512, 4096, "nt"),
)


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One size.

    Attributes:
        size: matrices, rows, terms, columns and layout.
        us: way -> microseconds; None where it does not run.
        error: way -> the largest, relative to the largest value.
    """

    size: tuple[int, int, int, int, str]
    us: dict[str, float | None] = {}
    error: dict[str, float] = {}

    def line(self) -> str:
        """Of the table: cuBLAS in microseconds, the others as how many times as fast."""
        cublas = self.us["cublas"] or float("nan")
        ways = [f"{way} {cublas / us:5.2f}x {self.error[way]:.1e}" for way, us in self.us.items() if us is not None]
        return f"{'x'.join(map(str, self.size)):<24} {cublas:9.1f} us  {'  '.join(ways)}"


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is written."""

    command: tuple[str, ...]
    environment: Environment
    rows: list[Row]


def measured(seconds: float) -> Iterator[Row]:
    """Rows until the time is up."""
    until = time.monotonic() + seconds
    for size in SIZES:
        if time.monotonic() > until:
            return
        batch, rows, terms, columns, layout = size
        a, b = torch.rand(batch, rows, terms, device="cuda"), torch.rand(batch, terms, columns, device="cuda")
        a = a.mT.contiguous().mT if layout[0] == "t" else a
        b = b.mT.contiguous().mT if layout[1] == "t" else b
        exact = [torch.bmm(a.double(), b.double())]
        row = Row(size=size)
        _add(row, "cublas", a, b, exact)
        _add(row, "rule", a, b, exact)
        for plan in matmul.BEFOREHAND:
            with matmul.PRODUCTS.force(plan):
                _add(row, f"split {plan.m}x{plan.n}x{plan.k}", a, b, exact)
        yield row


def _add(row: Row, way: str, a: torch.Tensor, b: torch.Tensor, exact: list[torch.Tensor]) -> None:
    multiply = torch.bmm if way == "cublas" else matmul.bmm
    try:
        row.error[way] = error([multiply(a, b)], exact)
        row.us[way] = round(time_us(lambda a, b: [multiply(a, b)], (a, b)), 2)
    except RuntimeError as exc:  # Too much shared memory, or a compiler's.
        print(f"{row.size} {way}: {exc}", flush=True)
        row.us[way] = None


def main() -> None:
    """Measure, write and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--seconds", type=float, default=60)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = False
    rows: list[Row] = []
    for row in measured(options.seconds):
        rows.append(row)
        record = Record(
            command=command_of("benchmarks.kernels.float32_products"), environment=environment_of("cuda"), rows=rows
        )
        write(options.out, record)
        print(row.line(), flush=True)


if __name__ == "__main__":
    main()
