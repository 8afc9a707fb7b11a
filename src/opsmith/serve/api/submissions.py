"""Kernels in, verdicts out: submissions, their verdicts as they are found, and rewards."""

from __future__ import annotations

import asyncio
import time
from typing import Annotated

import msgspec
from fastapi import APIRouter, Header, Query, Response
from fastapi.exceptions import HTTPException
from fastapi.responses import StreamingResponse
from starlette.concurrency import run_in_threadpool

from opsmith.core.run import OpSummary
from opsmith.generate.reward import reward_of
from opsmith.serve.access import Reader, Submitter
from opsmith.serve.api.common import (
    RequestKey,
    Served,
    SubmissionId,
    problems,
    provenance,
    submission_out,
)
from opsmith.serve.events import Position, follow
from opsmith.serve.messages import BatchIn, RewardOut, RewardsOut, SubmissionIn, SubmissionOut
from opsmith.serve.service import Service
from opsmith.serve.store.submissions import Candidate, Standing, Submission, find_submission
from opsmith.serve.store.tokens import is_valid

router = APIRouter(prefix="/api")

#: Between two looks at a batch whose rewards are waited for.
LOOK_S = 0.1


def found(service: Service, submission: str) -> Submission:
    """A submission.

    Raises:
        HTTPException: 404 where there is none.
    """
    known = find_submission(service.database, submission)
    if known is None:
        raise HTTPException(404, f"there is no submission {submission}")
    return known


@router.post(
    "/submissions",
    status_code=202,
    responses={200: {"model": SubmissionOut, "description": "It was submitted before."}, **problems(409)},
)
def submit_kernel(
    token: Submitter, service: Served, asked: SubmissionIn, response: Response, key: RequestKey = None
) -> SubmissionOut:
    """Submit a kernel for one task or several.

    It is judged when its turn comes, once for each task, also if the server ends in between. With an
    `Idempotency-Key`, a request that was perhaps lost can be sent again without a second judgement.
    """
    origin = provenance(asked.provenance)
    candidates = tuple(Candidate(task=task, source=asked.source, provenance=origin) for task in asked.tasks)
    made, new = service.submit(token, candidates, suite=asked.suite, run=asked.run, request_key=key)
    response.status_code = 202 if new else 200
    return submission_out(found(service, made))


@router.get("/submissions/{submission}", responses=problems(404))
def get_submission(_token: Reader, service: Served, submission: SubmissionId) -> SubmissionOut:
    """A submission, and where it is."""
    return submission_out(found(service, submission))


@router.get(
    "/submissions/{submission}/events",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {}}, "description": "Server-sent events."}, **problems(404)},
)
async def follow_submission(
    token: Reader,
    service: Served,
    submission: SubmissionId,
    last: Annotated[str | None, Header(alias="Last-Event-ID", max_length=20_000, description="Where to go on.")] = None,
) -> StreamingResponse:
    """Follow the verdicts as they are found, as server-sent events.

    `state`: where a judgement is. `verdict`: a verdict, as in `verdicts.jsonl`. `judged`: all that was found about a
    task. `end`: everything is judged, and the stream ends. A judgement that is begun again, because its server ended,
    tells its verdicts again, after another `state`. The stream ends where the token is revoked.
    """
    await run_in_threadpool(found, service, submission)
    return StreamingResponse(
        follow(service, submission, Position.parse(last), may_look=lambda: is_valid(service.database, token)),
        media_type="text/event-stream",
        headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"},
    )


@router.post(
    "/rewards",
    responses={202: {"model": RewardsOut, "description": "Some are not judged yet."}, **problems(409)},
)
async def submit_batch(
    token: Submitter, service: Served, asked: BatchIn, response: Response, key: RequestKey = None
) -> RewardsOut:
    """Submit a batch of kernels, each for its task, and get their rewards in its order.

    The answer comes when all are judged, or after `wait_s`; what is missing then can be had by the submission's id.
    """
    candidates = tuple(
        Candidate(task=kernel.task, source=kernel.source, provenance=provenance(kernel.provenance))
        for kernel in asked.kernels
    )
    made, _ = await run_in_threadpool(
        service.submit, token, candidates, suite=asked.suite, run=asked.run, request_key=key
    )
    rewards = await _awaited(service, made, wait_s=asked.wait_s)
    response.status_code = 200 if rewards.final else 202
    return rewards


@router.get("/rewards/{submission}", responses=problems(404))
async def get_rewards(
    _token: Reader,
    service: Served,
    submission: SubmissionId,
    wait_s: Annotated[float, Query(ge=0.0, le=300.0, description="Wait so long for them, at most.")] = 0.0,
) -> RewardsOut:
    """The rewards of a submission's kernels."""
    return await _awaited(service, submission, wait_s=wait_s)


async def _awaited(service: Service, submission: str, *, wait_s: float) -> RewardsOut:
    deadline = time.monotonic() + wait_s
    while True:
        known = await run_in_threadpool(found, service, submission)
        if known.is_final or time.monotonic() >= deadline or service.ending.is_set():
            return RewardsOut(
                submission=known.id, final=known.is_final, rewards=[_reward(each) for each in known.standings]
            )
        await asyncio.sleep(LOOK_S)


def _reward(standing: Standing) -> RewardOut | None:
    if not standing.is_final:
        return None
    if standing.summary is None:
        return RewardOut(
            value=0.0,
            accepted=False,
            policy=False,
            dishonest=False,
            passed=0.0,
            speedup=None,
            percent_of_floor=None,
            detail=standing.detail or "",
        )
    summary = msgspec.json.decode(standing.summary, type=OpSummary)
    return RewardOut(**msgspec.structs.asdict(reward_of(summary, standing.detail or "")))
