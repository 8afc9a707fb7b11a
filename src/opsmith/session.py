"""Kernels judged as they come: the suite is enumerated once, and its processes stay.

A run (:mod:`opsmith.pipeline`) judges a backend that exists. Whoever writes kernels in a loop, by hand, by a language
model or by reinforcement learning, has one kernel after another for the same tasks::

    with Session(options, folder) as session:
        judged = session.judge("relu.default", Path("relu.py"))
        judged.accepted, judged.summary.speedup_e

The cases and their values are secret and the same for all kernels of a session, so that two of them can be compared.
A kernel that was chosen among many should be judged once more in a run of its own, on values that chose nobody.
"""

from __future__ import annotations

import contextlib
import math
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from opsmith.backends.file import KernelFile
from opsmith.core.call_text import describe, size_in
from opsmith.core.case import CallRecord, CaseRef
from opsmith.core.environment import Environment
from opsmith.core.evidence import Evidence
from opsmith.core.kernel import Kernel
from opsmith.core.op import OpSchema
from opsmith.core.run import OpSummary, Options, PlannedOp, TimedCase, new_seed
from opsmith.core.task import Task
from opsmith.core.timing import Cause, Clock, Undecided
from opsmith.core.verdict import Part, Status, Verdict
from opsmith.errors import BadInput, NoDeviceMemory, Unconfined, UnknownName, VoidTask
from opsmith.evaluation.timing.statistics import quantities_on
from opsmith.pipeline import Progress, Silent, check_options
from opsmith.report.scores import summarise_op
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.judge.chunk import CALLED_AGAIN
from opsmith.runner.judge.device_lane import open_here
from opsmith.runner.judge.verdicts import conduct_verdict
from opsmith.runner.plan.jobs import timed_part
from opsmith.runner.plan.planning import enumerate_cases, select_ops
from opsmith.runner.plan.snapshot import snapshot_root, take_snapshot
from opsmith.runner.processes.failures import TIME_IS_OVER
from opsmith.runner.protocol.job import Job
from opsmith.runner.protocol.lane import LaneWork
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.out_of_memory import is_oom

_CALL = msgspec.msgpack.Decoder(CallRecord)
#: Calls of a task that are put into words.
MOST_EXAMPLES = 12
#: Seconds, at most, that ending a kernel takes whose time is over.
ENDING_S = 1.0
#: Of the arguments of a call whose errors are mapped.
MOST_MAPPED_ELEMENTS = 1 << 26
#: What is told of a kernel while it is judged.
Found: TypeAlias = Verdict | TimedCase


class AskedTask(msgspec.Struct, frozen=True, kw_only=True):
    """A task of a session.

    Attributes:
        name: the overload, or the problem's name.
        op: its schema.
        cases: how many calls are asked, bad ones left out.
        examples: some of the calls in words, the smallest and the largest among them.
        dtypes: of the cases.
        ranks: on how many processes a task is asked that several answer together.
    """

    name: str
    op: OpSchema
    cases: int
    examples: tuple[str, ...]
    dtypes: tuple[str, ...]
    ranks: tuple[int, ...] = ()


class Judged(msgspec.Struct, frozen=True, kw_only=True):
    """What a session found about one kernel.

    Attributes:
        task: its task.
        kernel_hash: names what was judged.
        dsl: what it is written in.
        summary: the scores of the task.
        verdicts: those that say something: failures, and what was timed.
        device_s: seconds that judging and timing took.
    """

    task: str
    kernel_hash: str
    dsl: str
    summary: OpSummary
    verdicts: tuple[Verdict, ...]
    device_s: float

    @property
    def accepted(self) -> bool:
        """Whether every case passed and nothing is held against the kernel."""
        return self.summary.accepted

    @property
    def speedup(self) -> float | None:
        """Of kernel time where the device has one, else of call time; None where nothing was timed."""
        return self.summary.speedup_k if self.summary.speedup_k is not None else self.summary.speedup_e


class Watch:
    """Adds up the seconds that a kernel has a process; waiting for one is no work of the device's."""

    def __init__(self) -> None:
        self._before = 0.0
        self._started: float | None = None

    def start(self) -> None:
        self._started = time.monotonic()

    def stop(self) -> None:
        self._before, self._started = self.seconds, None

    @property
    def seconds(self) -> float:
        return self._before + (0.0 if self._started is None else time.monotonic() - self._started)


class Session:
    """See the module's docstring; a context manager, whose methods may be called from several threads.

    Attributes:
        void: module problem -> why it asks nothing; it is no task of the session.

    Args:
        options: what is asked, how strictly, and whether correct kernels are timed; its backend is a name for the
            records.
        folder: takes copies of the kernels that are judged; no kernel may read it.
        withheld: further folders that no kernel may read.
        seed: of all values; a fresh secret one if None.
        jobs: kernels judged at a time.
        limits: time limits; sensible ones if None.
        progress: told how far starting and enumerating are.
        every_layer: do not start where the machine cannot give a layer of the sandbox.
    """

    def __init__(
        self,
        options: Options,
        folder: Path,
        *,
        withheld: Sequence[Path] = (),
        seed: int | None = None,
        jobs: int = 1,
        limits: Limits | None = None,
        progress: Progress | None = None,
        every_layer: bool = False,
    ) -> None:
        check_options(options)
        self.options = options
        self._folder = folder
        self._withheld = [folder.resolve(), *(path.resolve() for path in withheld)]
        self._seed = new_seed(seed)
        self._jobs = jobs
        self._limits = limits or Limits()
        self._progress = progress or Silent()
        self._every_layer = every_layer
        self._open = contextlib.ExitStack()
        self._snapshots = threading.Lock()

    def __enter__(self) -> Self:
        """Start the processes and enumerate the tasks.

        Raises:
            UsageError: the request cannot be carried out as written.
            Unconfined: a layer of the sandbox is missing, and every one is needed.
            RefereeFailed: the trusted processes do not start.
        """
        with contextlib.ExitStack() as opening:
            self._progress.stage("starting", 0)
            work = LaneWork(
                options=self.options,
                seed=self._seed,
                jobs=self._jobs,
                limits=self._limits,
                withheld=tuple(map(str, self._withheld)),
                again=self.options.checks_integrity(trusted=False),
            )
            self._lane = opening.enter_context(open_here(work, self._progress.waiting))
            facts = self._lane.facts
            self.sandbox, self.sandbox_missing = facts.sandbox, facts.sandbox_missing
            if self._every_layer and self.sandbox_missing:
                raise Unconfined(self.sandbox_missing)
            self.environment: Environment = facts.environment
            self._interpreted = facts.interpreted
            self._enumerate()
            self._open = opening.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._open.close()

    @property
    def clock(self) -> Clock | None:
        """How kernels are timed; None until one was."""
        return self._lane.clock

    @property
    def tasks(self) -> Mapping[str, AskedTask]:
        """What a kernel may be judged on, by name."""
        return self._tasks

    def has_case(self, task: str, case: str) -> bool:
        """Whether a task is asked the case of this address; variants and conduct have addresses of their own.

        Raises:
            UnknownName: the session has no such task.
        """
        self._asked(task)
        return any(str(each.address) == case for each in self._cases[task])

    def calls(self, task: str) -> list[CallRecord]:
        """The calls of a task, bad ones left out, with their values, for a program that writes kernels from examples.

        Raises:
            UnknownName: the session has no such task.
        """
        self._asked(task)
        return [self._call(case) for case in self._cases[task] if not case.expects_error]

    def tolerance(self, task: str) -> tuple[float, float] | None:
        """The widest (rtol, atol) that the suite declares for a case of a task; None if it declares none.

        Raises:
            UnknownName: the session has no such task.
        """
        self._asked(task)
        return max((case.tolerance for case in self._cases[task] if case.tolerance is not None), default=None)

    def _call(self, case: CaseRef) -> CallRecord:
        return _CALL.decode(self._lane.read(case))

    def judge(self, task: str, source: Path) -> Judged:
        """Judge the kernel in one file; waits until one of the session's processes is free.

        Args:
            task: a name of :attr:`tasks`.
            source: defines ``<op>__<overload>_kernel_impl``, or ``ModelNew``.

        Raises:
            UnknownName: the session has no such task.
            BadInput: the file cannot be read, or defines nothing for the task.
        """
        return self.judge_kernel(task, self.kernel_in(source, task))

    def kernel_in(self, source: Path, task: str) -> Kernel:
        """The kernel for a task that a file defines; raises as :meth:`judge`."""
        asked = self._asked(task)
        kernel = KernelFile(source).kernel_for(Task(name=task, op=asked.op, suite=self.options.suite))
        if kernel is None:
            raise BadInput(f"{source} defines no kernel for {task}; see `opsmith scaffold --ops {task}`")
        return kernel

    def judge_kernel(
        self,
        task: str,
        kernel: Kernel,
        *,
        most_s: float = math.inf,
        until: Callable[[Verdict], bool] = lambda _: False,
        told: Callable[[Found], None] | None = None,
        case: str | None = None,
        timed: bool = True,
        watch: Watch | None = None,
    ) -> Judged:
        """As :meth:`judge`, for a kernel that a backend offers.

        Args:
            task: a name of :attr:`tasks`.
            kernel: for it.
            most_s: seconds that judging and timing may take once a process is free. Then the kernel is stopped, and so
                are the reference and the clock. A kernel whose judging is not over by then has timed out; one whose
                timing is not has no times.
            until: no further case is begun after the first verdict of which it is true.
            told: is given every verdict as it is found, then what the clock says of each case that was timed.
            watch: tells others how long it has taken so far.
            case: judge this case and its variants alone, by the address that a verdict names; all if None.
            timed: time a correct kernel, where the session's options do.

        Raises:
            UnknownName: the session has no such task, or the task no such case.
        """
        cases = self._chosen(task, case)
        job = self._job(task, kernel, cases)
        watch = watch or Watch()
        # What is left of its time is for ending it.
        most_s -= min(ENDING_S, most_s / 10)
        judging = self._lane.judge_alone(job, most_s=most_s, begun=watch.start)
        verdicts = []
        for found in judging:
            is_late = watch.seconds > most_s
            # It was cut off, or what comes after it would be.
            verdict = _timed_out(job) if is_late and not _is_held_against(found) else found
            verdicts.append(verdict)
            if told is not None:
                told(verdict)
            if until(verdict) or is_late:
                judging.close()
        watch.stop()
        planned = self._planned(task, kernel, cases)
        summary = summarise_op(planned, verdicts)
        if timed and summary.accepted and self.options.timing != "off" and watch.seconds < most_s:
            clocked = self._timed(job, watch, most_s)
            if told is not None:
                for each in clocked.values():
                    told(each)
            verdicts = [
                clocked[verdict.case].told_by(verdict) if verdict.case in clocked else verdict for verdict in verdicts
            ]
            summary = summarise_op(planned, verdicts)
        return Judged(
            task=task,
            kernel_hash=kernel.content_hash,
            dsl=kernel.dsl,
            summary=summary,
            verdicts=tuple(
                verdict for verdict in verdicts if verdict.is_failure or verdict.timings or verdict.undecided
            ),
            device_s=watch.seconds,
        )

    def look(self, task: str, kernel: Kernel, judged: Judged, *, most_s: float, watch: Watch | None = None) -> Evidence:
        """Look at a kernel that was judged: where a call of it is wrong, or what its largest one spends its time on.

        Nothing is decided by it, and what is said of a kernel's time is said by its own process.

        Args:
            task: a name of :attr:`tasks`.
            kernel: for it.
            judged: what was found about it.
            most_s: seconds that this may take once a process is free.
            watch: tells others how long it has taken so far.

        Raises:
            UnknownName: the session has no such task.
        """
        cases = self._chosen(task, None)
        watch = watch or Watch()
        if judged.accepted:
            chosen = max((case for case in cases if not case.expects_error), key=lambda case: case.size_bytes)
            address, inputs = str(chosen.address), describe(self._call(chosen))
        else:
            wrong = telling_to_map(judged.verdicts)
            if wrong is None:
                return Evidence()
            address, inputs = wrong.case, wrong.inputs
        job = self._job(task, kernel, cases)
        try:
            found = self._lane.look_alone(job, address, is_wrong=not judged.accepted, most_s=most_s, begun=watch.start)
        finally:
            watch.stop()
        return found.with_inputs(inputs)

    def _timed(self, job: Job, watch: Watch, most_s: float) -> dict[str, TimedCase]:
        part = timed_part(job, self.options, interpreted=self._interpreted)
        if part is None:
            return {}
        found = self._lane.time_alone(part, most_s=most_s - watch.seconds, begun=watch.start)
        watch.stop()
        timed = {each.case: each for each in found}
        if watch.seconds < most_s:
            return timed
        # Times of some of the cases would favour a kernel that is slow on the others.
        return {
            case: timed[case] if case in timed and timed[case].offence else self._untimed(part, case)
            for case in (str(each.address) for each in part.cases)
        }

    def _untimed(self, job: Job, case: str) -> TimedCase:
        quantities = quantities_on(self.options.device)
        undecided = tuple([Undecided(quantity=each, cause=Cause.CUT_OFF, reason=TIME_IS_OVER) for each in quantities])
        kernel = job.kernel.content_hash
        return TimedCase(op=job.schema.name, case=case, kernel=kernel, timings=(), undecided=undecided)

    def _asked(self, task: str) -> AskedTask:
        if task in self.void:
            raise VoidTask(task, self.void[task])
        if task not in self._tasks:
            raise UnknownName("task", task, self._tasks)
        return self._tasks[task]

    def _chosen(self, task: str, case: str | None) -> tuple[CaseRef, ...]:
        self._asked(task)
        cases = self._cases[task]
        if case is None:
            return cases
        chosen = tuple(each for each in cases if str(each.address) == case)
        if not chosen:
            example = f"one of its {len(cases)} cases is {cases[0].address}"
            raise UnknownName("case", case, hint=f"{example}; copy the address from a verdict")
        return chosen

    def _job(self, task: str, kernel: Kernel, cases: tuple[CaseRef, ...]) -> Job:
        asked = self._asked(task)
        with self._snapshots:
            take_snapshot(kernel, self._folder)
        return Job(
            schema=asked.op,
            kernel=kernel,
            root=snapshot_root(kernel, self._folder.resolve()),
            cases=cases,
            counts=self._counts,
            all_cases=cases,
            policy=self.options.policy if self.options.checks_integrity(trusted=False) else None,
            integrity=self.options.checks_integrity(trusted=False),
        )

    def planned(self, task: str, kernel: Kernel | None) -> PlannedOp:
        """What a task asks, and who answers it.

        Raises:
            UnknownName: the session has no such task.
        """
        return self._planned(task, kernel, self._chosen(task, None))

    def _planned(self, task: str, kernel: Kernel | None, cases: Sequence[CaseRef]) -> PlannedOp:
        asked = self._asked(task)
        bad = sum(case.expects_error for case in cases)
        return PlannedOp(
            op=task,
            kind=asked.op.kind,
            schema=asked.op.schema,
            cases=len(cases) - bad,
            error_cases=bad,
            kernel=kernel,
            kernel_hash=None if kernel is None else kernel.content_hash,
        )

    def _enumerate(self) -> None:
        fleet = Fleet([self._lane], self.options)
        listed = fleet.list_ops()
        schemas = {schema.name: schema for schema in listed.schemas}
        ops = select_ops(self.options.ops, schemas)
        found = enumerate_cases(
            fleet,
            listed,
            ops,
            torch_version=self.environment.torch,
            begin=lambda total: self._progress.stage("enumerating", total),
            advance=self._progress.advance,
        )
        if not found.cases:
            if any(map(is_oom, found.skipped.values())):
                raise NoDeviceMemory(self.options.device, "the inputs of cases")
            raise BadInput(f"suite {self.options.suite} has no case of these ops in {','.join(self.options.dtypes)}")
        schemas |= found.modules
        self._cases = found.cases
        self._counts = found.counts
        self.void: Mapping[str, str] = found.void
        asked = {task: cases for task, cases in sorted(found.cases.items()) if task not in found.void}
        if not asked:
            raise VoidTask(*next(iter(found.void.items())))
        self._tasks = {task: self._described(schemas[task], cases) for task, cases in asked.items()}

    def _described(self, schema: OpSchema, cases: Iterable[CaseRef]) -> AskedTask:
        asked = sorted((case for case in cases if not case.expects_error), key=lambda case: case.size_bytes)
        step = max(1, -(-len(asked) // (MOST_EXAMPLES - 1)))
        chosen = {case.address: case for case in (*asked[::step], *asked[-1:])}
        texts = [describe(self._call(case)) for case in chosen.values()]
        return AskedTask(
            name=schema.name,
            op=schema,
            cases=len(asked),
            examples=tuple(dict.fromkeys(texts)),
            dtypes=tuple(sorted({case.address.dtype for case in asked})),
            ranks=tuple(sorted({case.ranks for case in asked if case.ranks is not None})),
        )


def telling_to_map(verdicts: Iterable[Verdict]) -> Verdict | None:
    """The largest wrong call, in which tiles and tails show, one of the suite before a variant; None without any."""
    wrong = [
        verdict
        for verdict in verdicts
        if verdict.status is Status.WRONG_VALUE
        and verdict.part is not Part.CONDUCT
        and not verdict.detail.startswith(CALLED_AGAIN)
    ]
    fitting = [verdict for verdict in wrong if size_in(verdict.inputs)[0] <= MOST_MAPPED_ELEMENTS]
    return max(fitting, key=lambda each: (each.part is Part.CASE, size_in(each.inputs)), default=None)


def _is_held_against(verdict: Verdict) -> bool:
    return verdict.counts_against and verdict.status is not Status.REFERENCE_FAILED


def _timed_out(job: Job) -> Verdict:
    return msgspec.structs.replace(conduct_verdict(job, (), ()), status=Status.TIMEOUT, detail=TIME_IS_OVER)
