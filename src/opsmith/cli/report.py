"""``opsmith report``: look at a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from opsmith.core.run import RunDirectory
from opsmith.report.publish import publish_results
from opsmith.report.results import Results
from opsmith.report.tables import print_results

EPILOG = """
Examples:

  opsmith report runs/latest

  opsmith report runs/latest --html /tmp/report.html

  opsmith report runs/latest --json | jq .scores.correct_share
"""


def report(
    run: Annotated[Path, typer.Argument(help="A run directory, as `opsmith run -o` names it.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option(help="Write the page to this file instead of RUN/report.html.", show_default=False)
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print summary.json and nothing else.")] = False,
) -> None:
    """Print a run's table and write its page, its summary and the public exports.

    Works on a run that is not finished as well. RUN gets summary.json, report.html,
    full_results.json, failed_tests.json and operator_summary.csv; of module problems also
    eval_results.json and pass_at_k_results.json.
    """
    directory = RunDirectory.open(run)
    results = Results.read(directory)
    page = publish_results(directory, results, html)
    if json_output:
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(results.summary), indent=2).decode() + "\n")
        return
    console = Console()
    print_results(results, console)
    console.print(f"\npage: {page}", markup=False, highlight=False, soft_wrap=True)
