"""Looking at a judged kernel: a profile of a call, and a map of where a result is wrong. Nothing is decided by it."""

from __future__ import annotations

import math

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.evidence import CallProfile, CompiledKernel, ErrorMap, Evidence, LineTimes, Span
from opsmith.core.op import TaskKind
from opsmith.core.run import Options
from opsmith.core.seeds import derive_seed
from opsmith.core.verdict import one_line
from opsmith.errors import ProcessLost, RefereeFailed
from opsmith.runner.processes.failures import RefereeDied, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import (
    CaseToPrepare,
    Compare,
    ErrorsMapped,
    MapErrors,
    Prepare,
    Prepared,
)
from opsmith.runner.protocol.worker_messages import (
    Answered,
    CallProfiled,
    CallToRun,
    OutcomesShown,
    ProfileCall,
    Raised,
    Returned,
    RunCalls,
    ShowOutcomes,
)

#: Of what a worker says, which may be anything.
MOST_SPANS, MOST_LINES, MOST_KERNELS, MOST_NAME_CHARS = 400, 200, 16, 120


class Looker:
    """Looks at the kernel of one job.

    Args:
        job: the task and its kernel.
        referee: of the slot.
        worker: of the slot.
        spool: of all referees.
        options: of the run.
        seed: of the run.
    """

    def __init__(
        self, job: Job, referee: RefereeLink, worker: WorkerLink, *, spool: Spool, options: Options, seed: int
    ) -> None:
        self._job = job
        self._referee = referee
        self._worker = worker
        self._spool = spool
        self._options = options
        self._seed = seed

    def look(self, case: CaseRef, *, is_wrong: bool) -> Evidence:
        """What is seen of one case: where a result is off, or what the call spends its time on."""
        job = self._job
        try:
            problem = self._worker.load(job.kernel, job.root, job.schema, job.policy)
            if problem is not None:
                return Evidence(problem=one_line(problem.message))
            return Evidence(errors=self._errors(case)) if is_wrong else self._profile(case)
        except (WorkerFailed, RefereeDied, RefereeFailed, ProcessLost) as exc:
            return Evidence(problem=one_line(str(exc).partition("\n")[0]))
        finally:
            self._worker.retire()  # It has run unwatched.

    def _profile(self, case: CaseRef) -> Evidence:
        request = ProfileCall(self._worker.call_to_send(case, self._spool))
        reply = self._worker.ask(request, (CallProfiled, Raised))
        if isinstance(reply, Raised):
            return Evidence(problem=one_line(reply.message))
        assert isinstance(reply, CallProfiled)
        return plain(reply.evidence, self._options.device)

    def _errors(self, case: CaseRef) -> ErrorMap | None:
        seed = derive_seed(self._seed, "reference", case.content_hash)
        [known] = self._referee.ask(Prepare((CaseToPrepare(case, seed),)), Prepared).cases
        if known.error is not None:
            return None
        call = self._worker.call_to_send(case, self._spool)
        side = "reference" if self._job.schema.kind is TaskKind.MODULE else "candidate"
        seed = derive_seed(self._seed, side, case.content_hash)
        answer = self._worker.ask(RunCalls((CallToRun(call, seed),)), (Answered, Raised))
        if isinstance(answer, Raised) or len(answer.replies) != 1 or not isinstance(answer.replies[0], Returned):
            return None
        shown = self._worker.ask(ShowOutcomes((0,)), (OutcomesShown, Raised))
        if isinstance(shown, Raised) or len(shown.outcomes) != 1:
            return None
        request = Compare(
            {0: shown.outcomes}, {}, self._options.tolerance, self._options.layout, *self._worker.outcome_folders()
        )
        found = self._referee.ask(MapErrors(request), ErrorsMapped)
        assert isinstance(found, ErrorsMapped)
        return found.errors


def plain(evidence: Evidence, device: str) -> Evidence:
    """What a worker says, in bounds: numbers that are numbers, short names, not too many of them."""
    profile, lines = evidence.profile, evidence.lines
    return Evidence(
        profile=None if profile is None else _plain_profile(profile, device),
        compiled=tuple(map(_plain_kernel, evidence.compiled[:MOST_KERNELS])),
        lines=None if lines is None else _plain_lines(lines),
    )


def _plain_profile(profile: CallProfile, device: str) -> CallProfile:
    spans = [
        Span(_short(span.name), span.start_us, span.duration_us)
        for span in profile.spans[:MOST_SPANS]
        if _is_time(span.start_us) and _is_time(span.duration_us)
    ]
    spans.sort(key=lambda span: span.start_us)
    return CallProfile(device=device, spans=tuple(spans), left_out=min(max(profile.left_out, 0), 1 << 31))


def _plain_lines(lines: LineTimes) -> LineTimes:
    us = {line: took for line, took in list(lines.us.items())[:MOST_LINES] if 0 < line < 1 << 20 and _is_time(took)}
    return LineTimes(file=_short(lines.file), us=us)


def _plain_kernel(kernel: CompiledKernel) -> CompiledKernel:
    return msgspec.structs.replace(kernel, name=_short(kernel.name))


def _is_time(us: float) -> bool:
    return math.isfinite(us) and 0 <= us <= 1e9


def _short(name: str) -> str:
    return " ".join(name.split())[:MOST_NAME_CHARS]
