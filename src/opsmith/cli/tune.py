"""``opsmith tune``: which tiles of the shipped kernels are fastest on this GPU."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table as Rows

from opsmith.cli import selection
from opsmith.cli.document import Json
from opsmith.cli.prewarm import chosen_tasks
from opsmith.cli.progress import StageProgress
from opsmith.devices import kind_of
from opsmith.errors import BadInput
from opsmith.tune.measuring import compile_all, find_works, gpu, time_all
from opsmith.tune.works import Table, Tuned, TunedWork, own_table

#: Those whose kernels look into a table.
OPS = (
    "mm.default,addmm.default,bmm.default,baddbmm.default,convolution.default,"
    "_scaled_dot_product_flash_attention.default,_scaled_dot_product_efficient_attention.default,"
    "_scaled_dot_product_flash_attention_backward.default,_scaled_dot_product_efficient_attention_backward.default"
)
EPILOG = """
Examples:

  opsmith tune

  opsmith tune --ops mm,addmm --dtype bf16 --inputs 40

  opsmith tune --out tuned.json --json
"""


def tune(
    ops: selection.Ops = OPS,
    dtype: Annotated[str, typer.Option(help="Comma-separated dtypes of the calls.")] = "f32,bf16",
    inputs: Annotated[int, typer.Option(min=1, help="Different inputs of an op and dtype at most.")] = 10,
    jobs: Annotated[
        int | None, typer.Option(min=1, help="Processes that compile at the same time.", show_default="all cores")
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", help="File of the table.", show_default="in opsmith's cache, where kernels look"),
    ] = None,
    json_output: Json = False,
) -> int:
    """Time the tiles of the shipped kernels for the inputs that traced models give them most, and keep the fastest.

    A work is timed as soon as its candidates are compiled, while those of others are. What is in the table already is
    not measured again, so a command that was interrupted goes on where it was. Exit status: 0 all measured, 1 a work
    could not be measured, 2 wrong usage.
    """
    tasks = chosen_tasks(ops, dtype)
    if not kind_of(selection.parse_device("")).nvidia_driver:
        raise BadInput("there is no NVIDIA GPU to measure on; kernels choose tiles by rule where nothing was measured")
    jobs = jobs or len(os.sched_getaffinity(0))
    device, environment = gpu()
    file = out or own_table(device)
    table = Table(file, device, environment)
    tuned: list[tuple[TunedWork, Tuned | None]] = []
    with StageProgress() as progress:
        progress.stage("looking for works", len(tasks))
        works = [work for work in find_works(tasks, inputs=inputs, jobs=jobs, architecture=None) if not table.has(work)]
        progress.stage("compiling and timing", len(works))
        compiled = (work for work, _ in compile_all(works, jobs=jobs, architecture=None))
        for work, one in time_all(compiled):
            tuned.append((work, one))
            if one is not None:
                table.add(work, one)
            progress.advance(len(tuned), f"{work.family} {work.work}: {len(work.candidates)} candidates")
    if json_output:
        found = [{"family": work.family, "work": work.work, "tuned": msgspec.to_builtins(one)} for work, one in tuned]
        sys.stdout.write(json.dumps({"table": str(file), "works": found}, indent=1) + "\n")
    else:
        _show(tuned, file)
    return 1 if any(one is None for _, one in tuned) else 0


def _show(tuned: list[tuple[TunedWork, Tuned | None]], file: Path) -> None:
    console = Console()
    rows = Rows("family", "work", "rule, us", "fastest, us", "times as fast", box=None, header_style="bold")
    for work, one in tuned:
        figures = ["", "", "not measured"]
        if one is not None:
            figures = ["does not run", f"{one.us:.1f}", ""]
            if one.rule_us is not None:
                figures = [f"{one.rule_us:.1f}", f"{one.us:.1f}", f"{one.rule_us / one.us:.2f}"]
        rows.add_row(work.family, work.work, *figures)
    console.print(rows)
    gained = sum(one is not None and (one.rule_us is None or one.us < one.rule_us) for _, one in tuned)
    console.print(f"{len(tuned)} works, {gained} of them faster than by rule: {file}", highlight=False)
