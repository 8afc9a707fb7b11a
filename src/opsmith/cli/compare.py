"""``opsmith compare``: run against run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from opsmith.core.run import RunDirectory
from opsmith.errors import UsageError
from opsmith.report.compare import compare as compare_results
from opsmith.report.compare_tables import print_comparison
from opsmith.report.results import Results

EPILOG = """
Examples:

  opsmith compare runs/before runs/after

  opsmith compare runs/baseline runs/monday runs/tuesday --json
"""


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more run directories; the first is the baseline.", show_default=False)
    ],
    json_output: Annotated[
        bool, typer.Option("--json", help="Print a list with one comparison for each further run, and nothing else.")
    ] = False,
) -> None:
    """Compare runs with the first one: ops gained and lost, cases that changed, speed against speed."""
    if len(runs) < 2:
        raise UsageError("a comparison takes two runs or more: opsmith compare BEFORE AFTER")
    baseline, *others = [Results.read(RunDirectory.open(run)) for run in runs]
    comparisons = [compare_results(baseline, other) for other in others]
    if json_output:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(comparisons), indent=2).decode() + "\n")
        return
    console = Console()
    for number, comparison in enumerate(comparisons):
        if number:
            console.rule(style="bright_black")
        print_comparison(comparison, console)
