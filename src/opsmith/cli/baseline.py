"""``opsmith baseline``: how long the Models of module problems take by themselves."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.baselines.timer import BaselineTimer
from opsmith.cli import selection
from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.core.baseline_times import FILES, BaselineRequest, BaselineTime
from opsmith.errors import BadInput, UnknownName
from opsmith.report.baseline_times import BaselineFolder, speedups_by_level
from opsmith.report.strangers import one_line
from opsmith.runner.machine.cores import MAX_DEVICE_JOBS, timing_jobs

EPILOG = """
Examples:

  opsmith baseline --device cuda

  opsmith baseline my_problems/ --ops 'L1/*' --baselines eager,compile -o timing

  opsmith baseline hf:ScalingIntelligence/KernelBench --dtype bf16 --trials 50

  opsmith baseline --device cuda --jobs 8 -o timing --resume

  opsmith baseline --device cpu --sizes small --json
"""


def baseline(
    problems: selection.ProblemSet = None,
    ops: selection.ProblemPatterns = "",
    baselines: Annotated[
        str,
        typer.Option(help=f"Comma-separated: {', '.join(FILES)}.", show_default="all that the device has"),
    ] = "",
    device: selection.Device = "",
    dtype: Annotated[
        Literal["f32", "f16", "bf16"], typer.Option(help="f32 leaves problems as they are, others convert floats.")
    ] = "f32",
    tf32: Annotated[
        Literal["default", "on", "off"],
        typer.Option(help="Products and convolutions of float32 in tf32; default: as torch sets it."),
    ] = "default",
    sizes: selection.Sizes = "full",
    trials: Annotated[int, typer.Option(min=2, help="Calls that are timed.")] = 100,
    timeout: Annotated[float, typer.Option(min=1, help="Seconds for one problem under one baseline.")] = 600.0,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs",
            "-j",
            min=1,
            help="Problems built and compiled at a time; they stand still while one is timed.",
            show_default=f"1 on a CPU, else one a processor, {MAX_DEVICE_JOBS} at most",
        ),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue an interrupted command with the same -o.")] = False,
    out: Annotated[Path, typer.Option("--out", "-o", help="Parent of the folder of this hardware.")] = Path("timing"),
    json_output: Annotated[bool, typer.Option("--json", help="Print a list with one object for each time.")] = False,
) -> int:
    """Time the Model of each problem under each baseline, in the layout that KernelBench keeps its times in.

    The files are run, each in a process of its own. Exit status: 0 every problem has a time, 1 some problem has none
    under any baseline, 2 wrong usage or bad input.
    """
    on = selection.parse_device(device)
    files = selection.chosen_problems(problems, ops)
    requests = [
        BaselineRequest(
            task=task,
            file=str(file.absolute()),
            baseline=name,
            device=on,
            small=sizes == "small",
            dtype=dtype,
            tf32=tf32,
            trials=trials,
        )
        for task, file in files.items()
        for name in _chosen(baselines, on)
    ]
    timer = BaselineTimer(on, timeout_s=timeout, jobs=jobs or timing_jobs(on))
    asked = {"dtype": dtype, "tf32": tf32, "sizes": sizes, "trials": trials}
    folder = BaselineFolder(out, timer.environment, asked)
    found = _time(timer, requests, folder, folder.known() if resume else [])
    if json_output:
        print_json(found)
    else:
        _print(found, folder.path)
    return 0 if {time.task for time in found if time.times} == files.keys() else 1


def _chosen(names: str, device: str) -> Sequence[str]:
    """The baselines asked for, by default all that the device has."""
    on_cuda = device.startswith("cuda")
    chosen = selection.parse_ops(names)
    if not chosen:
        return [name for name in FILES if on_cuda or name != "cudagraphs"]
    for name in chosen:
        if name not in FILES:
            raise UnknownName("baseline", name, list(FILES))
    if "cudagraphs" in chosen and not on_cuda:
        raise BadInput(f"the baseline cudagraphs needs a CUDA device, not {device}; leave it out there")
    return chosen


def _time(
    timer: BaselineTimer, requests: Sequence[BaselineRequest], folder: BaselineFolder, known: Sequence[BaselineTime]
) -> list[BaselineTime]:
    """The times of all requests, in their order; those of them that are known are not taken again.

    What is there is written also when this is interrupted.
    """
    found = {(time.task, time.baseline): time for time in known}
    open_requests = [request for request in requests if (request.task, request.baseline) not in found]
    folder.begin(known)
    try:
        with StageProgress() as progress:
            progress.stage("timing", len(open_requests))
            for done, time in enumerate(timer.time(open_requests), start=1):
                found[time.task, time.baseline] = time
                folder.add(time)
                progress.advance(done, time.task)
    finally:
        asked = ((request.task, request.baseline) for request in requests)
        ordered = [found[place] for place in asked if place in found]
        folder.write(ordered)
    return ordered


def _print(found: Sequence[BaselineTime], folder: Path) -> None:
    console = Console()
    names = list(dict.fromkeys(time.baseline for time in found))
    table = _table("ms", names)
    times = {(time.task, time.baseline): time for time in found}
    for task in dict.fromkeys(time.task for time in found):
        table.add_row(Text(one_line(task)), *(_milliseconds(times[task, name]) for name in names))
    console.print(table)
    if levels := speedups_by_level(found):
        console.print(_speedup_table(levels, names))
    for line in _problems(found):
        console.print(line, soft_wrap=True)
    console.print(f"\ntimes: {folder}", markup=False, highlight=False, soft_wrap=True)


def _speedup_table(levels: dict[str, dict[str, tuple[float, int]]], names: Sequence[str]) -> Table:
    table = _table("eager over it, geomean", names)
    for level, means in levels.items():
        cells = (f"{means[name][0]:.2f}x of {means[name][1]:,}" if name in means else "-" for name in names)
        table.add_row(Text(one_line(level) or "-"), *cells)
    return table


def _table(title: str, names: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column(title)
    for name in names:
        table.add_column(name, justify="right")
    return table


def _milliseconds(time: BaselineTime) -> str:
    return "-" if time.mean_ms is None else f"{time.mean_ms:,.3f} {time.quantity}"


def _problems(found: Sequence[BaselineTime]) -> Iterable[Text]:
    for time in found:
        if time.problem is not None:
            yield Text.assemble((one_line(time.task), "bold"), f" {time.baseline}: {one_line(time.problem)}")
