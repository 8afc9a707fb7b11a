"""Verdicts from what a referee found and a worker replied."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.conduct import Held, Offence
from opsmith.core.verdict import BareAnswers, Part, Status, Verdict, one_line
from opsmith.runner.processes.failures import WorkerFailed
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.protocol.referee_messages import ComparedCase, PreparedCase
from opsmith.runner.protocol.worker_messages import Raised, Returned

#: What a lack of memory ends in.
_WITHOUT_MEMORY = {Status.OUT_OF_MEMORY, Status.REFERENCE_FAILED, Status.CRASHED, Status.ERROR, Status.LOAD_FAILED}
_STATUS_OF_RAISED = {
    "unsupported": Status.UNSUPPORTED,
    "memory": Status.OUT_OF_MEMORY,
    "device": Status.CRASHED,
    "error": Status.ERROR,
}


def identity(job: Job, case: CaseRef) -> dict[str, object]:
    """What every verdict of a case says, whatever was found."""
    return {
        "op": job.schema.name,
        "case": str(case.address),
        "content_hash": case.content_hash,
        "dtype": case.address.dtype,
        "kernel": job.kernel.content_hash,
        "expects_error": case.expects_error,
        "derived": job.kernel.derived_from is not None,
        "count": job.counts.get(case.signature, 1),
        "part": Part.CASE if case.variant is None else Part.VARIANT,
        "variant": case.variant or "",
    }


def make_verdict(job: Job, case: CaseRef, status: Status, detail: str = "", **fields: object) -> Verdict:
    """A verdict of a case; ``fields`` are further attributes of :class:`~opsmith.core.verdict.Verdict`."""
    return Verdict(**identity(job, case), status=status, detail=one_line(detail), **fields)  # type: ignore[arg-type]


def failed(job: Job, case: CaseRef, failure: WorkerFailed, while_doing: str = "") -> Verdict:
    """The worker died, hung or broke a limit; what it was seen to hide or to tamper with before that counts more."""
    seen = _gravest_first(failure.notices)
    evidence = (*(held.line for held in seen), f"policy: {job.policy}") if seen else ()
    if seen and _status_of(seen) is Status.DISHONEST:
        evidence += (f"then: {failure.status}, {failure.detail}",)
        return make_verdict(job, case, Status.DISHONEST, seen[0].line, evidence=evidence)
    evidence += failure.evidence
    return make_verdict(job, case, failure.status, while_doing + failure.detail, evidence=evidence)


def bad_call_verdict(job: Job, case: CaseRef, prepared: PreparedCase, reply: Returned | Raised) -> Verdict:
    """The kernel's answer to a call that eager refuses."""
    if isinstance(reply, Raised) and reply.kind in ("error", "unsupported"):
        return make_verdict(job, case, Status.PASSED, inputs=prepared.inputs)
    if isinstance(reply, Raised):
        return raised_verdict(job, case, prepared, reply)
    detail = f"answered a call that eager refuses ({prepared.error})"
    return make_verdict(job, case, Status.DID_NOT_RAISE, detail, inputs=prepared.inputs)


def raised_verdict(job: Job, case: CaseRef, prepared: PreparedCase, reply: Raised) -> Verdict:
    """The kernel raised."""
    status = _STATUS_OF_RAISED.get(reply.kind, Status.ERROR)
    if status is Status.CRASHED and is_oom(reply.message):
        status = Status.OUT_OF_MEMORY
    return make_verdict(job, case, status, reply.message, inputs=prepared.inputs, evidence=end_of(reply.traceback))


def compared_verdict(job: Job, case: CaseRef, prepared: PreparedCase, found: ComparedCase) -> Verdict:
    """The kernel returned, and the referee compared."""
    return make_verdict(
        job,
        case,
        found.status,
        found.detail,
        figures=found.figures,
        layout_differs=found.layout_differs,
        comparison=prepared.comparison,
        inputs=prepared.inputs,
    )


def was_oom(verdict: Verdict) -> bool:
    """Whether there was no memory, be it the kernel's or eager's lack; who took it, nobody knows.

    What a worker takes beyond its own limit is another thing.
    """
    said = (verdict.detail, *verdict.evidence)
    return verdict.status in _WITHOUT_MEMORY and any(map(is_oom, said))


def not_run(job: Job, cases: Sequence[CaseRef], reason: str) -> Iterator[Verdict]:
    """What is left of a job that is not worth running."""
    for case in cases:
        yield make_verdict(job, case, Status.NOT_RUN, f"not run: this kernel {reason} too often")


def end_of(text: str, lines: int = 8) -> tuple[str, ...]:
    """The last lines of a traceback or of output."""
    return tuple(text.strip().splitlines()[-lines:])


def with_offence(found: Verdict, held: Sequence[Held], policy: str | None, *, though_wrong: bool = False) -> Verdict:
    """A verdict with what is held against how the kernel came to its answer.

    A right answer becomes POLICY where all of it was done in the open, else DISHONEST; a wrong one stays what it is,
    which is worse.

    Args:
        found: what the answer itself is worth.
        held: what was observed.
        policy: the kernel's.
        though_wrong: the offence explains the wrong answer.
    """
    if not held:
        return found
    seen = _gravest_first(held)
    evidence = (*(each.line for each in seen), f"policy: {policy}", *found.evidence)
    if found.status is not Status.PASSED and not though_wrong:
        return msgspec.structs.replace(found, evidence=evidence)
    return msgspec.structs.replace(found, status=_status_of(seen), detail=one_line(seen[0].line), evidence=evidence)


def with_bare_answers(about_it: Verdict, answers: BareAnswers, offence: str | None, policy: str | None) -> Verdict:
    """The verdict on a kernel's conduct with what it did in a process that has none of opsmith's modules."""
    said = (f"in a process without opsmith: {answers.problem}",) if answers.problem else ()
    verdict = msgspec.structs.replace(about_it, bare=answers, evidence=(*said, *about_it.evidence))
    return with_offence(verdict, [Held(offence, Offence.CONCEALMENT)] if offence else [], policy)


def conduct_verdict(job: Job, held: Sequence[Held], remarks: Sequence[str]) -> Verdict:
    """About how a kernel comes to its answers, as a whole.

    Args:
        job: of the kernel.
        held: what is held against it.
        remarks: further lines for the reader.
    """
    seen = _gravest_first(held)
    lines = [each.line for each in seen]
    return Verdict(
        op=job.schema.name,
        case=f"conduct:{job.schema.name}",
        content_hash=job.kernel.content_hash,
        dtype="",
        kernel=job.kernel.content_hash,
        status=_status_of(seen) if seen else Status.PASSED,
        detail=lines[0] if lines else "",
        derived=job.kernel.derived_from is not None,
        evidence=(*lines, *remarks),
        part=Part.CONDUCT,
    )


def _gravest_first(held: Iterable[Held]) -> list[Held]:
    return sorted(held, key=lambda each: each.offence is Offence.COMPOSITION)


def _status_of(held: Iterable[Held]) -> Status:
    """POLICY for what was done in the open; one thing that was not makes it DISHONEST."""
    composed = all(each.offence is Offence.COMPOSITION for each in held)
    return Status.POLICY if composed else Status.DISHONEST
