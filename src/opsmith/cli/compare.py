"""``opsmith compare``: run against run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from opsmith.cli.document import print_json
from opsmith.core.run import RunDirectory
from opsmith.errors import UsageError
from opsmith.report.compare import compare as compare_results
from opsmith.report.compare_tables import print_comparison, print_runs
from opsmith.report.results import Results
from opsmith.report.run_table import write_table

EPILOG = """
Examples:

  opsmith compare runs/before runs/after

  opsmith compare runs/baseline runs/monday runs/tuesday --json

  opsmith compare runs/model-a runs/model-b runs/model-c --csv table.csv
"""


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Two or more run directories; the first is the baseline.", show_default=False)
    ],
    json_output: Annotated[
        bool, typer.Option("--json", help="Print a list with one comparison for each further run, and nothing else.")
    ] = False,
    table: Annotated[
        Path | None,
        typer.Option("--csv", help="Write every op or problem of every run to this file.", show_default=False),
    ] = None,
) -> None:
    """Compare runs with the first one: ops gained and lost, cases that changed, speed against speed.

    Three runs or more, and runs of module problems, are shown side by side first: by level, then each
    op or problem that differs. An interval that holds 1 shows no change of speed.
    """
    if len(runs) < 2:
        raise UsageError("a comparison takes two runs or more: opsmith compare BEFORE AFTER")
    results = [Results.read(RunDirectory.open(run)) for run in runs]
    comparisons = [compare_results(results[0], other) for other in results[1:]]
    if table is not None:
        write_table(table, results, comparisons)
    if json_output:
        print_json(comparisons)
        return
    console = Console()
    side_by_side = len(runs) > 2 or any(run.summary.levels for run in results)
    if side_by_side:
        print_runs(results, comparisons, console)
    for number, comparison in enumerate(comparisons):
        if number or side_by_side:
            console.rule(style="bright_black")
        print_comparison(comparison, console)
