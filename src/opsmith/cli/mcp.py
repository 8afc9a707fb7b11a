"""``opsmith mcp``: the judge as tools for coding agents."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from opsmith.agents.workbench import Workbench
from opsmith.cli import selection
from opsmith.cli.preflight import op_patterns
from opsmith.cli.run import Baseline, Jobs, Policy, Timing, Tolerance
from opsmith.core.run import Options
from opsmith.devices import kind_of
from opsmith.errors import MissingDependency
from opsmith.generate.prompt import parse_dsl
from opsmith.runner.machine.cores import default_jobs
from opsmith.suites.traits import Reads, traits_of

EPILOG = """
Examples:

  opsmith mcp --ops 'gelu,softmax*' --dtype bf16,f32

  opsmith mcp --suite modules --problems problems/ --policy any

  claude mcp add opsmith -- opsmith mcp --ops gelu
"""


def mcp(
    suite: selection.Suite = "opinfo",
    ops: selection.Ops = "",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    problems: selection.Problems = None,
    dsl: Annotated[str, typer.Option(help="What to write in.", show_default="triton on a GPU, cpp on a CPU")] = "",
    policy: Policy = "native",
    timing: Timing = "quick",
    baseline: Baseline = "eager",
    tolerance: Tolerance = "strict",
    jobs: Jobs = None,
    most_judging_s: Annotated[float, typer.Option(min=1, help="Seconds that checking one kernel may take.")] = 300.0,
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Folder for accepted kernels and runs; no kernel may read it.")
    ] = Path("opsmith-mcp"),
) -> int:
    """Give coding agents the judge as tools: a server of the Model Context Protocol.

    It speaks over standard input and output, and ends with its input. The agent lists tasks, reads one, has kernels
    checked and timed, and submits one for a run on values that nobody has seen. Accepted kernels are in kernels/ of -o.
    """
    try:
        from opsmith.agents.mcp_server import make_server
    except ModuleNotFoundError as exc:
        raise MissingDependency((exc.name or "mcp").partition(".")[0], extra="mcp") from exc
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend="mcp",
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=op_patterns(selection.parse_ops(ops), suite=suite),
        policy=policy,
        timing=timing,
        baseline=baseline,
        tolerance=tolerance,
        selection=selection.parse_selection(
            suite, problems=problems if traits_of(suite).reads is Reads.PROBLEMS else None, tolerance=tolerance
        ),
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    bench = Workbench(
        options,
        out,
        dsl=parse_dsl(dsl or kind_of(on).default_dsl),
        jobs=jobs or default_jobs(options),
        most_judging_s=most_judging_s,
    )
    with bench:
        make_server(bench).run("stdio")
    return 0
