"""``opsmith review``: look at kernels, approve, reject or comment on them."""

from __future__ import annotations

import getpass
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated

import msgspec
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from opsmith.backends.directory import KernelDirectory
from opsmith.backends.dsl import parse_source
from opsmith.backends.entry_names import SOLUTION_CLASS, bound_names
from opsmith.cli.document import Json, print_json
from opsmith.cli.review_sheet import print_sheet, sheet_of
from opsmith.cli.service_reviews import fetch_reviews
from opsmith.core.counts import counted
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema, TaskKind, Variant, matches
from opsmith.core.problems import problem_files
from opsmith.core.run import RunDirectory
from opsmith.core.task import Task
from opsmith.errors import BadInput, UnknownName
from opsmith.generate.waiting import waiting_kernels
from opsmith.report.strangers import one_line
from opsmith.reviews.book import ReviewBook, standing_of
from opsmith.reviews.of_run import judged_kernel, reviews_about
from opsmith.reviews.records import Comment, Review, Standing, Word, new_review
from opsmith.reviews.scope import entry_source, reviewed_files, reviewed_hash

EPILOG = """
Examples:

  opsmith review my_kernels

  opsmith review my_kernels relu.default --run runs/mine

  opsmith review my_kernels relu.default --comment '12: this index overflows' --reject

  opsmith review my_kernels relu.default --approve --as mara --of 3f9c21ab00d4e7f1

  opsmith review my_kernels --from https://opsmith.example
"""

#: ``12: text``, ``rows.py:12: text`` or text alone.
_COMMENT = re.compile(r"(?:(?:(?P<file>[^\s:]+):)?(?P<line>[1-9]\d*):\s*)?(?P<text>.+)", re.DOTALL)


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One kernel of ``--json``.

    Attributes:
        task: its task.
        content_hash: what a review of it is about; None: it cannot be reviewed.
        state: what its reviews say.
        by: who decided that.
        files: what a review covers.
        reviews: of this version.
    """

    task: str
    content_hash: str | None
    state: str
    by: tuple[str, ...]
    files: tuple[str, ...]
    reviews: tuple[Review, ...]


def review(
    path: Annotated[Path, typer.Argument(help="A kernel directory, a run or a campaign.", show_default=False)],
    tasks: Annotated[
        list[str] | None, typer.Argument(help="Overloads, packets or wildcards; all by default.", show_default=False)
    ] = None,
    approve: Annotated[bool, typer.Option("--approve", help="Approve the kernels as they are now.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Reject them.")] = False,
    comment: Annotated[
        list[str] | None,
        typer.Option(help="'LINE: text', 'FILE:LINE: text' or text; several times for several.", show_default=False),
    ] = None,
    who: Annotated[str, typer.Option("--as", help="Who reviews.", show_default="the user's name")] = "",
    of: Annotated[
        str | None,
        typer.Option(
            help="The hash that was looked at; a kernel that is another by now is refused.", show_default=False
        ),
    ] = None,
    run: Annotated[
        Path | None, typer.Option(help="A run that judged the directory: its findings and times.", show_default=False)
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(help="Kernel directory to compare with.", show_default="opsmith's own kernels"),
    ] = None,
    files: Annotated[bool, typer.Option("--files", help="Show the files that a kernel imports, too.")] = False,
    service: Annotated[
        str | None,
        typer.Option(
            "--from",
            help="A service, whose reviews of these kernels are taken over; OPSMITH_TOKEN has the token.",
            show_default=False,
        ),
    ] = None,
    json_output: Json = False,
) -> None:
    """Look at kernels; approve, reject or comment on them.

    Without tasks it lists the kernels and the state of each. What is decided is a line of reviews.jsonl in PATH. A
    review is about a kernel's entry and the files that it imports; when one of them changes, the approval is lost.
    """
    kernels = _chosen(_kernels_in(path), tasks or ())
    book, judged = ReviewBook(path), run if run is not None else path if (path / "run.json").is_file() else None
    record = None if judged is None else RunDirectory.open(judged)
    if service is not None:
        hashes = [found for kernel in kernels.values() if (found := reviewed_hash(kernel)) is not None]
        added = book.append(fetch_reviews(service, hashes))
        typer.echo(f"took over {counted(added, 'review')} of {service}", err=True)
    if approve and reject:
        raise BadInput("--approve and --reject exclude each other")
    comments = [_comment(text) for text in comment or ()]
    if approve or reject or comments:
        word = Word.APPROVE if approve else Word.REJECT if reject else Word.COMMENT
        made = [_reviewed(kernel, word, comments, who or getpass.getuser(), of) for kernel in kernels.values()]
        book.append(made)
        for each in made:
            typer.echo(f"{each.task}: {each.word} by {each.who}, {each.content_hash}")
        return
    reviews = reviews_about(path, record.manifest()) if record is not None and judged == path else book.reviews()
    if not tasks:
        listed = [_listed(kernel, standing_of(reviews, kernel)) for kernel in kernels.values()]
        if json_output:
            print_json(listed)
        else:
            _print_list(listed, Console())
        return
    sheets = [sheet_of(each, standing_of(reviews, each), run=record, against=against) for each in kernels.values()]
    if json_output:
        print_json(sheets)
    else:
        for sheet in sheets:
            print_sheet(sheet, Console(), imported=files)


def _kernels_in(path: Path) -> dict[str, Kernel]:
    """Task -> kernel, of those with a file of their own; derived variants are reviewed with what they derive from."""
    if (path / "run.json").is_file():
        run = RunDirectory(path)
        found = (judged_kernel(path, planned) for planned in run.plan().ops)
        kernels = [kernel for kernel in found if kernel is not None]
    elif (waiting := waiting_kernels(path)) is not None:
        kernels = list(waiting)
    else:
        from opsmith.dispatch.selection import offered

        directory = KernelDirectory(path)
        kernels = [*(kernel for _, kernel in offered(directory, None, ())), *_solutions(directory)]
    return {kernel.task: kernel for kernel in kernels if kernel.derived_from is None}


def _solutions(directory: KernelDirectory) -> Iterator[Kernel]:
    """The solutions of module problems in a directory, which lie where their problems do."""
    try:
        files = problem_files(directory.path)
    except BadInput:
        return
    for name, file in files.items():
        tree = parse_source(file)
        if tree is not None and SOLUTION_CLASS in bound_names(tree):
            op = OpSchema(name=name, schema="", variant=Variant.FUNCTIONAL, kind=TaskKind.MODULE)
            yield from directory.samples_for(Task(name=name, op=op, suite=""))


def _chosen(kernels: dict[str, Kernel], patterns: Sequence[str]) -> dict[str, Kernel]:
    for pattern in patterns:
        if not any(matches(task, pattern) for task in kernels):
            raise UnknownName("kernel", pattern, kernels)
    return {
        task: kernel
        for task, kernel in kernels.items()
        if not patterns or any(matches(task, pattern) for pattern in patterns)
    }


def _comment(text: str) -> Comment:
    found = _COMMENT.fullmatch(text.strip())
    if found is None:
        raise BadInput("a comment is empty")
    line = None if found["line"] is None else int(found["line"])
    return msgspec.convert({"text": found["text"], "line": line, "file": found["file"] or ""}, Comment)


def _reviewed(kernel: Kernel, word: Word, comments: Sequence[Comment], who: str, of: str | None) -> Review:
    found = reviewed_hash(kernel)
    if found is None:
        raise BadInput(f"the kernel of {kernel.task} has no files here, so nothing of it can be reviewed")
    if of is not None and of != found:
        raise BadInput(f"the kernel of {kernel.task} is {found} by now; look at it again")
    source = entry_source(kernel)
    lines = len(source.splitlines())
    for each in comments:
        if not each.file and each.line is not None and each.line > lines:
            raise BadInput(f"{kernel.entry.rpartition(':')[0]} has {counted(lines, 'line')}, and no line {each.line}")
    return new_review(kernel.task, found, who, word, comments, source=source, files=reviewed_files(kernel))


def _listed(kernel: Kernel, found: Standing) -> Listed:
    return Listed(
        task=kernel.task,
        content_hash=reviewed_hash(kernel),
        state=found.state,
        by=found.by,
        files=tuple(sorted(reviewed_files(kernel) or ())),
        reviews=found.reviews,
    )


def _print_list(kernels: Sequence[Listed], console: Console) -> None:
    table = Table("task", "review", "hash", "files", box=None, pad_edge=False)
    for each in kernels:
        state = f"{each.state} by {', '.join(each.by)}" if each.by else each.state
        table.add_row(Text(one_line(each.task)), Text(one_line(state)), each.content_hash or "-", str(len(each.files)))
    console.print(table)
