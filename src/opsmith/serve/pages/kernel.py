"""The page of one kernel: source, provenance, verdicts, the first failing case, times, and the API's reference."""

from __future__ import annotations

import math
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Query, Request
from fastapi.responses import Response
from pydantic import AfterValidator

from opsmith.report.points import evenly, point
from opsmith.serve.api.common import RowId, Served
from opsmith.serve.api.runs import judgement_of, run_of
from opsmith.serve.messages import storable
from opsmith.serve.pages.entry import HEADERS, Viewer, page
from opsmith.serve.pages.facts import ceilings_of, kernel_facts, repro
from opsmith.serve.pages.shown import highlighted
from opsmith.serve.service import Service
from opsmith.serve.store import runs
from opsmith.serve.store.reviews import standings
from opsmith.serve.store.runs import JudgementRow, RunRow

router = APIRouter(include_in_schema=False)

#: Verdicts of a page.
ROWS = 50
#: Points of a plot.
POINTS = 600


@router.get("/kernels/{judgement}")
def show_kernel(
    viewer: Viewer,
    service: Served,
    judgement: RowId,
    status: Annotated[str, AfterValidator(storable), Query(max_length=40)] = "",
    start: Annotated[int, Query(ge=0, le=2**31 - 1)] = 0,
) -> Response:
    """A kernel on a task."""
    row = judgement_of(service, judgement)
    run = run_of(service, row.run_id)
    source = None if row.source_hash is None else runs.find_source(service.database, row.source_hash)
    rows = runs.list_verdicts(service.database, judgement, status=status, start=start, limit=ROWS)
    failing = runs.list_verdicts(service.database, judgement, failing=True, limit=1)
    return page(
        service,
        viewer,
        "kernel.html.j2",
        row=row,
        run=run,
        source=None if source is None else highlighted(source),
        lines=0 if source is None else len(source.splitlines()),
        failing=failing[0].verdict if failing else None,
        repro=repro(run, row, failing[0].verdict) if failing else "",
        rows=rows,
        statuses=runs.statuses_of(service.database, judgement),
        more=rows[-1].number + 1 if len(rows) == ROWS else None,
        asked={"status": status, "start": start},
        facts=list(kernel_facts(row, run)),
        standing=standings(service.database, [row]).get(row.id),
        is_timed=(row.speedup_k, row.speedup_e) != (None, None),
    )


@router.get("/kernels/{judgement}/times")
def get_times(viewer: Viewer, service: Served, judgement: RowId) -> Response:
    """What the plots of times are drawn from; asked for when the page can be used."""
    del viewer
    row = judgement_of(service, judgement)
    times = _times(service, row, run_of(service, row.run_id))
    return Response(msgspec.json.encode(times), media_type="application/json", headers=HEADERS)


def _times(service: Service, row: JudgementRow, run: RunRow) -> dict[str, Any]:
    timed = runs.list_timed(service.database, row.id)
    logs: dict[str, list[float]] = {"K": [], "E": []}
    for each in timed:
        for timing in each.verdict.timings:
            logs[timing.quantity].append(round(math.log2(timing.speedup), 3))
    return {
        "points": [point(each.verdict, each.work) for each in evenly(timed, POINTS)],
        "caseLogs": {quantity.lower(): sorted(values) for quantity, values in logs.items()},
        "ceilings": ceilings_of(run),
        "baseline": "eager",
        "ops": [],
    }


@router.get("/kernels/{judgement}/source")
def download_source(viewer: Viewer, service: Served, judgement: RowId) -> Response:
    """The kernel as a file, named so that the command of a failing case finds it."""
    del viewer
    row = judgement_of(service, judgement)
    text = "" if row.source_hash is None else runs.find_source(service.database, row.source_hash)
    headers = HEADERS | {"Content-Disposition": f'attachment; filename="kernel-{judgement}.py"'}
    return Response(text, media_type="text/x-python", headers=headers)


@router.get("/docs")
def show_reference(viewer: Viewer, service: Served, request: Request) -> Response:
    """The OpenAPI page."""
    return page(service, viewer, "reference.html.j2", schema=request.app.openapi())
