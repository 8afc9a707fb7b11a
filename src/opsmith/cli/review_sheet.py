"""What a reviewer sees of a kernel: its source, what changed, what was found, how fast it is, what others said."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec
from rich.console import Console
from rich.syntax import Syntax
from rich.text import Text

from opsmith.backends.directory import KernelDirectory
from opsmith.backends.shipped import Shipped
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, Variant
from opsmith.core.problems import problem_files, split_sample
from opsmith.core.run import RunDirectory
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.evaluation.integrity.static.examination import examine
from opsmith.generate.feedback import failure, telling, timing_rows
from opsmith.report.strangers import one_line, printable
from opsmith.reviews.changes import Version, changed_files, difference, function_source
from opsmith.reviews.records import Review, Standing
from opsmith.reviews.scope import entry_source, reviewed_files, reviewed_hash

SHOWN_CHARACTERS = 400_000


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a kernel; what a run found is empty without a run.

    Attributes:
        task: its task.
        content_hash: what a review of it is about; None: its files are not known.
        entry: the file and the function.
        files: what a review covers -> whether it is another than in the review of the version before; None without one.
        root: the folder that they are relative to.
        standing: what people said.
        source: of the entry's file.
        before: the version before; None where none is known.
        reference: a kernel for the same op, or the problem's Model.
        findings: what the judge holds against it, and how its cases ended.
        times: one line a timed case.
        static: what its source shows, one line a finding.
        notes: who or what wrote it, and what they say of it.
    """

    task: str
    content_hash: str | None
    entry: str
    files: dict[str, bool | None]
    root: str
    standing: Standing
    source: str
    before: Version | None = None
    reference: Version | None = None
    findings: tuple[str, ...] = ()
    times: tuple[str, ...] = ()
    static: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()

    def changes(self) -> Iterator[tuple[str, str]]:
        """A title and a unified difference, for each text that the source is compared with."""
        for how, version in (("Changed since", self.before), ("Against", self.reference)):
            if version is not None and version.text != self.source:
                yield f"{how} {version.name}", difference(version.text, self.source)


def sheet_of(kernel: Kernel, standing: Standing, *, run: RunDirectory | None, against: Path | None) -> Sheet:
    """Collect what is known of a kernel; nothing of it is run.

    Args:
        kernel: its record, with the folder of its files.
        standing: what people said of it.
        run: judged it, or an earlier version of it.
        against: a kernel directory with a reference; by default opsmith's own kernels.

    Raises:
        BadInput: a file of the run is missing or damaged.
    """
    source = entry_source(kernel)
    covered = reviewed_files(kernel) or {}
    findings, times = ((), ()) if run is None else _found(run, kernel)
    return Sheet(
        task=kernel.task,
        content_hash=reviewed_hash(kernel),
        entry=kernel.entry,
        files=changed_files(covered, standing.before),
        root=kernel.root or "",
        standing=standing,
        source=source,
        before=_before(kernel, standing),
        reference=_reference(kernel, run, against),
        findings=tuple(findings),
        times=tuple(times),
        static=tuple(_static(kernel, covered, run)),
        notes=tuple(_notes(kernel)),
    )


def _before(kernel: Kernel, standing: Standing) -> Version | None:
    """What was reviewed before, else the file with the next lower version in the folder."""
    review = standing.before
    if review is not None and review.source:
        return Version(name=f"the version that {review.who} looked at ({review.when_utc[:16]})", text=review.source)
    file = Path(kernel.root or "") / kernel.entry.rpartition(":")[0]
    stem, mark, number = file.stem.rpartition("_v")
    for lower in range(int(number) - 1, 0, -1) if mark and number.isdecimal() else ():
        earlier = file.with_name(f"{stem}_v{lower}.py")
        if earlier.is_file():
            return Version(name=earlier.name, text=earlier.read_text(encoding="utf-8", errors="replace"))
    return None


def _reference(kernel: Kernel, run: RunDirectory | None, against: Path | None) -> Version | None:
    task, _ = split_sample(kernel.derived_from or kernel.task)
    if kernel.loader is Loader.MODULE:
        problems = None if run is None else run.manifest().options.selection.problems
        try:
            file = None if problems is None else problem_files(Path(problems)).get(task)
        except BadInput:
            return None
        return None if file is None else Version(name="the problem's Model", text=file.read_text(encoding="utf-8"))
    directory = Shipped() if against is None else KernelDirectory(against)
    schema = OpSchema(name=task, schema="", variant=Variant.FUNCTIONAL)
    found = directory.kernel_for(Task(name=task, op=schema, suite=""))
    text = "" if found is None else function_source(entry_source(found), found.entry.rpartition(":")[2])
    if found is None or not text:
        return None
    name = "opsmith's own kernel" if against is None else f"the reference in {against}"
    return Version(name=f"{name} ({found.entry})", text=text)


def _found(run: RunDirectory, kernel: Kernel) -> tuple[list[str], list[str]]:
    planned = next((op for op in run.plan().ops if op.op == kernel.task), None)
    if planned is None:
        return [f"the run {run.path} did not ask {kernel.task}"], []
    if planned.kernel_hash != kernel.content_hash:
        return [f"the run {run.path} judged another version: {planned.kernel_hash}"], []
    verdicts = [verdict for verdict in run.verdicts() if verdict.op == kernel.task]
    counts: dict[str, int] = {}
    for verdict in verdicts:
        counts[verdict.status] = counts.get(verdict.status, 0) + 1
    head = f"{len(verdicts):,} verdicts: {', '.join(f'{number:,} {status}' for status, number in counts.items())}"
    rows = [row for verdict in verdicts for row in timing_rows(verdict)]
    return [head, *(failure(verdict) for verdict in telling(verdicts))], rows


def _static(kernel: Kernel, covered: Iterable[str], run: RunDirectory | None) -> Iterator[str]:
    root = Path(kernel.root or "")
    try:
        files = {path: (root / path).read_bytes() for path in covered}
    except OSError:
        return
    policy = "native" if run is None else run.manifest().options.policy
    task, entry = kernel.derived_from or kernel.task, kernel.entry.rpartition(":")[2]
    for found in examine(files, policy=policy, task=task, dsl=kernel.dsl, entry=entry):
        decisive = ", against the policy" if found.decisive else ""
        yield f"{found.path}:{found.line}: {found.kind}: {found.text}{decisive}"


def _notes(kernel: Kernel) -> Iterator[str]:
    yield f"written in {kernel.dsl}"
    for name, value in msgspec.structs.asdict(kernel.provenance).items():
        if value is not None:
            yield f"{name.replace('_', ' ')}: {value}"


def print_sheet(sheet: Sheet, console: Console, *, imported: bool = False) -> None:
    """Print it; whatever strangers wrote stays text.

    Args:
        sheet: what is known.
        console: where to.
        imported: print the files that the kernel imports, too.
    """
    _title(console, f"{one_line(sheet.task)}  {one_line(sheet.standing.text)}")
    covered = [one_line(path) + " (changed)" * bool(changed) for path, changed in sheet.files.items()]
    console.print(Text(f"{sheet.content_hash or 'cannot be reviewed'}: {', '.join(covered)}"))
    _print_source(sheet.source, console)
    entry = sheet.entry.rpartition(":")[0]
    for path in [each for each in sheet.files if each != entry and imported]:
        _title(console, one_line(path))
        _print_source((Path(sheet.root) / path).read_text(encoding="utf-8", errors="replace"), console)
    for title, text in sheet.changes():
        _title(console, title)
        console.print(Syntax(printable(text, SHOWN_CHARACTERS), "diff", word_wrap=True))
    for title, lines in (
        ("What the judge found", sheet.findings),
        ("Times", sheet.times),
        ("What the source shows", sheet.static),
        ("Origin", sheet.notes),
        ("Reviews", [text for review in sheet.standing.reviews for text in review_lines(review)]),
    ):
        if lines:
            _title(console, title)
            for line in lines:
                console.print(Text(printable(line)), soft_wrap=True)


def _print_source(source: str, console: Console) -> None:
    console.print(Syntax(printable(source, SHOWN_CHARACTERS), "python", line_numbers=True, word_wrap=True))


def review_lines(review: Review) -> Iterator[str]:
    """A review as lines: who decided what when, and each comment with its place."""
    yield f"{review.when_utc[:16].replace('T', ' ')} {review.who}: {review.word}"
    for comment in review.comments:
        place = f"{comment.file}:" if comment.file else ""
        line = f"{place}{comment.line}: " if comment.line is not None else ""
        yield f"  {line}{comment.text}"


def _title(console: Console, text: str) -> None:
    console.print(Text(f"\n{text}", style="bold"))
