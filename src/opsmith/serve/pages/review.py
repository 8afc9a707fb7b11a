"""The page on which a kernel is reviewed: source, what changed, what was found; approve, reject, comment on lines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any
from urllib.parse import parse_qs

import msgspec
from fastapi import APIRouter, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import RedirectResponse, Response
from markupsafe import Markup
from starlette.concurrency import run_in_threadpool

from opsmith.backends.shipped import Shipped
from opsmith.core.counts import counted
from opsmith.core.op import OpSchema, Variant
from opsmith.core.task import Task
from opsmith.evaluation.integrity.static.examination import examine
from opsmith.generate.feedback import failure, telling, timing_rows
from opsmith.report.strangers import one_line, printable
from opsmith.reviews.changes import Version, difference, function_source, left_files
from opsmith.reviews.records import Comment, Review, Standing, Word
from opsmith.reviews.scope import entry_source
from opsmith.serve.access import COOKIE
from opsmith.serve.api.common import RowId, Served
from opsmith.serve.api.reviews import WHY_NOT, keep_review
from opsmith.serve.api.runs import judgement_of, run_of
from opsmith.serve.pages.entry import Viewer, form_token, page
from opsmith.serve.pages.facts import kernel_facts, policy_of
from opsmith.serve.pages.shown import highlighted_lines, plain_lines
from opsmith.serve.service import Service
from opsmith.serve.store import runs
from opsmith.serve.store.reviews import CoveredFile, files_to_review, standings
from opsmith.serve.store.runs import JudgementRow, RunRow
from opsmith.serve.store.tokens import Role

router = APIRouter(include_in_schema=False)

#: Of all files together; the rest has no colours. The lexer takes 2 s of a core for them.
HIGHLIGHTED_CHARACTERS = 1_000_000
#: Timed cases, and verdicts that are looked through for what they tell.
MOST_TIMES, MOST_FAILING = 20, 200


@router.get("/kernels/{judgement}/review")
def show_review(viewer: Viewer, service: Served, request: Request, judgement: RowId) -> Response:
    """A kernel to be reviewed."""
    return _page(viewer, service, request, judgement)


@router.post("/kernels/{judgement}/review")
async def post_review(viewer: Viewer, service: Served, request: Request, judgement: RowId) -> Response:
    """Keep what a reviewer decided, and show the page anew."""
    fields = {name: values[0] for name, values in parse_qs((await request.body()).decode(errors="replace")).items()}
    if fields.get("form") != form_token(request.cookies.get(COOKIE, "")):
        raise HTTPException(403, "this form is not of your session; open the page again")
    if not viewer.role.includes(Role.REVIEWER):
        raise HTTPException(403, f"the role {viewer.role} may not do this; {Role.REVIEWER} may")
    try:
        word, comments = Word(fields.get("word", "")), _comments(fields)
        await run_in_threadpool(keep_review, service, viewer, judgement, word, comments, fields.get("content_hash", ""))
    except (ValueError, msgspec.ValidationError) as exc:
        return _page(viewer, service, request, judgement, problem=str(exc), status=422)
    except HTTPException as exc:
        if exc.status_code != 409:
            raise
        return _page(viewer, service, request, judgement, problem=str(exc.detail), status=409)
    return RedirectResponse(f"/kernels/{judgement}/review", 303)


def _comments(fields: dict[str, str]) -> list[Comment]:
    text = fields.get("text", "").strip().replace("\r\n", "\n").replace("\x00", "\ufffd")
    if not text:
        return []
    line = fields.get("line", "").strip()
    if line and not line.isdecimal():
        raise ValueError(f"{line!r} is no line")
    place = {"line": int(line) if line else None, "file": fields.get("file", "").replace("\x00", "\ufffd")}
    return [msgspec.convert({"text": text, **place}, Comment)]


def _page(
    viewer: Viewer, service: Service, request: Request, judgement: int, *, problem: str = "", status: int = 200
) -> Response:
    row = judgement_of(service, judgement)
    run = run_of(service, row.run_id)
    found = standings(service.database, [row]).get(row.id)
    before = None if found is None else found.before
    covered = files_to_review(service.database, row, before)
    files = covered or _entry_alone(service, row)
    failing = runs.list_verdicts(service.database, judgement, failing=True, limit=MOST_FAILING)
    timed = runs.list_timed(service.database, judgement)[:MOST_TIMES]
    return page(
        service,
        viewer,
        "review.html.j2",
        status=status,
        row=row,
        run=run,
        standing=found,
        problem=problem,
        may_review=viewer.role.includes(Role.REVIEWER),
        form=form_token(request.cookies.get(COOKIE, "")),
        is_whole=bool(covered),
        why_not=WHY_NOT,
        files=_shown(files, found),
        left=left_files({file.path: file.content_hash for file in files}, before),
        changes=list(_changes(row, files, before)),
        statuses=runs.statuses_of(service.database, judgement),
        findings=[printable(failure(verdict)) for verdict in telling(each.verdict for each in failing)],
        times=[one_line(text).removeprefix("- ") for each in timed for text in timing_rows(each.verdict)],
        evidence=list(_static(row, run, files)),
        facts=list(kernel_facts(row, run)),
    )


def _entry_alone(service: Service, row: JudgementRow) -> list[CoveredFile]:
    """What is here of a kernel that cannot be reviewed."""
    if row.source_hash is None:
        return []
    return [CoveredFile(path="kernel.py", text=runs.find_source(service.database, row.source_hash))]


class _File(msgspec.Struct, frozen=True, kw_only=True):
    """A file as the page shows it.

    Attributes:
        path: of the file.
        mark: ``L`` of the line numbers of the entry's file, another one for each of the others.
        lines: number, code, and what was said about it, of each line.
        length: how many lines it has, in words.
        changed: in a word, since the version before; empty where it is the same, or nobody knows.
    """

    path: str
    mark: str
    lines: list[tuple[int, Markup, list[tuple[str, str]]]]
    length: str
    changed: str


def _shown(files: Sequence[CoveredFile], found: Standing | None) -> dict[str, _File]:
    """Path -> file, that of the entry first."""
    said: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for review in found.reviews if found is not None else ():
        for comment in review.comments:
            if comment.line is not None:
                place = comment.file or files[0].path, comment.line
                said.setdefault(place, []).append((one_line(review.who), printable(comment.text)))
    shown: dict[str, _File] = {}
    room = HIGHLIGHTED_CHARACTERS
    for number, file in enumerate(files):
        room -= len(file.text)
        lines = highlighted_lines(file.text, file.path) if room >= 0 else plain_lines(file.text)
        commented = [(line, code, said.get((file.path, line), [])) for line, code in enumerate(lines, start=1)]
        shown[file.path] = _File(
            path=file.path,
            mark=f"F{number}L" if number else "L",
            lines=commented,
            length=counted(len(commented), "line"),
            changed="new" if file.is_new else "changed" if file.changed else "",
        )
    return shown


def _changes(
    row: JudgementRow, files: Sequence[CoveredFile], before: Review | None
) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """A title, and the lines of a difference with their class."""
    found: list[tuple[str, str]] = []
    if before is not None:
        since = f"the version that {before.who} looked at, {before.when_utc[:10]}"
        for number, file in enumerate(files):
            if file.before is not None:
                of = f": {file.path}" if number else ""
                found.append((f"Changed since {since}{of}", difference(file.before, file.text)))
    if files and (reference := _reference(row.task)) is not None:
        found.append((f"Against {reference.name}", difference(reference.text, files[0].text)))
    for title, text in found:
        if text:
            yield one_line(title), [(_kind(line), printable(line)) for line in text.split("\n")]


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "")


def _reference(task: str) -> Version | None:
    """Opsmith's own kernel for the op."""
    schema = OpSchema(name=task, schema="", variant=Variant.FUNCTIONAL)
    found = Shipped().kernel_for(Task(name=task, op=schema, suite=""))
    if found is None:
        return None
    text = function_source(entry_source(found), found.entry.rpartition(":")[2])
    return Version(name=f"opsmith's own kernel ({found.entry})", text=text)


def _static(row: JudgementRow, run: RunRow, files: Sequence[CoveredFile]) -> Iterator[dict[str, Any]]:
    """What the files show, by their lines."""
    texts = {file.path: file.text.encode() for file in files}
    for found in examine(texts, policy=policy_of(run), task=row.task, dsl=row.dsl or "unknown"):
        yield {
            "path": found.path,
            "line": found.line,
            "kind": found.kind,
            "text": one_line(found.text),
            "decisive": found.decisive,
        }
