"""``opsmith prewarm``: the shipped kernels are compiled before anybody waits for them."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from opsmith.cli import selection
from opsmith.cli.document import Json
from opsmith.cli.progress import StageProgress
from opsmith.core.dtypes import parse_dtypes
from opsmith.core.op import matches
from opsmith.devices import kind_of
from opsmith.errors import BadInput
from opsmith.prewarm.tasks import Task, Warmed
from opsmith.prewarm.warming import shipped_entries, warm

EPILOG = """
Examples:

  opsmith prewarm

  opsmith prewarm --dtype bf16 --inputs 20

  opsmith prewarm --ops 'mm*,native_layer_norm*' --json

  opsmith prewarm --arch 90
"""


def prewarm(
    ops: selection.Ops = "",
    dtype: Annotated[str, typer.Option(help="Comma-separated dtypes of the calls.")] = "f32,bf16",
    inputs: Annotated[int, typer.Option(min=1, help="Different inputs of an op and dtype at most.")] = 5,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that compile at the same time.", show_default="all cores")
    ] = None,
    arch: Annotated[
        int | None,
        typer.Option(min=70, help="Compute capability times ten of a GPU that is not here.", show_default="this GPU"),
    ] = None,
    json_output: Json = False,
) -> int:
    """Compile the shipped kernels for the inputs that traced models give them most.

    Triton keeps them in its cache on disk; what is there already is not compiled again, and a command that was
    interrupted goes on where it was. Exit status: 0 all compiled, 1 a call could not be compiled, 2 wrong usage.
    """
    tasks = chosen_tasks(ops, dtype)
    if not arch and not kind_of(selection.parse_device("")).nvidia_driver:
        raise BadInput("there is no NVIDIA GPU to compile for; name one with --arch, such as --arch 90 for an H200")
    done: list[Warmed] = []
    with StageProgress() as progress:
        progress.stage("compiling", len(tasks))
        for one in warm(tasks, inputs=inputs, jobs=jobs or len(os.sched_getaffinity(0)), architecture=arch):
            done.append(one)
            progress.advance(len(done), f"{sum(each.compiled for each in done)} kernels")
    done.sort(key=lambda one: (one.op, one.dtype))
    failed = [one for one in done if one.problem is not None]
    if json_output:
        sys.stdout.write(json.dumps([msgspec.to_builtins(one) for one in done], indent=1) + "\n")
    else:
        _show(done, failed)
    return 1 if failed else 0


def chosen_tasks(ops: str, dtype: str) -> list[Task]:
    """The shipped kernels that ``--ops`` names, in each of the dtypes.

    Raises:
        BadInput: it names none.
        UnknownName: a name that is no dtype.
    """
    entries = shipped_entries()
    patterns = selection.parse_ops(ops)
    chosen = [op for op in entries if not patterns or any(matches(op, pattern) for pattern in patterns)]
    if not chosen:
        raise BadInput(f"no shipped kernel matches {ops!r}; `opsmith ops --backend opsmith` lists them")
    return [Task(op, name, entries[op]) for op in chosen for name in parse_dtypes(dtype)]


def _show(done: Sequence[Warmed], failed: Sequence[Warmed]) -> None:
    console = Console()
    compiled, cached = sum(one.compiled for one in done), sum(one.cached for one in done)
    calls, declined = sum(one.calls for one in done), sum(one.declined for one in done)
    console.print(
        f"{compiled} kernels compiled, {cached} were there; for {calls} inputs of {len({one.op for one in done})} ops, "
        f"of which {declined} are left to PyTorch",
        highlight=False,
    )
    for one in failed:
        console.print(f"{one.op} {one.dtype}: {one.problem}", markup=False, highlight=False)
