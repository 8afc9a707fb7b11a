"""``opsmith serve``: the evaluation service and its web page."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli import selection
from opsmith.cli.preflight import op_patterns
from opsmith.cli.progress import StageProgress
from opsmith.cli.run import Baseline, Jobs, Policy, Timing, Tolerance
from opsmith.core.run import Options
from opsmith.errors import BadInput, MissingDependency
from opsmith.runner.machine.cores import default_jobs
from opsmith.suites.traits import Reads, traits_of

EPILOG = """
Examples:

  opsmith token create me --role admin

  opsmith serve --suite smoke --device cpu --timing off

  opsmith serve --suite opinfo,traces --dtype bf16 --host 0.0.0.0 --db postgresql://opsmith@db/opsmith
"""

DATA = Path("opsmith-service")

Data = Annotated[Path, typer.Option(help="Folder of the server; it has the SQLite file, and no kernel may read it.")]
Db = Annotated[
    str | None,
    typer.Option(
        "--db", help="sqlite:///FILE or postgresql://USER@HOST/NAME.", show_default="service.sqlite in --data"
    ),
]


def database_url(data: Path, url: str | None) -> str:
    """Where a server's database is."""
    return url or f"sqlite:///{data.absolute() / 'service.sqlite'}"


def serve(
    suite: Annotated[str, typer.Option(help="What is asked; several suites with commas.")] = "opinfo",
    ops: selection.Ops = "",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    problems: selection.Problems = None,
    policy: Policy = "native",
    timing: Timing = "quick",
    baseline: Baseline = "eager",
    tolerance: Tolerance = "strict",
    jobs: Jobs = None,
    most_judging_s: Annotated[float, typer.Option(min=1, help="Seconds that judging one kernel may take.")] = 300.0,
    data: Data = DATA,
    db: Db = None,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to listen on; 0 for one that is free.")] = 8420,
    run: Annotated[
        list[Path] | None,
        typer.Option(help="Show this run directory too; several times for several.", show_default=False),
    ] = None,
    max_request_mib: Annotated[float, typer.Option(min=0.001, help="Largest request.")] = 8.0,
    max_rate: Annotated[float, typer.Option(min=0.1, help="Requests a second of one token.")] = 50.0,
    max_connections: Annotated[int, typer.Option(min=1, help="Connections of one address at a time.")] = 200,
    trusted_proxy: Annotated[
        list[str] | None,
        typer.Option(
            help="Address or network of a proxy whose X-Forwarded-For is believed; several times for several.",
            show_default=False,
        ),
    ] = None,
    accept_missing_layers: Annotated[
        bool,
        typer.Option(
            "--accept-missing-layers",
            help="Start although layers of the sandbox are missing: submitted kernels may then read and change what "
            "the server's account can, or send it away.",
        ),
    ] = False,
) -> int:
    """Judge kernels that are submitted over HTTP, and show what was found on a web page.

    Kernels wait in a queue that survives a kill, and are judged as `opsmith check` would. Every request needs a token
    of `opsmith token create`. Ctrl-C ends the server; what is not judged by then is judged after the next start.
    """
    try:
        from opsmith.serve.connections import parse_proxies
        from opsmith.serve.server import Settings
        from opsmith.serve.server import serve as start
        from opsmith.serve.settings import Limits
    except ModuleNotFoundError as exc:
        raise MissingDependency(exc.name or "fastapi", extra="serve") from exc
    on = selection.parse_device(device)
    suites = tuple(
        Options(
            suite=name,
            backend="submitted",
            device=on,
            dtypes=selection.parse_dtype(dtype, suite=name, device=on),
            ops=op_patterns(selection.parse_ops(ops), suite=name),
            policy=policy,
            timing=timing,
            baseline=baseline,
            tolerance=tolerance,
            selection=selection.parse_selection(
                name, problems=problems if traits_of(name).reads is Reads.PROBLEMS else None, tolerance=tolerance
            ),
        )
        for name in selection.parse_ops(suite)
    )
    if not suites or len({options.suite for options in suites}) < len(suites):
        raise BadInput("--suite takes one suite or several different ones: --suite smoke,opinfo")
    settings = Settings(
        suites=suites,
        data=data.absolute(),
        database_url=database_url(data, db),
        host=host,
        port=port,
        jobs=jobs or default_jobs(suites[0]),
        most_judging_s=most_judging_s,
        every_layer=not accept_missing_layers,
        runs=tuple(run or ()),
        limits=Limits(request_bytes=int(max_request_mib * 2**20), requests_per_s=max_rate, connections=max_connections),
        proxies=parse_proxies(trusted_proxy or ()),
    )
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.WARNING, stream=sys.stderr)
    with StageProgress() as progress:
        start(settings, progress=progress, ready=lambda url: _say(f"opsmith serves on {url}"))
    return 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()
