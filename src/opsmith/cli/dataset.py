"""``opsmith dataset``: build, convert, count and check sets of real inputs, and audit sets of module problems."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.cli import selection
from opsmith.cli.audit import EPILOG as AUDIT_EPILOG
from opsmith.cli.audit import audit
from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.core.cache import build_folder
from opsmith.core.run import write_atomically
from opsmith.errors import BadInput
from opsmith.report.strangers import one_line
from opsmith.runner.clock.eager_times import eager_measurer
from opsmith.runner.processes.starting import start_processes
from opsmith.traces.build import build as build_rows
from opsmith.traces.build import measurable, origins, unbuild
from opsmith.traces.build import most_per_op as most
from opsmith.traces.grammar import print_trace
from opsmith.traces.hub import local_path
from opsmith.traces.measurements import Input, Measurement
from opsmith.traces.measurements import measure as measure_missing
from opsmith.traces.schema import (
    DATASET_ENDINGS,
    SHIPPED_PATH,
    Row,
    check_ending,
    read_dataset,
    read_raw_rows,
    write_dataset,
)
from opsmith.traces.statistics import Statistics
from opsmith.traces.statistics import count as count_rows
from opsmith.traces.trace_file import Trace, find_traces, read_trace
from opsmith.traces.validation import Finding
from opsmith.traces.validation import validate as validate_rows

HELP = "Build, convert, count and check sets of real inputs; audit sets of module problems."

BUILD_EPILOG = """
Examples:

  opsmith dataset build traces/ -o inputs.parquet

  opsmith dataset build resnet50.txt llama.txt -o inputs.json

  opsmith dataset build traces/ -o origins.parquet --subset ops_traces_models

  opsmith dataset build traces/ -o inputs.parquet --measure --device cuda
"""

CONVERT_EPILOG = """
Examples:

  opsmith dataset convert inputs.parquet -o inputs.json

  opsmith dataset convert inputs.json -o inputs.txt

  opsmith dataset convert hf:GPUMODE/backendbench_tests -o public.parquet
"""

STATS_EPILOG = """
Examples:

  opsmith dataset stats

  opsmith dataset stats inputs.parquet

  opsmith dataset stats inputs.parquet hf:GPUMODE/backendbench_tests

  opsmith dataset stats traces/ --json | jq .[0].ops
"""

VALIDATE_EPILOG = """
Examples:

  opsmith dataset validate inputs.parquet

  opsmith dataset validate inputs.json --json | jq length
"""

#: Findings, ops and reasons shown; the rest is counted, and --json has them all.
SHOWN_FINDINGS, SHOWN_OPS, SHOWN_REASONS = 40, 15, 10

Source = Annotated[str, typer.Argument(help="A dataset (.parquet, .json) or hf:OWNER/NAME.", show_default=False)]


def build(
    files: Annotated[
        list[Path],
        typer.Argument(help="Trace files, folders of *.txt ones, and datasets to merge with them.", show_default=False),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="Dataset to write: .parquet or .json.", show_default=False)],
    subset: Annotated[
        Literal["torchbench", "ops_traces_models"],
        typer.Option(help="The distinct inputs, or which model makes which call."),
    ] = "torchbench",
    most_per_op: Annotated[
        int | None,
        typer.Option(min=1, help="At most N inputs of each op; models choose in turn.", show_default="all"),
    ] = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="Run and time every input with eager on --device, one at a time.")
    ] = False,
    device: selection.Device = "",
) -> None:
    """Make a dataset out of traces and datasets: every distinct input once, counts summed, models merged.

    The same traces make the same bytes, measurements apart. These go into OUT.measurements.jsonl
    as they are made; a build that was killed goes on from there.
    """
    check_ending(out)
    if (measure or most_per_op) and subset != "torchbench":
        raise BadInput("--measure and --most-per-op are for the distinct inputs: leave --subset out")
    datasets = [path for path in files if path.suffix in DATASET_ENDINGS]
    if datasets and subset != "torchbench":
        raise BadInput(f"{datasets[0]} does not tell the calls of its models apart; give traces for --subset {subset}")
    paths = find_traces([path for path in files if path not in datasets])
    with StageProgress() as progress:
        progress.stage("read", len(paths))
        traces = _read_traces(paths, progress.advance)
        others = [row for path in datasets for row in read_dataset(path)]
        asked = None if most_per_op is None else {row.uuid for row in most(build_rows(traces, others), most_per_op)}
        measurements = None
        if measure:
            inputs = [(uuid, call) for uuid, call in measurable(traces, others) if asked is None or uuid in asked]
            measurements = _measure(inputs, out, selection.parse_device(device), progress)
    if subset == "torchbench":
        rows = build_rows(traces, others, measurements=measurements)
        rows = [row for row in rows if asked is None or row.uuid in asked]
        write_dataset(out, rows)
        sys.stdout.write(f"{out}: {_outline(rows)}\n")
    else:
        pairs = origins(traces)
        write_dataset(out, pairs)
        sys.stdout.write(f"{out}: rows {len(pairs):,}, traces {len(traces):,}\n")


def convert(
    source: Annotated[
        str,
        typer.Argument(
            help="A dataset (.parquet, .json), a trace (.txt), a folder of traces or hf:OWNER/NAME.", show_default=False
        ),
    ],
    out: Annotated[
        Path, typer.Option("--out", "-o", help="File to write: .parquet, .json or .txt.", show_default=False)
    ],
) -> None:
    """Write a dataset in another format. A trace (.txt) keeps calls and counts only."""
    if out.suffix != ".txt":
        check_ending(out)
    rows = _load(source)
    if out.suffix == ".txt":
        _write_text(out, print_trace(unbuild(rows, source=source)))
    else:
        write_dataset(out, rows)
    sys.stdout.write(f"{out}: {_outline(rows)}\n")


def stats(
    sources: Annotated[
        list[str] | None,
        typer.Argument(
            help="Datasets (.parquet, .json), traces (.txt), folders of traces or hf:OWNER/NAME.",
            show_default="the set that comes with opsmith",
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print a list with one object for each source.")] = False,
) -> None:
    """Count models, ops, inputs, layouts, dtypes and exclusions; several sources side by side."""
    with StageProgress() as progress:
        named = sources or [str(SHIPPED_PATH)]
        progress.stage("count", len(named))
        counted = []
        for done, source in enumerate(named, start=1):
            counted.append(count_rows(_load(source), source=source))
            progress.advance(done)
    if json_output:
        print_json(counted)
        return
    Console().print(_figures(counted))


def validate(
    source: Source,
    json_output: Annotated[bool, typer.Option("--json", help="Print a list with one object for each finding.")] = False,
) -> int:
    """Check every row: it parses, its fields agree, and torch has its op.

    Exit status: 0 nothing is wrong, 1 something is, 2 the file is no dataset.
    """
    rows = read_raw_rows(local_path(source))
    with StageProgress() as progress:
        progress.stage("validate", len(rows))
        findings = validate_rows(rows, advance=progress.advance)
    if json_output:
        print_json(findings)
    else:
        _print_findings(findings)
        sys.stdout.write(f"{source}: {len(rows):,} rows, {len(findings):,} findings\n")
    return 1 if findings else 0


#: The verbs, in the order of the help, with the examples below it.
COMMANDS: tuple[tuple[Callable[..., int | None], str], ...] = (
    (build, BUILD_EPILOG),
    (convert, CONVERT_EPILOG),
    (stats, STATS_EPILOG),
    (validate, VALIDATE_EPILOG),
    (audit, AUDIT_EPILOG),
)

# ---------------------------------------------------------------- reading and writing


def _read_traces(paths: Iterable[Path], advance: Callable[[int], None]) -> list[Trace]:
    traces = []
    for done, path in enumerate(paths, start=1):
        traces.append(read_trace(path))
        advance(done)
    return traces


def _measure(inputs: Sequence[Input], out: Path, device: str, progress: StageProgress) -> Mapping[str, Measurement]:
    """Measure what the journal of ``out`` does not hold yet; everything that it holds then."""
    progress.stage("starting", 0)
    with start_processes(device) as processes, eager_measurer(processes, device, builds=build_folder()) as measurer:
        progress.stage(f"measure on {measurer.device}", len(inputs))
        return measure_missing(inputs, dataset=out, device=measurer.device, measurer=measurer, advance=progress.advance)


def _load(source: str) -> list[Row]:
    path = local_path(source)
    if path.is_dir() or path.suffix == ".txt":
        return build_rows(map(read_trace, find_traces([path])))
    return read_dataset(path)


def _write_text(path: Path, text: str) -> None:
    try:
        write_atomically(path, text.encode())
    except OSError as exc:
        raise BadInput(f"{path} cannot be written: {exc.strerror}") from exc


def _print_findings(findings: Sequence[Finding]) -> None:
    for finding in findings[:SHOWN_FINDINGS]:
        field = f" {finding.field}" if finding.field else ""
        sys.stdout.write(f"row {finding.row}{field}: {finding.problem}\n")
    if len(findings) > SHOWN_FINDINGS:
        sys.stdout.write(f"and {len(findings) - SHOWN_FINDINGS:,} more; --json has them all\n")


def _outline(rows: Sequence[Row]) -> str:
    ops, models = {row.op_name for row in rows}, {model for row in rows for model in row.in_models}
    excluded = sum(not row.included_in_benchmark for row in rows)
    return f"inputs {len(rows):,}, ops {len(ops):,}, models {len(models):,}, excluded {excluded:,}"


# ---------------------------------------------------------------- the table of figures


def _figures(counted: Sequence[Statistics]) -> Table:
    """One column a source, one row a figure; what a figure is made of stands indented below it."""
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("", overflow="fold")
    for each in counted:
        table.add_column(Text(Path(each.source).name), justify="right", overflow="fold")
    table.add_row("models", *[f"{each.models:,}" for each in counted])
    _add_parts(table, [each.families for each in counted])
    table.add_row("calls", *[f"{each.calls:,}" for each in counted])
    table.add_row("ops", *[f"{each.ops:,}" for each in counted])
    table.add_row("inputs", *[f"{each.inputs:,}" for each in counted])
    table.add_row("  strided", *[_share(each.strided, each.inputs) for each in counted])
    table.add_row("  synthetic", *[_share(each.synthetic, each.inputs) for each in counted])
    table.add_row("  measured", *[_share(each.measured, each.inputs) for each in counted])
    table.add_row("  overhead-dominated", *[_share(each.overhead_dominated, each.inputs) for each in counted])
    table.add_row("  excluded", *[_share(each.excluded, each.inputs) for each in counted])
    table.add_row("inputs by dtype of a tensor")
    _add_parts(table, [each.dtypes for each in counted])
    table.add_row("inputs by op")
    _add_parts(
        table,
        [{op.op_name.removeprefix("aten."): op.inputs for op in each.per_op} for each in counted],
        limit=SHOWN_OPS,
    )
    if any(each.reasons for each in counted):
        table.add_row("inputs by reason of exclusion")
        _add_parts(table, [each.reasons for each in counted], limit=SHOWN_REASONS)
    return table


def _add_parts(table: Table, parts: Sequence[Mapping[str, int]], *, limit: int | None = None) -> None:
    """One row for each name, the largest sum over the sources first."""
    sums = Counter[str]()
    for part in parts:
        sums.update(part)
    for name, _ in sums.most_common(limit):
        table.add_row(Text(f"  {one_line(name)}"), *[f"{part.get(name, 0):,}" for part in parts], style="bright_black")
    if limit is not None and len(sums) > limit:
        table.add_row(f"  and {len(sums) - limit:,} more", style="bright_black")


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({100 * part / whole:.1f} %)" if part else "0"
