"""A chunk of cases: prepared by the referee, run by the kernel, compared by the referee, all of them at a time."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.conduct import Offence
from opsmith.core.run import Options
from opsmith.core.seeds import derive_seed
from opsmith.core.verdict import Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.judge.conduct import JobConduct
from opsmith.runner.judge.verdicts import (
    bad_call_verdict,
    compared_verdict,
    end_of,
    failed,
    make_verdict,
    raised_verdict,
    with_offence,
)
from opsmith.runner.processes.candidate import Candidate
from opsmith.runner.processes.failures import RefereeDied, RefereeHung, WorkerFailed
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.protocol.call_files import Spool, with_other_values
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import (
    CaseToPrepare,
    Compare,
    Compared,
    ComparedCase,
    Prepare,
    Prepared,
    PreparedCase,
)
from opsmith.runner.protocol.worker_messages import (
    OUT_OF_PROTOCOL,
    Answered,
    CallToRun,
    LentCall,
    OutcomesShown,
    Raised,
    Returned,
    RunCalls,
    ShowOutcomes,
    answers_all,
)

#: Begins the detail of a verdict that fell while the kernel was being loaded.
LOADING = "loading: "


class Judged(msgspec.Struct, frozen=True):
    """A chunk is done.

    Attributes:
        verdicts: one for each of its cases, in order; of a kernel that does not load a single one, which holds for
            every case of the job.
    """

    verdicts: list[Verdict]


class Retry(msgspec.Struct, frozen=True):
    """A process was lost over one of several cases, and nobody knows which: each has to be judged in its own chunk."""


class ChunkJudge:
    """Judges chunks of one job's cases.

    Args:
        job: the op and its kernel.
        conduct: is told how the kernel comes to its answers.
        referee: of the slot.
        candidate: of the slot.
        spool: of all referees.
        options: of the run.
        seed: of the run.
    """

    def __init__(
        self,
        job: Job,
        conduct: JobConduct,
        referee: RefereeLink,
        candidate: Candidate,
        *,
        spool: Spool,
        options: Options,
        seed: int,
    ) -> None:
        self._job = job
        self._conduct = conduct
        self._referee = referee
        self._candidate = candidate
        self._spool = spool
        self._options = options
        self._seed = seed

    def judge(self, chunk: Sequence[CaseRef]) -> Judged | Retry:
        """Judge cases together; a chunk of one is never to be judged again."""
        try:
            return self._judge(chunk)
        except WorkerFailed as failure:
            # The worker crashed, hung, broke a limit or spoke out of protocol in one of the calls.
            return _blamed(chunk, failed(self._job, chunk[0], failure))
        except RefereeDied as death:
            # Eager died or hung on one of the calls, for which the kernel is not blamed.
            detail = f"eager gave {death}" if isinstance(death, RefereeHung) else f"eager: {death}"
            return _blamed(chunk, make_verdict(self._job, chunk[0], Status.REFERENCE_FAILED, detail))
        except RefereeFailed as failure:
            # The referee's own code raised over one of the calls.
            message, _, trace = str(failure).partition("\n")
            verdict = make_verdict(
                self._job, chunk[0], Status.REFERENCE_FAILED, f"referee: {message}", evidence=end_of(trace)
            )
            return _blamed(chunk, verdict)

    def _judge(self, chunk: Sequence[CaseRef]) -> Judged | Retry:
        job = self._job
        self._referee.send(self._prepare_request(chunk))
        self._candidate.resize(chunk[0].ranks)
        try:
            problem = self._candidate.load(job.kernel, job.root, job.schema, job.policy)
        except WorkerFailed as failure:
            return _blamed(chunk, failed(job, chunk[0], failure, while_doing=LOADING))
        finally:
            prepared = self._referee.receive(Prepared)  # In any case: it would answer the next request.
        if problem is not None:
            evidence = end_of(problem.traceback)
            return Judged([make_verdict(job, chunk[0], Status.LOAD_FAILED, problem.message, evidence=evidence)])
        return self._judge_prepared(chunk, prepared.cases)

    def _judge_prepared(self, chunk: Sequence[CaseRef], prepared: Sequence[PreparedCase]) -> Judged | Retry:
        verdicts: dict[int, Verdict] = {}
        to_run: list[int] = []
        for number, (case, known) in enumerate(zip(chunk, prepared, strict=True)):
            if (known.error is not None) is case.expects_error:
                to_run.append(number)
            else:
                reason = known.error or "eager did not raise on arguments that it refused before"
                verdicts[number] = make_verdict(self._job, case, Status.REFERENCE_FAILED, reason, inputs=known.inputs)
        answer = self._run(chunk, prepared, to_run)
        if isinstance(answer, Raised):
            # The device was lost, or one rank left the others, in one of the calls.
            return _blamed(chunk, raised_verdict(self._job, chunk[0], prepared[0], answer))
        replies = dict(zip(to_run, answer.replies, strict=True))
        returned = {
            number: reply
            for number, reply in replies.items()
            if isinstance(reply, Returned) and not chunk[number].expects_error
        }
        compared = self._compare_fully(prepared, replies, returned)
        noticed = (n.line for n in self._candidate.notices if n.offence is Offence.TAMPERING)
        changes = tuple(dict.fromkeys((*self._candidate.load_changes, *noticed, *answer.changes)))
        for number, reply in replies.items():
            case, known = chunk[number], prepared[number]
            found = self._found(case, known, reply, compared.cases.get(number), compared.again.get(number))
            passed = found.status is Status.PASSED
            replayed = number in compared.replayed
            held = self._conduct.held_against(known, reply, changes, replayed=replayed, passed=passed)
            # The first answer was right, and the second one is the first: that is no mistake.
            verdicts[number] = with_offence(found, held, self._job.policy, though_wrong=replayed)
        return Judged([verdicts[number] for number in range(len(chunk))])

    def _prepare_request(self, chunk: Sequence[CaseRef]) -> Prepare:
        return Prepare(
            tuple(CaseToPrepare(case, derive_seed(self._seed, "reference", case.content_hash)) for case in chunk)
        )

    def _run(
        self, chunk: Sequence[CaseRef], prepared: Sequence[PreparedCase], to_run: Sequence[int]
    ) -> Answered | Raised:
        """The candidate's reply to each case of ``to_run``; one :class:`Raised` if it lost the device."""
        if not to_run:
            return Answered(())
        # A Model with dropout can only be rewritten as one that draws the same numbers.
        side = "reference" if self._job.schema.kind.of_problems else "candidate"
        request = RunCalls(
            tuple(
                CallToRun(
                    self._candidate.call_to_send(chunk[number], self._spool),
                    derive_seed(self._seed, side, chunk[number].content_hash),
                    prepared[number].repeats,
                    again=self._with_other_values(chunk[number]) if prepared[number].again else None,
                    result_bytes=prepared[number].result_bytes if self._job.integrity else (),
                    traced=self._conduct.wants_trace(),
                )
                for number in to_run
            )
        )
        answer = self._candidate.ask(request, (Answered, Raised))
        assert isinstance(answer, (Answered, Raised))
        if isinstance(answer, Answered) and not answers_all(request, answer):
            raise self._out_of_protocol()
        return answer

    def _with_other_values(self, case: CaseRef) -> bytes | LentCall | None:
        again = with_other_values(case)
        return None if again is None else self._candidate.call_to_send(again, self._spool)

    def _compare_fully(
        self,
        prepared: Sequence[PreparedCase],
        replies: Mapping[int, Returned | Raised],
        returned: Mapping[int, Returned],
    ) -> Compared:
        """Compare, and again with the outcomes themselves where a summary left it open."""
        compared = self._compare(prepared, returned)
        if not compared.unclear:
            return compared
        numbers = itertools.count()
        outcomes_of = {
            number: [next(numbers) for _ in reply.outcomes]
            for number, reply in replies.items()
            if isinstance(reply, Returned)
        }
        wanted = tuple([outcome for number in compared.unclear for outcome in outcomes_of[number]])
        shown = self._candidate.ask(ShowOutcomes(wanted), (OutcomesShown, Raised))
        if isinstance(shown, Raised) or len(shown.outcomes) != len(wanted):
            raise self._out_of_protocol()
        outcomes = iter(shown.outcomes)
        in_full = {
            number: msgspec.structs.replace(
                returned[number], outcomes=tuple([next(outcomes) for _ in returned[number].outcomes])
            )
            for number in compared.unclear
        }
        rest = self._compare(prepared, in_full)
        if rest.unclear:  # It was asked for outcomes and has sent summaries again.
            raise self._out_of_protocol()
        return Compared(compared.cases | rest.cases, compared.again | rest.again, compared.replayed + rest.replayed)

    def _compare(self, prepared: Sequence[PreparedCase], returned: Mapping[int, Returned]) -> Compared:
        if not returned:
            return Compared({}, {})
        request = Compare(
            {number: reply.outcomes[: prepared[number].repeats] for number, reply in returned.items()},
            {number: reply.outcomes[-1] for number, reply in returned.items() if prepared[number].again},
            self._options.tolerance,
            self._options.layout,
            *self._candidate.outcome_folders(),
        )
        compared = self._referee.ask(request, Compared)
        assert isinstance(compared, Compared)
        if any(found.status is Status.CRASHED for found in (*compared.cases.values(), *compared.again.values())):
            self._candidate.retire()  # It spoke out of protocol: what it says next may answer nothing that is asked.
        return compared

    def _out_of_protocol(self) -> WorkerFailed:
        """What to raise where a candidate's reply does not answer the request; it is asked nothing more."""
        self._candidate.retire()
        return WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())

    def _found(
        self,
        case: CaseRef,
        known: PreparedCase,
        reply: Returned | Raised,
        compared: ComparedCase | None,
        again: ComparedCase | None,
    ) -> Verdict:
        """What a case's answer is worth, however the kernel came to it."""
        if case.expects_error:
            return bad_call_verdict(self._job, case, known, reply)
        if isinstance(reply, Raised):
            return raised_verdict(self._job, case, known, reply)
        assert compared is not None
        found = compared_verdict(self._job, case, known, compared)
        if found.status is not Status.PASSED or again is None or again.status is Status.PASSED:
            return found
        second = msgspec.structs.replace(
            again, detail=f"called again with other values at the same addresses: {again.detail}"
        )
        return compared_verdict(self._job, case, known, second)


def _blamed(chunk: Sequence[CaseRef], verdict: Verdict) -> Judged | Retry:
    """The verdict if the case was judged alone; of several, nobody knows yet whose it is."""
    return Judged([verdict]) if len(chunk) == 1 else Retry()
