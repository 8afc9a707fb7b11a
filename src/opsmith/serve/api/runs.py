"""What was found: suites, runs, judgements, verdicts, leaderboards, the matrix, and run against run."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Query, Response
from fastapi.exceptions import HTTPException

from opsmith.core.verdict import Status
from opsmith.serve.access import Reader
from opsmith.serve.api.common import After, Limit, RowId, Served, judgement_out, problems, run_out
from opsmith.serve.messages import (
    CellOut,
    JudgementOut,
    JudgementsOut,
    Line,
    PlaceOut,
    RunOut,
    RunsOut,
    SuiteOut,
    TaskOut,
    VerdictsOut,
)
from opsmith.serve.service import Service
from opsmith.serve.store import boards, runs

router = APIRouter(prefix="/api", responses=problems())
Start = Annotated[int, Query(ge=0, le=2**31 - 1, description="`next` of the part before.")]


@router.get("/suites")
def get_suites(_token: Reader, service: Served) -> list[SuiteOut]:
    """What this server judges."""
    return [
        SuiteOut(
            name=name,
            device=judge.options.device,
            timing=judge.options.timing,
            tasks=[
                TaskOut(
                    name=task.name,
                    schema_text=task.op.schema,
                    cases=task.cases,
                    dtypes=list(task.dtypes),
                    examples=list(task.examples),
                )
                for task in judge.tasks.values()
            ],
            void=dict(judge.void),
        )
        for name, judge in service.judging.judges.items()
    ]


@router.get("/runs")
def get_runs(
    _token: Reader, service: Served, suite: Line | None = None, after: After = None, limit: Limit = 100
) -> RunsOut:
    """Runs, the newest first."""
    found = runs.list_runs(service.database, suite=suite, before=after, limit=limit)
    return RunsOut(items=[run_out(run) for run in found], next=found[-1].id if len(found) == limit else None)


@router.get("/runs/{run}", responses=problems(404))
def get_run(_token: Reader, service: Served, run: RowId) -> RunOut:
    """A run."""
    return run_out(run_of(service, run))


@router.get("/runs/{run}/judgements", responses=problems(404))
def get_judgements(
    _token: Reader, service: Served, run: RowId, after: After = None, limit: Limit = 100
) -> JudgementsOut:
    """The kernels of a run, in the order of submission."""
    run_of(service, run)
    found = runs.list_judgements(service.database, run, after=after, limit=limit)
    return JudgementsOut(
        items=[judgement_out(row) for row in found], next=found[-1].id if len(found) == limit else None
    )


@router.get("/runs/{run}/matrix", responses=problems(404))
def get_matrix(_token: Reader, service: Served, run: RowId) -> list[CellOut]:
    """What a run found about each op in each dtype, by the kernel that was judged last."""
    run_of(service, run)
    found, _ = boards.matrix(service.database, run, limit=1_000_000)
    return [
        CellOut(
            judgement=cell.judgement_id,
            **{name: getattr(cell, name) for name in CellOut.model_fields if name != "judgement"},
        )
        for cell in found
    ]


@router.get("/judgements/{judgement}", responses=problems(404))
def get_judgement(_token: Reader, service: Served, judgement: RowId) -> JudgementOut:
    """A kernel on a task."""
    return judgement_out(judgement_of(service, judgement))


@router.get("/judgements/{judgement}/verdicts", responses=problems(404))
def get_verdicts(
    _token: Reader,
    service: Served,
    judgement: RowId,
    status: Status | None = None,
    after: Start = 0,
    limit: Limit = 100,
) -> VerdictsOut:
    """The verdicts on a kernel, in the order found."""
    judgement_of(service, judgement)
    found = runs.list_verdicts(service.database, judgement, status=status or "", start=after, limit=limit)
    return VerdictsOut(
        items=[msgspec.to_builtins(stored.verdict) for stored in found],
        next=found[-1].number + 1 if len(found) == limit else None,
    )


@router.get(
    "/judgements/{judgement}/source",
    responses={200: {"content": {"text/plain": {}}, "description": "The kernel."}, **problems(404)},
    response_class=Response,
)
def get_source(_token: Reader, service: Served, judgement: RowId) -> Response:
    """The source of a kernel."""
    row = judgement_of(service, judgement)
    if row.source_hash is None:
        raise HTTPException(404, f"the source of judgement {judgement} is not here")
    return Response(runs.find_source(service.database, row.source_hash), media_type="text/plain")


@router.get("/leaderboards/{suite}")
def get_leaderboard(_token: Reader, service: Served, suite: Line) -> list[PlaceOut]:
    """The runs of a suite, those with the most correct tasks first."""
    return [
        PlaceOut(
            run=place.run_id,
            device=place.device_name,
            **{name: getattr(place, name) for name in PlaceOut.model_fields if name not in {"run", "device"}},
        )
        for place in boards.leaderboard(service.database, suite)
    ]


def run_of(service: Service, run: int) -> runs.RunRow:
    """A run.

    Raises:
        HTTPException: 404 where there is none.
    """
    found = runs.find_run(service.database, run)
    if found is None:
        raise HTTPException(404, f"there is no run {run}")
    return found


def judgement_of(service: Service, judgement: int) -> runs.JudgementRow:
    """A judgement.

    Raises:
        HTTPException: 404 where there is none.
    """
    found = runs.find_judgement(service.database, judgement)
    if found is None:
        raise HTTPException(404, f"there is no judgement {judgement}")
    return found
