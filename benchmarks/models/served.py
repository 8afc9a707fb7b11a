"""Unchanged models on enabled kernels: are the results right, and how much of the work do the kernels do?

::

    python -m benchmarks.models.served --device cpu --kernels examples/cpp_backend -o served.json
    python -m benchmarks.models.served --device cuda --kernels opsmith --models llama,unet -o served.json

Each model of :mod:`benchmarks.models.zoo` runs in eager mode and within ``opsmith.enabled(kernels)``.
The exit status is 1 if a result is out of tolerance or a token differs.

**Tolerance.** Sums in another order differ by about as much as either differs from the exact result, and by how
much a model enlarges that, only the model can tell. So the yardstick is eager's own distance from the same model
in float64: the largest difference of an output over the output's largest element. With kernels it may be
``FACTOR`` (in measurement.py) times that, or the rounding of one operation where eager happens to be exact.
float32 is float32: TF32 is off, since cuDNN takes it for some convolutions and not for others. Greedy tokens are
eager's; the first that is not may only be one that eager's own scores put level with its choice, within the tolerance.
"""

from __future__ import annotations

import argparse
import datetime as dt
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import msgspec
import torch
from benchmarks.models import records
from benchmarks.models.measurement import FACTOR, Found, Subject, measure
from benchmarks.models.zoo import MODELS, Size, build
from rich.console import Console
from rich.table import Table

import opsmith
from opsmith.core.environment import Environment

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Record(msgspec.Struct, frozen=True, kw_only=True):
    """What is committed."""

    command: tuple[str, ...]
    environment: Environment
    made_utc: str
    kernels: str
    size: Size
    dtype: str
    threads: int
    repeats: int
    factor: float
    models: tuple[Found, ...]


def found(options: argparse.Namespace) -> Iterator[Found]:
    """Measure the models asked for, one after the other."""
    for name in options.models.split(","):
        subject = Subject(build(name, options.size), options.device, DTYPES[options.dtype])

        def enter() -> AbstractContextManager[None]:
            return opsmith.enabled(options.kernels, device=torch.device(options.device).type, choose="all")

        yield Found(model=name, **measure(subject, enter, options.device, options.repeats))


def main() -> int:
    """Measure, print the table, write the record; 1 if something is wrong."""
    options = _options()
    torch.set_num_threads(options.threads)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    models = []
    for one in found(options):
        print(f"{one.model}: {'right' if one.right else 'WRONG'}", file=sys.stderr)
        models.append(one)
    record = Record(
        command=records.command_of("benchmarks.models.served"),
        environment=records.environment_of(options.device),
        made_utc=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        kernels=options.kernels,
        size=options.size,
        dtype=options.dtype,
        threads=options.threads,
        repeats=options.repeats,
        factor=FACTOR,
        models=tuple(models),
    )
    if options.out:
        records.write(options.out, record)
    Console(width=160).print(_table(record))
    return 0 if all(one.right for one in models) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="a torch device string")
    parser.add_argument("--kernels", default="opsmith", help="what opsmith.enable takes")
    parser.add_argument("--models", default=",".join(MODELS), help="names with commas between them")
    parser.add_argument("--size", choices=["small", "full"], default="full")
    parser.add_argument("--dtype", choices=sorted(DTYPES), default="f32")
    parser.add_argument("--threads", type=int, default=1, help="of torch, on the CPU")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each state")
    parser.add_argument("-o", "--out", type=Path, help="write the record here as JSON")
    return parser.parse_args()


def _table(record: Record) -> Table:
    table = Table(title=f"{record.kernels} on {record.environment.device_name}, {record.dtype}, {record.size}")
    for column in ("model", "calls", "served", "op time served", "of eager's", "fallbacks"):
        table.add_column(column)
    for column in ("eager ms", "kernels ms", "error eager", "kernels", "tokens"):
        table.add_column(column, justify="right")
    for one in record.models:
        table.add_row(
            *(one.model, str(one.calls_asked), f"{one.calls_served / one.calls_asked:.1%}"),
            f"{one.op_time_served_us / one.op_time_us:.1%}",
            f"{one.eager_op_time_served_us / one.eager_op_time_us:.1%}",
            ", ".join(f"{reason} {count}" for reason, count in one.fallbacks.items()),
            *(f"{one.eager_ms:.1f}", f"{one.kernels_ms:.1f}", f"{one.eager_error:.1e}", f"{one.kernels_error:.1e}"),
            {None: "", True: "equal", False: "a tie" if one.right else "DIFFER"}[one.tokens_equal],
        )
    return table


if __name__ == "__main__":
    raise SystemExit(main())
