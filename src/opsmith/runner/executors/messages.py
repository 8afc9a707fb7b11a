"""What a run and a lane in another process, here or on another machine, say to each other.

A request is answered with one or more replies and :class:`Done`, or with :class:`LaneProblem`. Cases travel with
their serialized calls: nobody reads the other's files.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.run import TimedCase
from opsmith.core.timing import Clock
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, InternalError, OpsmithError, RefereeFailed, UsageError
from opsmith.runner.protocol.call_files import SentCalls, placed, with_places
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import EntryAsked, LaneFacts, LaneWork
from opsmith.runner.protocol.referee_messages import Enumerated, OpsListed
from opsmith.runner.protocol.worker_messages import Discovered, Raised

_KINDS: dict[str, type[OpsmithError]] = {"usage": BadInput, "referee": RefereeFailed, "internal": InternalError}


class OpenLane(msgspec.Struct, frozen=True, tag=True):
    """The first request.

    Attributes:
        work: what the lane is opened for.
        inputs: the files of a dataset or of module problems, by their path below ``work.options.selection``'s, where
            the lane may not have them itself; None where it reads them in place.
    """

    work: LaneWork
    inputs: dict[str, bytes] | None = None


class ListLaneOps(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.list_ops`."""


class DiscoverOps(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.discover`."""

    target: str
    ops: tuple[str, ...]


class EnumerateEntry(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.enumerate`."""

    asked: EntryAsked


class Family(msgspec.Struct, frozen=True):
    """Jobs that the same kernel answers, with the calls of their cases; a relative root names a kept source."""

    jobs: tuple[Job, ...]
    calls: bytes


class JudgeFamily(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.judge`."""

    family: Family
    to_come: float


class EndSlot(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.end_slot`."""


class TimeFamily(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.time`."""

    family: Family


class KeepSource(msgspec.Struct, frozen=True, tag=True):
    """Keep a kernel's files, for the families that name them."""

    name: str
    files: dict[str, bytes]


class PauseLane(msgspec.Struct, frozen=True, tag=True):
    """See :meth:`opsmith.runner.protocol.lane.Lane.pause`."""


class LaneOpened(msgspec.Struct, frozen=True, tag=True):
    facts: LaneFacts


class EntryEnumerated(msgspec.Struct, frozen=True, tag=True):
    """Cases, with their calls."""

    enumerated: Enumerated
    calls: bytes


class VerdictsFound(msgspec.Struct, frozen=True, tag=True):
    verdicts: tuple[Verdict, ...]


class CaseTimed(msgspec.Struct, frozen=True, tag=True):
    timed: TimedCase
    clock: Clock | None


class Done(msgspec.Struct, frozen=True, tag=True):
    """The last reply to a request."""


class LaneProblem(msgspec.Struct, frozen=True, tag=True):
    """The request cannot be carried out; the lane goes on."""

    kind: str
    message: str


LaneRequest = (
    OpenLane | ListLaneOps | DiscoverOps | EnumerateEntry | JudgeFamily | EndSlot | TimeFamily | KeepSource | PauseLane
)
LaneReply = (
    LaneOpened | OpsListed | Discovered | Raised | EntryEnumerated | VerdictsFound | CaseTimed | Done | LaneProblem
)


def problem_of(error: OpsmithError) -> LaneProblem:
    """An error as a message."""
    kind = "usage" if isinstance(error, UsageError) else "referee" if isinstance(error, RefereeFailed) else "internal"
    return LaneProblem(kind, str(error))


def error_of(problem: LaneProblem) -> OpsmithError:
    """The error that a message is about."""
    return _KINDS[problem.kind](problem.message)


def _encode_path(value: Any) -> str:
    assert isinstance(value, Path)
    return str(value)


def _decode_path(kind: type, value: str) -> Any:
    return kind(value)


_ENCODER = msgspec.msgpack.Encoder(enc_hook=_encode_path)
_REQUESTS = msgspec.msgpack.Decoder(LaneRequest, dec_hook=_decode_path)
_REPLIES = msgspec.msgpack.Decoder(LaneReply, dec_hook=_decode_path)


def encode(message: LaneRequest | LaneReply) -> bytes:
    """A message as bytes."""
    return _ENCODER.encode(message)


def decode_request(data: bytes) -> LaneRequest:
    """The request that these bytes are."""
    request: LaneRequest = _REQUESTS.decode(data)
    return request


def decode_reply(data: bytes) -> LaneReply:
    """The reply that these bytes are."""
    reply: LaneReply = _REPLIES.decode(data)
    return reply


def pack_family(jobs: Sequence[Job], calls: SentCalls) -> Family:
    """Jobs, ready to be sent.

    Args:
        jobs: of one kernel.
        calls: where the calls of their cases are kept.
    """
    # What variants are made from travels along, also where it is judged already.
    sources = [(*job.cases, *(job.all_cases if job.integrity else ())) for job in jobs]
    places, data = calls.packed(case for cases in sources for case in cases)
    return Family(tuple([_with_cases(job, places) for job in jobs]), data)


def _with_cases(job: Job, places: dict[CaseRef, CaseRef]) -> Job:
    counts = {case.signature: job.counts[case.signature] for case in job.cases if case.signature in job.counts}
    all_cases = with_places(job.all_cases, places) if job.integrity else ()
    return msgspec.structs.replace(
        job,
        cases=with_places(job.cases, places),
        all_cases=all_cases,
        counts=counts,  # Not those of the whole suite.
    )


def placed_jobs(family: Family, number: int) -> list[Job]:
    """Jobs that were sent, with their cases as they are found once the calls are in spool file ``number``."""
    cases = {case for job in family.jobs for case in (*job.cases, *job.all_cases)}
    places = {case: placed(case, number, 0) for case in cases}
    return [
        msgspec.structs.replace(job, cases=with_places(job.cases, places), all_cases=with_places(job.all_cases, places))
        for job in family.jobs
    ]
