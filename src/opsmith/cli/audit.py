"""``opsmith dataset audit``: are module problems worth solving, and can a judge tell who solved them?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.audit.pool import audit_all
from opsmith.cli import selection
from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.core.audit import AuditFigures, ProblemAudit
from opsmith.core.problems import counting_order
from opsmith.report.strangers import one_line

EPILOG = """
Examples:

  opsmith dataset audit

  opsmith dataset audit my_problems/ --ops 'L1/*'

  opsmith dataset audit my_problems/level1/23_Softmax.py --json

  opsmith dataset audit hf:ScalingIntelligence/KernelBench --device cuda --sizes full
"""


def audit(
    problems: selection.ProblemSet = None,
    ops: selection.ProblemPatterns = "",
    device: Annotated[str, typer.Option(help="Where values are looked at: cpu or cuda.")] = "cpu",
    sizes: selection.Sizes = "small",
    jobs: Annotated[int | None, typer.Option(min=1, help="Problems at a time.", show_default="one per CPU")] = None,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds that one problem may take.")] = 600.0,
    json_output: Annotated[bool, typer.Option("--json", help="Print a list with one object for each problem.")] = False,
) -> int:
    """Look for module problems that are no problems.

    Their answer is constant, does not depend on an input or a weight, is close to a trivial one, contains an op that
    does nothing, waits for its launches on a large GPU, does not fit 24 GB, or passes in float16. The files are
    run. Exit status: 0 nothing is wrong, 1 something is, 2 there are no such problems.
    """
    files = selection.chosen_problems(problems, ops)
    found = []
    with StageProgress() as progress:
        progress.stage("audit", len(files))
        one_per_cpu = 1 if device.startswith("cuda") else len(os.sched_getaffinity(0))
        audits = audit_all(files, device=device, sizes=sizes, jobs=jobs or one_per_cpu, timeout_s=timeout)
        for done, each in enumerate(audits, start=1):
            found.append(each)
            progress.advance(done, each.problem)
    found.sort(key=lambda each: counting_order(each.problem))
    if json_output:
        print_json(found)
    else:
        _print(found)
    return 1 if any(each.findings for each in found) else 0


def _print(found: Sequence[ProblemAudit]) -> None:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("problem")
    for title in ("launches", "GFLOP", "moved MB", "least us", "peak GiB"):
        table.add_column(title, justify="right")
    table.add_column("findings")
    for each in found:
        checks = dict.fromkeys(finding.check for finding in each.findings)
        table.add_row(one_line(each.problem), *_figures(each.figures), Text(", ".join(checks), "red"))
    console = Console()
    console.print(table)
    for each in found:
        for finding in each.findings:
            line = Text.assemble((one_line(each.problem), "bold"), f" {finding.check}: {one_line(finding.detail)}")
            console.print(line, soft_wrap=True)
    sound = sum(not each.findings for each in found)
    console.print(f"{sound:,} of {len(found):,} problems are sound", highlight=False)


def _figures(figures: AuditFigures | None) -> Sequence[str]:
    if figures is None:
        return ("-",) * 5
    return (
        f"{figures.launches:,}",
        f"{figures.flops / 1e9:,.1f}",
        f"{figures.moved_bytes / 1e6:,.0f}",
        f"{figures.least_us:,.0f}",
        f"{figures.peak_bytes / 2**30:.1f}",
    )
