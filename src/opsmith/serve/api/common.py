"""What the routes share: the service, the problems they report, and records turned into messages."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import Depends, Header, Path, Query, Request
from fastapi.exceptions import RequestValidationError
from pydantic import Field

from opsmith.core.kernel import Provenance
from opsmith.serve.messages import JudgementOut, Origin, Problem, RunOut, StandingOut, SubmissionOut
from opsmith.serve.service import Service
from opsmith.serve.store.runs import JudgementRow, RunRow
from opsmith.serve.store.schema import MOST_ROWS
from opsmith.serve.store.submissions import Submission


def _service(request: Request) -> Service:
    service: Service = request.app.state.service
    return service


Served = Annotated[Service, Depends(_service)]
RowId = Annotated[int, Path(ge=1, le=MOST_ROWS)]
RunNumber = Annotated[int, Field(ge=1, le=MOST_ROWS)]
SubmissionId = Annotated[str, Path(pattern="^[0-9a-f]{32}$")]
After = Annotated[int | None, Query(ge=-1, le=MOST_ROWS, description="`next` of the part before.")]
Limit = Annotated[int, Query(ge=1, le=1000, description="Items of a part, at most.")]
RequestKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        max_length=200,
        pattern="^[!-~]+$",
        description="Names the request: sent again with the same key, it is the same submission.",
    ),
]


def only_known_parameters(request: Request) -> None:
    """A misspelt parameter is not ignored.

    Raises:
        RequestValidationError: the query has a name that the route does not know.
    """
    operation = request.app.openapi()["paths"][request.scope["route"].path][request.method.lower()]
    known = sorted(each["name"] for each in operation.get("parameters", ()) if each["in"] == "query")
    told = f"there is no such parameter; there is: {', '.join(known) or 'none'}"
    unknown = [name for name in request.query_params if name not in known]
    if unknown:
        raise RequestValidationError(
            [{"type": "unknown_parameter", "loc": ("query", name), "msg": told} for name in unknown]
        )


_MEANINGS = {
    400: "The body cannot be read.",
    401: "There is no valid token.",
    403: "The token's role may not do this.",
    404: "There is no such thing.",
    409: "The key was sent before with another request.",
    413: "The request is too large.",
    429: "Too many requests, or kernels; `Retry-After` says when to try again.",
    503: "The database does not answer; send the request again.",
}


def problems(*more: int) -> dict[int | str, dict[str, Any]]:
    """What a route may answer instead, besides what any route may."""
    return {
        status: {"model": Problem, "description": _MEANINGS[status]}
        for status in sorted({400, 401, 403, 413, 429, 503, *more})
    }


def provenance(origin: Origin) -> Provenance:
    """Who wrote a kernel, as it is recorded."""
    return Provenance(**origin.model_dump())


def submission_out(submission: Submission) -> SubmissionOut:
    """A submission as clients get it."""
    return SubmissionOut(
        id=submission.id,
        run=submission.run_id,
        created_utc=submission.created_utc,
        final=submission.is_final,
        tasks=[
            StandingOut(
                judgement=each.id,
                task=each.task,
                state=each.state,
                tries=each.tries,
                outcome=each.outcome,
                accepted=each.accepted,
                detail=each.detail,
                summary=None if each.summary is None else msgspec.json.decode(each.summary),
            )
            for each in submission.standings
        ],
    )


def run_out(run: RunRow) -> RunOut:
    """A run as clients get it."""
    fields = {name: getattr(run, name) for name in RunOut.model_fields if name != "device"}
    return RunOut(device=run.device_name, **fields)


def judgement_out(row: JudgementRow) -> JudgementOut:
    """A judgement as clients get it."""
    fields = {name: getattr(row, name) for name in JudgementOut.model_fields if name != "run"}
    return JudgementOut(run=row.run_id, **fields)
