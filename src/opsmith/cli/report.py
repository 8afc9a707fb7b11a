"""``opsmith report``: look at a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console

from opsmith.cli.document import print_json
from opsmith.core.run import RunDirectory
from opsmith.report.baseline_scores import scores_against
from opsmith.report.publish import publish_results
from opsmith.report.results import Results
from opsmith.report.tables import print_against, print_results

EPILOG = """
Examples:

  opsmith report runs/latest

  opsmith report runs/latest --html /tmp/report.html

  opsmith report runs/latest --json | jq .scores.correct_share

  opsmith report runs/latest --baseline-times timing/NVIDIA_H200/baseline_time_torch_compile_inductor_default.json
"""


def report(
    run: Annotated[Path, typer.Argument(help="A run directory, as `opsmith run -o` names it.", show_default=False)],
    html: Annotated[
        Path | None, typer.Option(help="Write the page to this file instead of RUN/report.html.", show_default=False)
    ] = None,
    baseline_times: Annotated[
        Path | None,
        typer.Option(
            help="Score module problems against this file of baseline times, too; with --json its levels replace the "
            "run's.",
            show_default=False,
        ),
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
    against = None if baseline_times is None else scores_against(results, baseline_times)
    page = publish_results(directory, results, html)
    if json_output:
        summary = (
            results.summary if against is None else msgspec.structs.replace(results.summary, levels=against.levels)
        )
        print_json(summary)
        return
    console = Console()
    print_results(results, console)
    if against is not None:
        print_against(against, str(baseline_times), console)
    console.print(f"\npage: {page}", markup=False, highlight=False, soft_wrap=True)
