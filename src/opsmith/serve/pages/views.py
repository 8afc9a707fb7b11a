"""Runs, leaderboards, the matrix, and run against run."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.exceptions import HTTPException
from fastapi.responses import RedirectResponse, Response, StreamingResponse
from pydantic import AfterValidator
from starlette.concurrency import run_in_threadpool

from opsmith.report.conventions import THRESHOLDS
from opsmith.report.outcome import Group
from opsmith.serve.access import COOKIE
from opsmith.serve.api.common import RowId, RunNumber, Served
from opsmith.serve.api.runs import run_of
from opsmith.serve.messages import storable
from opsmith.serve.pages.entry import HEADERS, Viewer, page
from opsmith.serve.pages.facts import run_facts
from opsmith.serve.pages.shown import group_of
from opsmith.serve.service import Service
from opsmith.serve.store import boards, runs
from opsmith.serve.store.database import StoreAway
from opsmith.serve.store.reviews import count_approved, standings
from opsmith.serve.store.sessions import find_session

router = APIRouter(include_in_schema=False)

#: Rows of a table's page.
ROWS = 50
#: Between two looks at what is live.
LIVE_S = 1.0
PageNumber = Annotated[int, Query(alias="page", ge=0, le=1_000_000)]
Text = Annotated[str, AfterValidator(storable), Query(max_length=300)]

_GROUPS = {
    Group.RIGHT: "accepted",
    Group.WRONG: "wrong",
    Group.DIED: "failed to run",
    Group.POLICY: "not allowed by the policy",
    Group.DISHONEST: "dishonest",
    Group.OPEN: "no answer",
}


@router.get("/")
def show_runs(
    viewer: Viewer, service: Served, suite: Text = "", text: Text = "", before: RunNumber | None = None
) -> Response:
    """Runs, the newest first, with what is under way."""
    found = runs.list_runs(service.database, suite=suite, text=text, before=before, limit=ROWS)
    return page(
        service,
        viewer,
        "runs.html.j2",
        runs=found,
        all_suites=runs.suites_with_runs(service.database),
        asked={"suite": suite, "text": text},
        older=found[-1].id if len(found) == ROWS else None,
        tiles=_tiles(_now(service, [])),
    )


def _now(service: Service, numbers: list[int]) -> dict[str, Any]:
    queue = runs.count_queue(service.database)
    found = [run for number in numbers if (run := runs.find_run(service.database, number))]
    return {
        "waiting": queue["queued"],
        "judging": queue["judging"],
        "judged": queue["judged"],
        "found": sum(count for count, _ in service.live.counts().values()),
        "runs": {str(run.id): [run.judged, run.kernels, run.accepted] for run in found},
    }


def _tiles(now: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    return [
        ("Waiting", f"{now['waiting']:,}", "kernels in the queue"),
        ("Being judged", f"{now['judging']:,}", f"{now['found']:,} verdicts on them so far"),
        ("Judged", f"{now['judged']:,}", "kernels, of all runs"),
    ]


@router.get("/live")
async def follow_runs(
    viewer: Viewer, request: Request, service: Served, run: Annotated[list[RunNumber] | None, Query()] = None
) -> Response:
    """The figures of the page of runs, whenever they change, as server-sent events.

    After a while the answer ends, and the browser asks again: whoever is signed in by then goes on.
    """
    del viewer
    session = request.cookies.get(COOKIE, "")
    ends = time.monotonic() + service.limits.live_s

    def look() -> str | None:
        if find_session(service.database, session, uses=False) is None:
            return None
        return json.dumps(_now(service, (run or [])[:ROWS]))

    async def events() -> AsyncIterator[str]:
        last = ""
        while time.monotonic() < ends and not service.ending.is_set():
            try:
                text = await run_in_threadpool(look)
            except StoreAway:
                text = last
            if text is None:
                return
            yield f"data: {text}\n\n" if text != last else ": the same\n\n"
            last = text
            await asyncio.sleep(LIVE_S)

    return StreamingResponse(events(), media_type="text/event-stream", headers=HEADERS)


@router.get("/runs/{run}")
def show_run(
    *,
    viewer: Viewer,
    service: Served,
    run: RowId,
    text: Text = "",
    outcome: Text = "",
    sort: Text = "newest",
    up: bool = False,
    number: PageNumber = 0,
) -> Response:
    """A run's kernels, filtered and sorted."""
    found = run_of(service, run)
    if sort not in runs.SORTS:
        raise HTTPException(404, f"there is no column {sort}")
    asked = runs.Filter(text=text, outcome=outcome, sort=sort, descending=not up)
    rows, total = runs.filter_judgements(service.database, run, asked, page=number, limit=ROWS)
    return page(
        service,
        viewer,
        "run.html.j2",
        run=found,
        bar=_bar(found.outcomes),
        rows=rows,
        total=total,
        rows_a_page=ROWS,
        standings=standings(service.database, rows),
        asked={"text": text, "outcome": outcome, "sort": sort, "up": up, "page": number},
        facts=list(run_facts(found)),
    )


def _bar(outcomes: Mapping[str, int]) -> list[tuple[str, str, int]]:
    counts = dict.fromkeys(Group, 0)
    for outcome, count in outcomes.items():
        counts[Group(group_of(outcome))] += count
    return [(each.value, _GROUPS[each], count) for each, count in counts.items() if count]


@router.get("/leaderboard")
def show_leaderboard(viewer: Viewer, service: Served, suite: Text = "") -> Response:
    """The runs of a suite by what they got right, with the curves of fast_p."""
    known = runs.suites_with_runs(service.database)
    suite = suite or next((name for name in service.suites if name in known), known[0] if known else "")
    places = boards.leaderboard(service.database, suite) if suite else []
    return page(
        service,
        viewer,
        "leaderboard.html.j2",
        suite=suite,
        all_suites=known,
        places=places,
        approved=count_approved(service.database, [place.run_id for place in places]),
        thresholds=[f"{p:g}" for p in THRESHOLDS],
        payload={
            "curve": boards.CURVE,
            "runs": [
                {"name": f"{place.contender} · {place.name}", "quantity": place.quantity, "shares": place.curve}
                for place in places[:12]
            ],
        },
    )


@router.get("/runs/{run}/matrix")
def show_matrix(
    viewer: Viewer, service: Served, run: RowId, text: Text = "", outcome: Text = "", number: PageNumber = 0
) -> Response:
    """Ops by dtypes."""
    found = run_of(service, run)
    cells, total = boards.matrix(service.database, run, text=text, outcome=outcome, page=number, limit=ROWS)
    rows: dict[str, dict[str, boards.Cell]] = {}
    for cell in cells:
        rows.setdefault(cell.task, {})[cell.dtype] = cell
    return page(
        service,
        viewer,
        "matrix.html.j2",
        run=found,
        dtypes=boards.dtypes_of(service.database, run),
        outcomes=boards.outcomes_of(service.database, run),
        rows=rows,
        total=total,
        rows_a_page=ROWS,
        asked={"text": text, "outcome": outcome, "page": number},
    )


@router.get("/matrix")
def show_a_matrix(viewer: Viewer, service: Served) -> Response:
    """The matrix of the newest run."""
    del viewer
    newest = runs.list_runs(service.database, limit=1)
    return RedirectResponse(f"/runs/{newest[0].id}/matrix" if newest else "/", 303)


@router.get("/compare")
def show_comparison(
    viewer: Viewer,
    service: Served,
    before: RunNumber | None = None,
    after: RunNumber | None = None,
    change: Text = "",
    text: Text = "",
    number: PageNumber = 0,
) -> Response:
    """Two runs, task by task."""
    chosen = before is not None and after is not None
    found = boards.differences(service.database, before, after) if before is not None and after is not None else []
    kept = [each for each in found if (not change or each.change == change) and text.lower() in each.task.lower()]
    kept.sort(key=lambda each: boards.CHANGES.index(each.change))
    choices = runs.list_runs(service.database, limit=200)
    # A run beside itself shows nothing: the newest is compared with the one before it.
    newest = [*(run.id for run in choices[:2]), None, None]
    return page(
        service,
        viewer,
        "compare.html.j2",
        choices=choices,
        preselected=(before, after) if chosen else (newest[1] if newest[1] is not None else newest[0], newest[0]),
        old=run_of(service, before) if before is not None else None,
        new=run_of(service, after) if after is not None else None,
        chosen=chosen,
        counts=boards.counted(found),
        rows=kept[number * ROWS : (number + 1) * ROWS],
        total=len(kept),
        rows_a_page=ROWS,
        asked={"before": before, "after": after, "change": change, "text": text, "page": number},
        payload=[
            {"task": each.task, "ratio": each.ratio, "change": each.change} for each in found if each.ratio is not None
        ],
    )
