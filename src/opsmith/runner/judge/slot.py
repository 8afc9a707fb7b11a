"""A slot: one referee and one worker that judge one op after another, on one thread of the judge."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.op import TaskKind, Variant
from opsmith.core.run import Options, TimedCase
from opsmith.core.seeds import derive_seed
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.clock.case_timing import CaseTimer
from opsmith.runner.clock.device_limits import DeviceLimits
from opsmith.runner.clock.stopwatch import ClockSettings
from opsmith.runner.judge.conduct import JobConduct
from opsmith.runner.judge.shrinking import Shrinking
from opsmith.runner.judge.verdicts import (
    bad_call_verdict,
    compared_verdict,
    end_of,
    failed,
    identity,
    make_verdict,
    not_run,
    raised_verdict,
    was_oom,
    with_offence,
)
from opsmith.runner.processes.failures import RefereeDied, RefereeHung, WorkerFailed
from opsmith.runner.processes.rank_group import RankGroup
from opsmith.runner.processes.referee_link import RefereeLink
from opsmith.runner.processes.worker_link import WorkerLink
from opsmith.runner.protocol.call_files import Spool, with_other_values
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.referee_messages import (
    CaseToPrepare,
    Compare,
    Compared,
    ComparedCase,
    MakeVariants,
    Prepare,
    Prepared,
    PreparedCase,
    VariantsMade,
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
)

#: After so many of them the kernel's remaining cases are NOT_RUN.
MAX_TIMEOUTS = 2
MAX_CRASHES = 3

#: Outcomes that end the worker process, apart from a time-out.
_DEADLY = {Status.CRASHED, Status.OUT_OF_MEMORY, Status.OUTPUT_LIMIT}

#: Begins the detail of a verdict that fell while the kernel was being loaded.
_LOADING = "loading: "

#: Evidence of a verdict on a case that lacked memory twice.
ASKED_BY_ITSELF = (
    "asked again with nothing else on the device and all memory given back, and there was too little again"
)

#: A chunk's size grows by this factor as long as nothing dies, up to the limits below.
FIRST_CHUNK_CASES = 8
CHUNK_GROWTH = 4
MAX_CHUNK_CASES = 32
MAX_CHUNK_BYTES = 8 << 20

#: A serialized call up to this size travels to its worker in the message itself.
LENT_BYTES = 4 << 20

#: Variants of an op: of its functional overload, and of the others, which the same code mostly answers.
VARIANTS = 24
VARIANTS_OF_VARIANTS = 4
#: Cases that variants are made from, spread over the op's.
MAX_VARIED_CASES = 24
MAX_VARIED_BYTES = 1 << 20


#: Enters the device; see :class:`Slot`.
AtDevice = Callable[[int | None, Callable[[], None]], AbstractContextManager[None]]


class Slot:
    """Judges ops; see the module's docstring.

    Args:
        referee: of this slot.
        worker: of this slot, or the ranks that are one together.
        spool: of all referees.
        options: of the run.
        seed: of the run.
        at_device: entered while cases are judged, given the bytes of their arguments, or None for a case that needs
            the device to itself, and what has the slot give memory back to another one that does.

    Attributes:
        in_use: held while it judges.
    """

    def __init__(
        self,
        referee: RefereeLink,
        worker: WorkerLink | RankGroup,
        spool: Spool,
        options: Options,
        seed: int,
        at_device: AtDevice,
    ) -> None:
        self.referee = referee
        self.worker = worker
        self.spool = spool
        self._options = options
        self._seed = seed
        self._at_device = at_device
        self._failed = False
        self.in_use = threading.Lock()

    def close(self) -> None:
        """End both processes."""
        self.referee.close()
        self.worker.close()

    def give_memory_back(self) -> None:
        """Give the device what both processes keep for the next case, and end those that wait."""
        self.referee.give_memory_back()
        self.worker.give_memory_back()

    def end_family(self) -> None:
        """Called between families of jobs: the next kernel gets a worker of its own.

        With ``--isolation backend`` it gets this one's, unless something failed in it: what a kernel did to its process
        is not held against the next one.
        """
        if self._options.isolation == "kernel" or self._failed:
            self.worker.retire()
        self._failed = False

    def judge(self, job: Job) -> Iterator[Verdict]:
        """Judge every case of a job, then variants of them, then how the kernel came to its answers."""
        for verdict in self._judge(job):
            self._failed = self._failed or verdict.is_failure
            yield verdict

    def _judge(self, job: Job) -> Iterator[Verdict]:
        conduct = JobConduct(job)
        tally = _Tally(job.earlier)
        shrinking = Shrinking(
            self.referee, self._options, self._seed, lambda case: self._judge_alone(job, case, conduct)
        )
        cases = {str(case.address): case for case in job.cases}
        loaded = all(verdict.status is not Status.LOAD_FAILED for verdict in job.earlier)
        for verdict in self._judge_cases(job, job.cases, tally, conduct):
            loaded = loaded and verdict.status is not Status.LOAD_FAILED
            yield shrinking.explain(verdict, cases[verdict.case])
        if not job.integrity or not loaded:
            return
        # Variants that had begun before a resume go on, as they would have, even if all that is said is NOT_RUN.
        if tally.enough() is None or any(verdict.part is Part.VARIANT for verdict in job.earlier):
            judged = {verdict.case for verdict in job.earlier}
            variants = [case for case in self._variants(job) if str(case.address) not in judged]
            yield from self._judge_cases(job, variants, tally, conduct)
        about_it = conduct.verdict()
        if about_it is not None:
            yield about_it

    def _judge_alone(self, job: Job, case: CaseRef, conduct: JobConduct) -> Verdict:
        verdicts = self._judge_chunk(job, [case], conduct)
        assert verdicts is not None, "only a chunk of several has to be judged again"
        return verdicts[0]

    def _variants(self, job: Job) -> Sequence[CaseRef]:
        """More cases of the op than the suite asks, made from those that it asks; of a collective none."""
        if job.schema.kind is TaskKind.COLLECTIVE:
            return ()  # What ranks are given has to fit together.
        varied = [case for case in job.all_cases if not case.expects_error and case.size_bytes <= MAX_VARIED_BYTES]
        if not varied:
            return ()
        step = -(-len(varied) // MAX_VARIED_CASES)
        chosen = varied[::step]
        limit = VARIANTS if job.schema.variant is Variant.FUNCTIONAL else VARIANTS_OF_VARIANTS
        request = MakeVariants(tuple(chosen), derive_seed(self._seed, "variants", job.schema.name), limit)
        try:
            with self._at_device(0, self.give_memory_back):
                made = self.referee.ask(request, VariantsMade)
        except (RefereeDied, RefereeFailed):
            return ()  # Eager itself fails on such values.
        assert isinstance(made, VariantsMade)
        return made.cases

    def _judge_cases(self, job: Job, cases: Sequence[CaseRef], tally: _Tally, conduct: JobConduct) -> Iterator[Verdict]:
        """Judge cases in growing chunks: one wait for the device serves a chunk.

        If a chunk brings down the worker or the referee, its cases are judged one by one.
        """
        todo = list(cases)
        # On a device each round trip waits for its turn; on the CPU a hang is found soonest alone.
        size = 1 if self._options.device.startswith("cpu") else FIRST_CHUNK_CASES
        while todo:
            reason = tally.enough()
            if reason is not None:
                yield from not_run(job, todo, reason)
                return
            chunk = _chunk(todo, size)
            verdicts = self._judge_chunk(job, chunk, conduct)
            if verdicts is None:
                size = 0
                continue
            for case, found in zip(chunk, verdicts, strict=False):  # One for all where nothing was loaded.
                if tally.enough() is not None:
                    break  # As if the chunk had been judged case by case: a resumed run finds the same.
                verdict = self._judge_by_itself(job, case, conduct) if was_oom(found) else found
                tally.add(verdict)
                del todo[0]
                yield verdict
            size = min(size * CHUNK_GROWTH, MAX_CHUNK_CASES) if tally.clean else 0
            if verdict.status is Status.LOAD_FAILED:
                yield from (msgspec.structs.replace(verdict, **identity(job, case)) for case in todo)
                return

    def time(self, job: Job, settings: ClockSettings, limits: DeviceLimits) -> Iterator[TimedCase]:
        """Time the cases of a job, which this kernel is known to answer rightly.

        Args:
            job: what is timed.
            settings: of the run's clock.
            limits: what the device can reach.
        """
        assert not isinstance(self.worker, RankGroup), "ranks are not timed by this clock"
        timer = CaseTimer(
            self.referee,
            self.worker,
            self.spool,
            job,
            options=self._options,
            seed=self._seed,
            settings=settings,
            limits=limits,
        )
        return timer.time()

    def _judge_chunk(self, job: Job, chunk: Sequence[CaseRef], conduct: JobConduct) -> list[Verdict] | None:
        """One verdict a case; None where a chunk of several has to be judged case by case.

        A kernel that does not load gets one verdict, which holds for all of its cases.
        """
        with self._at_device(sum(case.size_bytes for case in chunk), self.give_memory_back):
            return self._judge_at_device(job, chunk, conduct)

    def _judge_by_itself(self, job: Job, case: CaseRef, conduct: JobConduct) -> Verdict:
        """Judge a case again for which there was no memory, while nobody else has any that can be given back."""
        self.worker.retire()
        self.give_memory_back()
        with self._at_device(None, self.give_memory_back):
            verdicts = self._judge_at_device(job, [case], conduct)
        assert verdicts is not None, "only a chunk of several has to be judged again"
        [verdict] = verdicts
        if not was_oom(verdict):
            return verdict
        return msgspec.structs.replace(verdict, evidence=(*verdict.evidence, ASKED_BY_ITSELF))

    def _judge_at_device(self, job: Job, chunk: Sequence[CaseRef], conduct: JobConduct) -> list[Verdict] | None:
        try:
            self.referee.send(self._prepare_request(chunk))
            if isinstance(self.worker, RankGroup):
                assert chunk[0].ranks is not None
                self.worker.resize(chunk[0].ranks)
            try:
                problem = self.worker.load(job.kernel, job.root, job.schema, job.policy)
            except WorkerFailed as failure:
                return _alone(chunk, failed(job, chunk[0], failure, while_doing=_LOADING))
            finally:
                prepared = self.referee.receive(Prepared)  # In any case: it would answer the next request.
            if problem is not None:
                evidence = end_of(problem.traceback)
                return [make_verdict(job, chunk[0], Status.LOAD_FAILED, problem.message, evidence=evidence)]
            return self._judge_prepared(job, chunk, prepared.cases, conduct)
        except WorkerFailed as failure:
            return _alone(chunk, failed(job, chunk[0], failure))
        except RefereeDied as death:
            detail = f"eager gave {death}" if isinstance(death, RefereeHung) else f"eager: {death}"
            return _alone(chunk, make_verdict(job, chunk[0], Status.REFERENCE_FAILED, detail))
        except RefereeFailed as failure:
            message, _, trace = str(failure).partition("\n")
            verdict = make_verdict(
                job, chunk[0], Status.REFERENCE_FAILED, f"referee: {message}", evidence=end_of(trace)
            )
            return _alone(chunk, verdict)

    def _judge_prepared(
        self,
        job: Job,
        chunk: Sequence[CaseRef],
        prepared: Sequence[PreparedCase],
        conduct: JobConduct,
    ) -> list[Verdict] | None:
        verdicts: dict[int, Verdict] = {}
        to_run: list[int] = []
        for number, (case, known) in enumerate(zip(chunk, prepared, strict=True)):
            if (known.error is not None) is case.expects_error:
                to_run.append(number)
            else:
                reason = known.error or "eager did not raise on arguments that it refused before"
                verdicts[number] = make_verdict(job, case, Status.REFERENCE_FAILED, reason, inputs=known.inputs)
        answer = self._run(job, chunk, prepared, to_run, conduct)
        if isinstance(answer, Raised):
            return _alone(chunk, raised_verdict(job, chunk[0], prepared[0], answer))
        replies = dict(zip(to_run, answer.replies, strict=True))
        returned = {
            number: reply
            for number, reply in replies.items()
            if isinstance(reply, Returned) and not chunk[number].expects_error
        }
        compared = self._compare_fully(prepared, replies, returned)
        noticed = (notice.line for notice in self.worker.notices if not notice.breach)
        changes = tuple(dict.fromkeys((*self.worker.load_changes, *noticed, *answer.changes)))
        for number, reply in replies.items():
            case, known = chunk[number], prepared[number]
            found = _found(job, case, known, reply, compared.cases.get(number), compared.again.get(number))
            passed = found.status is Status.PASSED
            replayed = number in compared.replayed
            offence = conduct.offence(known, reply, changes, replayed=replayed, passed=passed)
            # The first answer was right, and the second one is the first: that is no mistake.
            verdicts[number] = with_offence(found, offence, job.policy, though_wrong=replayed)
        return [verdicts[number] for number in range(len(chunk))]

    def _prepare_request(self, chunk: Sequence[CaseRef]) -> Prepare:
        return Prepare(
            tuple(CaseToPrepare(case, derive_seed(self._seed, "reference", case.content_hash)) for case in chunk)
        )

    def _run(
        self,
        job: Job,
        chunk: Sequence[CaseRef],
        prepared: Sequence[PreparedCase],
        to_run: Sequence[int],
        conduct: JobConduct,
    ) -> Answered | Raised:
        """The candidate's reply to each case of ``to_run``; one :class:`Raised` if it lost the device."""
        if not to_run:
            return Answered(())
        # A Model with dropout can only be rewritten as one that draws the same numbers.
        side = "reference" if job.schema.kind is TaskKind.MODULE else "candidate"
        request = RunCalls(
            tuple(
                CallToRun(
                    self._serialized(chunk[number]),
                    derive_seed(self._seed, side, chunk[number].content_hash),
                    prepared[number].repeats,
                    again=self._with_other_values(chunk[number]) if prepared[number].again else None,
                    result_bytes=prepared[number].result_bytes if job.integrity else (),
                    traced=conduct.wants_trace(),
                )
                for number in to_run
            )
        )
        answer = self.worker.ask(request, (Answered, Raised))
        assert isinstance(answer, (Answered, Raised))
        if isinstance(answer, Answered) and not _answers(request, answer):
            self.worker.retire()
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        return answer

    def _serialized(self, case: CaseRef) -> bytes | LentCall:
        """A call as its worker gets it: large ones as a file, since a message is copied at every step of its way."""
        if case.length <= LENT_BYTES or isinstance(self.worker, RankGroup):
            return self.spool.read(case)
        return self.worker.lend_call(partial(self.spool.copy, case))

    def _with_other_values(self, case: CaseRef) -> bytes | LentCall | None:
        again = with_other_values(case)
        return None if again is None else self._serialized(again)

    def _compare(self, prepared: Sequence[PreparedCase], returned: dict[int, Returned]) -> Compared:
        if not returned:
            return Compared({}, {})
        request = Compare(
            {number: reply.outcomes[: prepared[number].repeats] for number, reply in returned.items()},
            {number: reply.outcomes[-1] for number, reply in returned.items() if prepared[number].again},
            self._options.tolerance,
            self._options.layout,
            *self._folders(),
        )
        compared = self.referee.ask(request, Compared)
        assert isinstance(compared, Compared)
        if any(found.status is Status.CRASHED for found in (*compared.cases.values(), *compared.again.values())):
            self.worker.retire()  # It spoke out of protocol: what it says next may answer nothing that is asked.
        return compared

    def _folders(self) -> tuple[str, tuple[str, ...]]:
        """Where large outcomes lie: of a worker, and of each rank."""
        if isinstance(self.worker, RankGroup):
            return "", tuple(map(str, self.worker.folders))
        return str(self.worker.folder), ()

    def _compare_fully(
        self, prepared: Sequence[PreparedCase], replies: dict[int, Returned | Raised], returned: dict[int, Returned]
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
        assert not isinstance(self.worker, RankGroup), "ranks send no summaries"
        wanted = tuple([outcome for number in compared.unclear for outcome in outcomes_of[number]])
        shown = self.worker.ask(ShowOutcomes(wanted), (OutcomesShown, Raised))
        if isinstance(shown, Raised) or len(shown.outcomes) != len(wanted):
            self.worker.retire()
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        outcomes = iter(shown.outcomes)
        in_full = {
            number: msgspec.structs.replace(
                returned[number], outcomes=tuple([next(outcomes) for _ in returned[number].outcomes])
            )
            for number in compared.unclear
        }
        rest = self._compare(prepared, in_full)
        if rest.unclear:  # It was asked for outcomes and has sent summaries again.
            self.worker.retire()
            raise WorkerFailed(Status.CRASHED, OUT_OF_PROTOCOL, ())
        return Compared(compared.cases | rest.cases, compared.again | rest.again, compared.replayed + rest.replayed)


def _answers(request: RunCalls, answer: Answered) -> bool:
    """Whether an answer has as many replies, and each as many outcomes, as were asked for."""
    return len(answer.replies) == len(request.calls) and all(
        isinstance(reply, Raised) or len(reply.outcomes) == call.repeats + (call.again is not None)
        for call, reply in zip(request.calls, answer.replies, strict=True)
    )


def _found(
    job: Job,
    case: CaseRef,
    known: PreparedCase,
    reply: Returned | Raised,
    compared: ComparedCase | None,
    again: ComparedCase | None,
) -> Verdict:
    """What a case's answer is worth, however the kernel came to it."""
    if case.expects_error:
        return bad_call_verdict(job, case, known, reply)
    if isinstance(reply, Raised):
        return raised_verdict(job, case, known, reply)
    assert compared is not None
    found = compared_verdict(job, case, known, compared)
    if found.status is not Status.PASSED or again is None or again.status is Status.PASSED:
        return found
    second = msgspec.structs.replace(
        again, detail=f"called again with other values at the same addresses: {again.detail}"
    )
    return compared_verdict(job, case, known, second)


class _Tally:
    """Counts what makes a kernel's remaining cases not worth running."""

    def __init__(self, earlier: Sequence[Verdict]) -> None:
        self._timeouts = 0
        self._crashes = 0
        for verdict in earlier:
            self.add(verdict)

    def add(self, verdict: Verdict) -> None:
        if verdict.status is Status.TIMEOUT:
            # Loading again would take as long again.
            self._timeouts += MAX_TIMEOUTS if verdict.detail.startswith(_LOADING) else 1
        self._crashes += verdict.status in _DEADLY

    @property
    def clean(self) -> bool:
        """Whether nothing has counted so far."""
        return not self._timeouts and not self._crashes

    def enough(self) -> str | None:
        """Why no more cases are run, or None."""
        if self._timeouts >= MAX_TIMEOUTS:
            return "timed out"
        return "crashed" if self._crashes >= MAX_CRASHES else None


def _alone(chunk: Sequence[CaseRef], verdict: Verdict) -> list[Verdict] | None:
    """The verdict if the case was judged alone; of several, nobody knows yet whose it is."""
    return [verdict] if len(chunk) == 1 else None


def _chunk(cases: Sequence[CaseRef], size: int) -> list[CaseRef]:
    """The next cases that are judged together, by as many ranks: at most ``size``, not too many bytes; at least one."""
    chunk = [cases[0]]
    total_bytes = cases[0].size_bytes
    for case in cases[1 : max(size, 1)]:
        total_bytes += case.size_bytes
        if total_bytes > MAX_CHUNK_BYTES or case.ranks != cases[0].ranks:
            break
        chunk.append(case)
    return chunk
