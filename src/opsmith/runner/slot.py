"""A slot: one referee and one worker that judge one op after another, on one thread of the judge."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.run import Options, TimedCase
from opsmith.core.verdict import Status, Timing, Verdict
from opsmith.errors import RefereeFailed
from opsmith.runner.links import RefereeDied, RefereeLink, WorkerFailed, WorkerLink
from opsmith.runner.protocol import (
    BlockTimed,
    Compare,
    Compared,
    Prepare,
    Prepared,
    Raised,
    Returned,
    RunCall,
    TimeBlock,
)
from opsmith.runner.stopwatch import time_pair
from opsmith.suites import derive_seed

#: After so many of them the kernel's remaining cases are NOT_RUN.
MAX_TIMEOUTS = 2
MAX_CRASHES = 3
MAX_DETAIL_CHARS = 500

#: Outcomes that end the worker process, apart from a time-out.
_DEADLY = {Status.CRASHED, Status.OUT_OF_MEMORY, Status.OUTPUT_LIMIT}


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """All cases of one op that are still to be judged.

    Attributes:
        schema: the op.
        kernel: who answers.
        root: folder of the kernel's files in the run's snapshot, or None.
        cases: what is to be judged, in order.
        counts: signature -> how often it was met in the suite.
        earlier: verdicts of this op from before a resume; they count for the limits.
    """

    schema: OpSchema
    kernel: Kernel
    root: Path | None
    cases: tuple[CaseRef, ...]
    counts: dict[str, int]
    earlier: tuple[Verdict, ...] = ()


class Spool:
    """Reads serialized calls back from the referees' spool files."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._descriptors: dict[int, int] = {}

    def read(self, case: CaseRef) -> bytes:
        descriptor = self._descriptors.get(case.spool)
        if descriptor is None:
            descriptor = self._descriptors[case.spool] = os.open(self.folder / f"{case.spool}.spool", os.O_RDONLY)
        data = os.pread(descriptor, case.length, case.offset)
        assert len(data) == case.length, "a spool file is shorter than its index says"
        return data

    def close(self) -> None:
        for descriptor in self._descriptors.values():
            os.close(descriptor)


class Slot:
    """Judges ops; see the module's docstring."""

    def __init__(self, referee: RefereeLink, worker: WorkerLink, spool: Spool, options: Options, seed: int) -> None:
        self.referee = referee
        self.worker = worker
        self.spool = spool
        self._options = options
        self._seed = seed

    def judge(self, job: Job) -> Iterator[Verdict]:
        """Judge every case of a job; the worker is this kernel's alone unless isolation says otherwise."""
        timeouts = sum(v.status is Status.TIMEOUT for v in job.earlier)
        crashes = sum(v.status in _DEADLY for v in job.earlier)
        load_failure: Verdict | None = None
        for number, case in enumerate(job.cases):
            if load_failure is not None:
                yield msgspec.structs.replace(load_failure, **_identity(job, case))
                continue
            if timeouts >= MAX_TIMEOUTS or crashes >= MAX_CRASHES:
                yield from _not_run(job, job.cases[number:], "timed out" if timeouts >= MAX_TIMEOUTS else "crashed")
                break
            verdict, loading = self._judge_case(job, case)
            timeouts += verdict.status is Status.TIMEOUT
            crashes += verdict.status in _DEADLY
            if loading and verdict.status is Status.TIMEOUT:
                timeouts = MAX_TIMEOUTS  # Loading again would take as long again.
            if verdict.status is Status.LOAD_FAILED:
                load_failure = verdict
            yield verdict
        if self._options.isolation == "kernel":
            self.worker.retire()

    def time(self, job: Job) -> Iterator[TimedCase]:
        """Time the cases of a job, which this kernel is known to answer rightly."""
        for case in job.cases:
            timings: tuple[Timing, ...] = ()
            problem = None
            try:
                timings = self._time_case(job, case)
            except (WorkerFailed, RefereeDied, RefereeFailed) as exc:
                problem = _one_line(str(exc))
            yield TimedCase(
                op=job.schema.name,
                case=str(case.address),
                kernel=job.kernel.content_hash,
                timings=timings,
                problem=problem,
            )
        if self._options.isolation == "kernel":
            self.worker.retire()

    def _time_case(self, job: Job, case: CaseRef) -> tuple[Timing, ...]:
        def candidate(request: TimeBlock) -> BlockTimed:
            reply = self.worker.ask(request, (BlockTimed, Raised))
            if isinstance(reply, Raised):
                raise WorkerFailed(Status.ERROR, f"raised while it was timed: {reply.message}", ())
            assert isinstance(reply, BlockTimed)
            return reply

        def reference(request: TimeBlock) -> BlockTimed:
            reply = self.referee.ask(request, BlockTimed)
            assert isinstance(reply, BlockTimed)
            return reply

        problem = self.worker.load(job.kernel, job.root, job.schema)
        if problem is not None:
            raise WorkerFailed(Status.LOAD_FAILED, problem.message, ())
        return time_pair(
            reference,
            candidate,
            self.spool.read(case),
            on_device=self._options.device.startswith("cuda"),
            seed=derive_seed(self._seed, "timing", case.content_hash),
        )

    def _judge_case(self, job: Job, case: CaseRef) -> tuple[Verdict, bool]:
        """The verdict, and whether it fell while the kernel was being loaded."""
        try:
            problem = self.worker.load(job.kernel, job.root, job.schema)
        except WorkerFailed as failure:
            return _failed(job, case, failure, while_doing="loading: "), True
        if problem is not None:
            return _verdict(job, case, Status.LOAD_FAILED, problem.message, evidence=_end_of(problem.traceback)), True
        try:
            return self._judge_loaded(job, case), False
        except WorkerFailed as failure:
            return _failed(job, case, failure), False
        except RefereeDied as death:
            return _verdict(job, case, Status.REFERENCE_FAILED, f"eager: {death}"), False
        except RefereeFailed as failure:
            message, _, trace = str(failure).partition("\n")
            return _verdict(job, case, Status.REFERENCE_FAILED, f"referee: {message}", evidence=_end_of(trace)), False

    def _judge_loaded(self, job: Job, case: CaseRef) -> Verdict:
        call = self.spool.read(case)
        prepared = self.referee.ask(
            Prepare(case, call, derive_seed(self._seed, "reference", case.content_hash)), Prepared
        )
        if (prepared.error is not None) is not case.expects_error:
            reason = prepared.error or "eager did not raise on arguments that it refused before"
            return _verdict(job, case, Status.REFERENCE_FAILED, reason, inputs=prepared.inputs)
        seed = derive_seed(self._seed, "candidate", case.content_hash)
        reply = self.worker.ask(RunCall(call, seed, prepared.repeats), (Returned, Raised))
        if case.expects_error:
            return _bad_call_verdict(job, case, prepared, reply)
        if isinstance(reply, Raised):
            return _raised_verdict(job, case, prepared, reply)
        compared = self.referee.ask(Compare(reply.outcomes, self._options.tolerance, self._options.layout), Compared)
        return _verdict(
            job,
            case,
            compared.status,
            compared.detail,
            figures=compared.figures,
            layout_differs=compared.layout_differs,
            comparison=prepared.comparison,
            inputs=prepared.inputs,
        )


# ---------------------------------------------------------------- verdicts from replies


def _identity(job: Job, case: CaseRef) -> dict[str, object]:
    return {
        "op": job.schema.name,
        "case": str(case.address),
        "content_hash": case.content_hash,
        "dtype": case.address.dtype,
        "kernel": job.kernel.content_hash,
        "expects_error": case.expects_error,
        "derived": job.kernel.derived_from is not None,
        "count": job.counts.get(case.signature, 1),
    }


def _verdict(job: Job, case: CaseRef, status: Status, detail: str = "", **fields: object) -> Verdict:
    return Verdict(**_identity(job, case), status=status, detail=_one_line(detail), **fields)  # type: ignore[arg-type]


def _failed(job: Job, case: CaseRef, failure: WorkerFailed, while_doing: str = "") -> Verdict:
    return _verdict(job, case, failure.status, while_doing + failure.detail, evidence=failure.evidence)


def _bad_call_verdict(job: Job, case: CaseRef, prepared: Prepared, reply: Returned | Raised) -> Verdict:
    if isinstance(reply, Raised) and reply.kind in ("error", "unsupported"):
        return _verdict(job, case, Status.PASSED, inputs=prepared.inputs)
    if isinstance(reply, Raised):
        return _raised_verdict(job, case, prepared, reply)
    detail = f"answered a call that eager refuses ({prepared.error})"
    return _verdict(job, case, Status.DID_NOT_RAISE, detail, inputs=prepared.inputs)


_STATUS_OF_RAISED = {
    "unsupported": Status.UNSUPPORTED,
    "memory": Status.OUT_OF_MEMORY,
    "device": Status.CRASHED,
    "error": Status.ERROR,
}


def _raised_verdict(job: Job, case: CaseRef, prepared: Prepared, reply: Raised) -> Verdict:
    status = _STATUS_OF_RAISED.get(reply.kind, Status.ERROR)
    return _verdict(job, case, status, reply.message, inputs=prepared.inputs, evidence=_end_of(reply.traceback))


def _not_run(job: Job, cases: Sequence[CaseRef], reason: str) -> Iterator[Verdict]:
    for case in cases:
        yield _verdict(job, case, Status.NOT_RUN, f"not run: this kernel {reason} too often")


def _end_of(text: str, lines: int = 8) -> tuple[str, ...]:
    return tuple(text.strip().splitlines()[-lines:])


def _one_line(text: str) -> str:
    return " ".join(text.split())[:MAX_DETAIL_CHARS]
