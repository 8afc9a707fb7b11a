"""``opsmith book``: pairs of PyTorch modules and the compiler's Triton, for training models."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Annotated

import typer

from opsmith.cli import selection
from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.cli.run import Jobs, Json
from opsmith.core.run import Options, new_seed
from opsmith.errors import BadInput
from opsmith.generate.book.build import OWN_LICENSE, BookSummary, Builder, summarise
from opsmith.generate.book.files import Log, check_ending, write_book
from opsmith.generate.book.pairs import distinct
from opsmith.generate.inductor import Compiler
from opsmith.runner.machine.cores import default_jobs
from opsmith.session import Session

HELP = "Pairs of PyTorch modules and the compiler's Triton, for training models."

BUILD_EPILOG = """
Examples:

  opsmith book build -o book.parquet

  opsmith book build --ops 'L1/*' --limit 10 --device cpu -o book.jsonl

  opsmith book build my_problems/ --license MIT --device cuda -o mine.parquet
"""

#: The compiler takes seconds for a whole network.
MODULE_LIMIT_S = 300.0
#: Draws of a problem's inputs; the judge asks each again with other values, and varies it.
TRIALS = 1


def build(
    out: Annotated[
        Path, typer.Option("--out", "-o", help="Book to write: .parquet, .jsonl or .json.", show_default=False)
    ],
    problems: selection.ProblemSet = None,
    ops: selection.ProblemPatterns = "",
    device: selection.Device = "",
    limit: Annotated[int | None, typer.Option(min=1, help="The first N problems only.", show_default="all")] = None,
    license_id: Annotated[
        str | None,
        typer.Option(
            "--license", help="SPDX licence of the problems.", show_default=f"{OWN_LICENSE}, of opsmith's own"
        ),
    ] = None,
    jobs: Jobs = None,
    json_output: Json = False,
) -> None:
    """Have torch's compiler write Triton for module problems, judge it, and keep what is distinct.

    On a GPU the problems have their own sizes and run there; without one they have their small ones, the compiler
    writes for a GPU that is not there, and Triton's interpreter runs what it wrote. A build that was
    killed goes on from OUT.log.jsonl.
    """
    check_ending(out)
    if problems is not None and license_id is None:
        raise BadInput("a book says under which licence its modules are: name it with --license")
    on = selection.parse_device(device)
    files = selection.chosen_problems(problems, ops)
    files = dict(list(files.items())[:limit])
    options = Options(
        suite="modules",
        backend="book",
        device=on,
        dtypes=("f32",),
        ops=tuple(files),
        policy="any",
        selection=selection.parse_selection(
            "modules", problems=problems, sizes="small" if on == "cpu" else "full", trials=TRIALS
        ),
    )
    summary = _build(out, files, options, license_id=license_id or OWN_LICENSE, jobs=jobs or default_jobs(options))
    if json_output:
        print_json(summary)
    else:
        _print(summary, out)


def _build(out: Path, files: dict[str, Path], options: Options, *, license_id: str, jobs: int) -> BookSummary:
    log = Log(out.with_name(f"{out.name}.log.jsonl"))
    with StageProgress() as progress, tempfile.TemporaryDirectory(prefix="opsmith-book-") as scratch:
        place = Path(scratch)
        with (
            Compiler(row_limit_s=MODULE_LIMIT_S) as compiler,
            Session(options, place / "judged", seed=new_seed(None), jobs=jobs, progress=progress) as session,
        ):
            progress.stage("writing and judging", len(files))
            done: list[str] = []

            def made(task: str) -> None:
                done.append(task)
                progress.advance(len(done), task)

            builder = Builder(
                compiler,
                session,
                small=options.selection.sizes == "small",
                license_id=license_id,
                folder=place / "written",
                log=log,
            )
            entries = builder.build(files, jobs=jobs, made=made)
    pairs, duplicates = distinct([entry.pair for entry in entries if entry.pair is not None])
    write_book(out, pairs)
    return summarise(entries, pairs, duplicates, on=builder.validated_on)


def _print(summary: BookSummary, out: Path) -> None:
    same = ", ".join(f"{count} by {kind}" for kind, count in summary.duplicates.items())
    share = 100 * summary.validated / summary.pairs if summary.pairs else 0.0
    lines = [
        f"{out}: {summary.pairs} pairs of {summary.problems} problems; left out as the same: {same}",
        f"validated: {summary.validated} ({share:.1f} %), on {summary.validated_on}",
        *(f"  no pair, {count}: {reason}" for reason, count in summary.not_paired.items()),
        *(f"  not validated, {count}: {reason}" for reason, count in summary.not_validated.items()),
    ]
    sys.stdout.write("\n".join(lines) + "\n")


COMMANDS = ((build, BUILD_EPILOG),)
