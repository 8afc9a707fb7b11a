"""``opsmith mutants``: which faults in kernels the judge sees, and which the public harness sees."""

from __future__ import annotations

import datetime as dt
import json
import shlex
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from opsmith.cli import selection
from opsmith.cli.document import Json
from opsmith.cli.progress import StageProgress
from opsmith.core.dtypes import parse_dtypes
from opsmith.core.run import write_atomically
from opsmith.errors import BadInput

if TYPE_CHECKING:
    from opsmith.mutation.outcomes import Book
    from opsmith.mutation.study import Study
    from opsmith.mutation.tables import Study as Figures

EPILOG = """
Examples:

  opsmith mutants my_kernels --dtype f32,bf16 --sample 300 --seed 1 -o mutants

  opsmith mutants relu.py opsmith --ops relu.default,add.Tensor --operators 'mask_*,strictness' -o mutants
"""


def mutants(
    subjects: Annotated[
        list[str],
        typer.Argument(
            help="Kernel directories, kernel files, or opsmith for the shipped kernels.", show_default=False
        ),
    ],
    out: Annotated[
        Path,
        typer.Option(
            "--out", "-o", help="Folder of the record; what it holds is not judged again.", show_default=False
        ),
    ],
    ops: selection.Ops = "",
    operators: Annotated[
        str, typer.Option(help="Mutation operators, comma-separated names or wildcards.", show_default="all")
    ] = "",
    dtype: Annotated[str, typer.Option(help="Comma-separated dtypes; each is judged by itself.")] = "f32",
    sample: Annotated[
        int | None, typer.Option(min=1, help="So many mutants, spread over ops and operators.", show_default="all")
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the sample and of the values.")] = 0,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Mutants judged at a time.")] = 2,
    device: selection.Device = "cpu",
    harness: Annotated[
        Path | None,
        typer.Option(help="Checkout of BackendBench.", show_default="installed; else its rule, written anew"),
    ] = None,
    public: Annotated[bool, typer.Option(help="Judge with the public harness too, on the CPU.")] = True,
    equivalence: Annotated[float, typer.Option(min=1, help="Seconds to compare a survivor with its original.")] = 60.0,
    json_output: Json = False,
) -> int:
    """Put one fault at a time into kernels, and report which faults the judge sees.

    The record holds outcomes.jsonl, which grows by a line an outcome, run.json, summary.json and table.md. A command
    that was interrupted goes on where it was. Exit status: 0 no mutant survived, 1 some did, 2 wrong usage.
    """
    from opsmith.mutation.outcomes import Book
    from opsmith.mutation.study import Asked, Study, chosen_operators, chosen_subjects

    asked = Asked(
        dtypes=parse_dtypes(dtype),
        sample=sample,
        seed=seed,
        operators=tuple(each.strip() for each in operators.split(",") if each.strip()),
        device=selection.parse_device(device),
        jobs=jobs,
        public=public,
        harness=None if harness is None else str(harness.resolve()),
        equivalence_s=equivalence,
    )
    chosen_operators(asked.operators)
    out.mkdir(parents=True, exist_ok=True)
    with StageProgress() as progress:
        progress.stage("reading kernels", 0)
        found = chosen_subjects(subjects, [each.strip() for each in ops.split(",") if each.strip()])
        if not found:
            raise BadInput("none of these kernels is in Python and answers one of these ops")
        book = Book(out / "outcomes.jsonl")
        with tempfile.TemporaryDirectory(prefix="opsmith-mutants-") as folder:
            work = Study(asked, found, book, Path(folder), progress, written=lambda: _write_tables(out, book, work))
            try:
                work.run()
            finally:
                study = _write_tables(out, book, work)
    if json_output:
        sys.stdout.write(msgspec.json.encode(study).decode() + "\n")
    else:
        total = study.total
        Console().print(
            f"{study.distinct} mutants of {study.ops} ops by {study.operators} operators: {total.killed} killed, "
            f"{total.survived} survived ({total.allowed} of them allowed by the comparison), "
            f"{total.equivalent} equivalent; {study.harness or 'no public harness'} killed "
            f"{total.harness_killed}: {out / 'table.md'}",
            highlight=False,
        )
    return 1 if study.total.survived else 0


def _write_tables(out: Path, book: Book, work: Study) -> Figures:
    """Write the figures of what was judged so far, each file as a whole."""
    from opsmith.mutation.tables import markdown, summarise

    study = summarise(list(book.outcomes.values()))
    files = {"summary.json": msgspec.json.format(msgspec.json.encode(study), indent=1) + b"\n"}
    files["table.md"] = markdown(study).encode()
    if work.environment is not None:
        run = {
            "command": shlex.join(["opsmith", *sys.argv[1:]]),
            "environment": msgspec.to_builtins(work.environment),
            "made_utc": dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
        }
        files["run.json"] = json.dumps(run, indent=2).encode() + b"\n"
    for name, content in files.items():
        write_atomically(out / name, content)
    return study
