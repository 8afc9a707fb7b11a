"""The whole flow on one screen: plan the jobs, judge each, append each verdict, score."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence, Sized
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from opsmith import plugins
from opsmith.backends import Backend
from opsmith.backends.attribute import NeedsDiscovery
from opsmith.backends.inductor import Inductor
from opsmith.backends.resolve import resolve
from opsmith.core.op import TaskKind
from opsmith.core.run import PAGE, Options, RunDirectory, RunManifest, RunPlan, Summary, TimedCase, new_seed
from opsmith.core.task import Task
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, DamagedRun, NoDeviceMemory, UnknownName
from opsmith.report.publish import publish
from opsmith.runner.fleet.durations import Durations
from opsmith.runner.fleet.fleet import Fleet
from opsmith.runner.machine.cores import most_asked
from opsmith.runner.plan.jobs import check_same_kernels, jobs_to_judge, jobs_to_time
from opsmith.runner.plan.planning import Enumeration, discover_backend, enumerate_cases, make_plan, select_ops
from opsmith.runner.protocol.lane import Executor, LaneWork, Waiting
from opsmith.runner.protocol.limits import Limits
from opsmith.runner.protocol.out_of_memory import is_oom
from opsmith.runner.protocol.referee_messages import OpsListed
from opsmith.suites.traits import Reads, traits_of

#: Who brings the devices together, unless something else is asked for: the one of this machine.
LOCAL = "local"

#: What a run that was killed while it was made leaves: nothing that anybody would miss.
BEFORE_RUN_JSON = {".seed", "kernels"}

RANKS_NOTE = (
    "What ranks answer together is timed on a CPU and in the suite parallel only; "
    "benchmarks/distributed/kernels.py and bandwidth.py time ranks on GPUs."
)
STOPPED_NOTE = "Stopped at the first failure: cases without a verdict count as not passed, and nothing was timed."
INTERPRETER_NOTE = "Triton kernels ran under Triton's interpreter on the CPU: correctness only, never timed."


class Progress(Protocol):
    """Is told how far the work is; the command line draws it."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins (0: not known yet)."""
        ...

    def advance(self, done: int, note: str = "") -> None:
        """``done`` steps of the current stage are finished."""
        ...

    def waiting(self, seconds: float) -> None:
        """Another run times on the device, which this one has waited for so long; told from another thread."""
        ...


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None: ...

    def advance(self, done: int, note: str = "") -> None: ...

    def waiting(self, seconds: float) -> None: ...


class TimedStages:
    """Passes progress on, and adds up the seconds of each stage."""

    def __init__(self, told: Progress, started: float) -> None:
        self._told = told
        self._since = started
        self._stage = ""
        self._seconds: dict[str, float] = {}

    def stage(self, name: str, total: int) -> None:
        self._end_stage()
        self._stage = name
        self._told.stage(name, total)

    def advance(self, done: int, note: str = "") -> None:
        self._told.advance(done, note)

    def waiting(self, seconds: float) -> None:
        self._told.waiting(seconds)

    def seconds(self) -> dict[str, float]:
        """Stage -> seconds, the current one until now; what was before the first belongs to it."""
        self._end_stage()
        return {name: round(seconds, 2) for name, seconds in self._seconds.items()}

    def _end_stage(self) -> None:
        now = time.monotonic()
        if self._stage:
            self._seconds[self._stage] = self._seconds.get(self._stage, 0.0) + now - self._since
            self._since = now


def evaluate(
    options: Options,
    out: Path,
    *,
    seed: int | None = None,
    jobs: int | None = 1,
    executor: str = LOCAL,
    devices: str = "",
    resume: bool = False,
    command: Sequence[str] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
    stop_at_first: bool = False,
) -> Summary:
    """Judge a backend on a suite and write the run directory.

    Args:
        options: what is asked.
        out: the run directory; it must be new or empty unless ``resume``.
        seed: of all values; a fresh secret one if None.
        jobs: ops judged at a time on each device; None for what the device deserves.
        executor: brings the devices together: ``local``, ``ray``, ``ray:ADDRESS`` or a plug-in's. Neither it nor the
            number of devices changes a verdict.
        devices: which of them, or how many, in the executor's words; empty for the one that the options name.
        resume: continue a run that was interrupted; finished verdicts are kept.
        command: the command line, for the record.
        limits: time limits; sensible ones if None.
        progress: told how far the work is.
        stop_at_first: judge nothing more after the first failure, and time nothing then.

    Raises:
        UsageError: the request cannot be carried out as written.
        RefereeFailed: the trusted processes do not start.
    """
    started = time.monotonic()
    progress = TimedStages(progress or Silent(), started)
    check_options(options)
    asked = resolve(options.backend)
    run, before, earlier = open_run(out, options, resume=resume)
    seed = run_seed(run, before, seed)
    progress.stage("starting", 0)
    work = _work(options, asked, seed=seed, jobs=jobs, limits=limits or Limits(), out=out)
    with (
        contextlib.ExitStack() as claims,
        run.claimed() if before else contextlib.nullcontext(),
        _fleet(work, executor, devices, before=before, waiting=progress.waiting) as fleet,
    ):
        progress.stage("importing the suite", 0)
        listed = fleet.list_ops()
        plan, enumeration = _plan(fleet, listed, asked, progress)
        check_same_kernels(plan, earlier, out)
        manifest = _manifest(fleet, command, plan, before, executor)
        # Only now is there something to keep: a request that fails before leaves no directory.
        run.create(seed, anew=before is None)
        if before is None:
            claims.enter_context(run.claimed())
        run.write("run.json", manifest)
        run.write("plan.json", plan)

        schemas = (*listed.schemas, *enumeration.modules.values())
        todo = jobs_to_judge(plan, enumeration, schemas, run, earlier, trusted=_is_trusted(asked))
        cases = {(job.schema.name, str(case.address)) for job in todo for case in job.cases}
        progress.stage("judging", len(cases))
        done, stopped = 0, False
        with run.appender("verdicts.jsonl") as append, contextlib.closing(fleet.judge(todo)) as judging:
            for verdict in judging:
                append(verdict)
                done += (verdict.op, verdict.case) in cases  # There are verdicts on variants, too, and on kernels.
                progress.advance(done, verdict.op)
                if stop_at_first and verdict.is_failure:
                    stopped = True
                    break
        if stopped:
            manifest = msgspec.structs.replace(manifest, notes=(*manifest.notes, STOPPED_NOTE))

        to_time = (
            jobs_to_time(
                plan, enumeration, schemas, run, interpreted=fleet.facts.interpreted, trusted=_is_trusted(asked)
            )
            if not stopped
            else []
        )
        progress.stage("timing", sum(len(job.cases) for job in to_time))
        done = 0

        def timed_again_later(timed: TimedCase) -> None:
            run.note_earlier_timing(timed)
            progress.advance(done, timed.op)

        with run.appender("timings.jsonl") as append:
            for timed in fleet.time(to_time, earlier=run.earlier_timings(), note=timed_again_later):
                append(timed)
                done += 1
                progress.advance(done, timed.op)
        manifest = _with_devices(manifest, fleet, before)

    progress.stage("writing the report", 0)
    stages_s = progress.seconds()
    wall_s = round(time.monotonic() - started, 2)
    run.write(
        "run.json", msgspec.structs.replace(manifest, finished_utc=now(), seed=seed, wall_s=wall_s, stages_s=stages_s)
    )
    run.forget_seed()
    return publish(run)


def check_options(options: Options) -> None:
    """What can be said against a request before anything is started.

    Raises:
        UsageError: it cannot be carried out as written.
    """
    if options.suite not in plugins.names(plugins.SUITES):
        raise UnknownName("suite", options.suite, plugins.names(plugins.SUITES))
    if traits_of(options.suite).tasks is TaskKind.MODEL:
        raise BadInput(f"suite {options.suite} is not answered by kernels; only `opsmith run` and `opsmith ops` ask it")
    device_type = options.device.partition(":")[0]
    if traits_of(options.suite).tasks.on_ranks and device_type not in ("cpu", "cuda"):
        raise BadInput(f"suite {options.suite} is not available on {device_type}: ranks need CUDA devices or the CPU")
    if options.baseline == "cudagraphs" and not options.device.startswith("cuda"):
        raise BadInput(
            f"--baseline cudagraphs needs a CUDA device, not {options.device}; eager and compile run anywhere"
        )


def survey(options: Options, *, progress: Progress | None = None) -> RunPlan:
    """What a run with these options would ask, and who would answer; nothing is judged.

    Raises:
        UsageError: the request cannot be carried out as written.
    """
    progress = progress or Silent()
    asked = resolve(options.backend)
    progress.stage("starting", 0)
    with _fleet(_work(options, asked, seed=0, jobs=None, limits=Limits()), LOCAL, "") as fleet:
        return _plan(fleet, fleet.list_ops(), asked, progress)[0]


def _work(
    options: Options,
    asked: Backend | NeedsDiscovery,
    *,
    seed: int,
    jobs: int | None,
    limits: Limits,
    out: Path | None = None,
) -> LaneWork:
    return LaneWork(
        options=options,
        seed=seed,
        jobs=jobs,
        limits=limits,
        withheld=(str(out.resolve()),) if out else (),
        kernels=_most_kernels(asked, options),
        again=options.checks_integrity(trusted=_is_trusted(asked)),
        with_compiler=isinstance(asked, Inductor),
    )


@contextlib.contextmanager
def _fleet(
    work: LaneWork, executor: str, devices: str, *, before: RunManifest | None = None, waiting: Waiting | None = None
) -> Iterator[Fleet]:
    """The devices of a run, each with its processes.

    Args:
        work: what they are opened for.
        executor: ``NAME`` or ``NAME:ARGUMENT``.
        devices: which ones.
        before: the manifest of the run's earlier starts.
        waiting: told when another run has a device.
    """
    name, _, argument = executor.partition(":")
    make: Executor = plugins.load(plugins.EXECUTORS, name)(argument, devices)
    with make.lanes(work, waiting) as lanes:
        durations = Durations.of(lanes[0].facts.environment.device_name)
        yield Fleet(lanes, work.options, first=len(before.devices) if before else 0, durations=durations)


def _is_trusted(asked: Backend | NeedsDiscovery) -> bool:
    return not isinstance(asked, NeedsDiscovery) and asked.trusted


def _most_kernels(asked: Backend | NeedsDiscovery, options: Options) -> int | None:
    """At most how many kernels workers are kept ready for, as far as that is known before anything is listed."""
    if options.ops or most_asked(options) == 1 or traits_of(options.suite).reads is Reads.DATASET:
        return 0  # Of a device's memory nothing is to spare for more than one a slot: inputs are large.
    return len(asked) if isinstance(asked, Sized) else None


def _plan(
    fleet: Fleet, listed: OpsListed, asked: Backend | NeedsDiscovery, progress: Progress
) -> tuple[RunPlan, Enumeration]:
    """Enumerate what is asked and find out who answers."""
    options = fleet.options
    schemas = {schema.name: schema for schema in listed.schemas}
    ops = select_ops(options.ops, schemas)
    enumeration = enumerate_cases(
        fleet,
        listed,
        ops,
        torch_version=fleet.facts.environment.torch,
        begin=lambda total: progress.stage("enumerating", total),
        advance=progress.advance,
    )
    if not enumeration.cases:
        if any(map(is_oom, enumeration.skipped.values())):
            raise NoDeviceMemory(options.device, "the inputs of cases")
        raise BadInput(_nothing_asked(options, enumeration))
    progress.stage("planning", 0)
    tasks = [Task(name=op, op=schemas[op], suite=options.suite) for op in enumeration.cases]
    return make_plan(enumeration, schemas, discover_backend(fleet, asked, tasks), options), enumeration


def open_run(out: Path, options: Options, *, resume: bool) -> tuple[RunDirectory, RunManifest | None, list[Verdict]]:
    """The run directory; for a resume also its manifest and the verdicts found so far."""
    names = {entry.name for entry in out.iterdir()} if out.is_dir() else set[str]()
    has_begun = out.exists() and not (out.is_dir() and names <= BEFORE_RUN_JSON)
    if not resume or (names and not has_begun):  # A run that was killed before it wrote anything is begun again.
        if has_begun:
            raise BadInput(f"{out} exists and is not empty; choose another -o, or continue that run with --resume")
        if out.exists():
            RunDirectory(out).forget_seed()
        return RunDirectory(out), None, []
    run = RunDirectory.open(out)
    before = run.manifest()
    if before.finished_utc is not None and _is_intact(run):
        raise BadInput(f"{out} is a finished run; look at it with `opsmith report {out}`")
    if before.options != options:
        raise BadInput(f"{out} was started with other options; resume it with the command in {out}/run.json")
    with run.claimed():
        verdicts, _ = run.recover()
    return run, before, verdicts


def _is_intact(run: RunDirectory) -> bool:
    """Whether the plan and every verdict can be read, and the page was written.

    A damaged run can be taken up again though it has ended.
    """
    if not (run.path / PAGE).exists():
        return False
    try:
        run.plan()
        for _ in run.verdicts():
            pass
    except BadInput:
        return False
    return True


def run_seed(run: RunDirectory, before: RunManifest | None, given: int | None) -> int:
    """The seed of all values: a resumed run keeps its own.

    Raises:
        BadInput: the run's seed is lost, or another one is asked for.
    """
    if before is None:
        return new_seed(given)
    seed = run.stored_seed() if before.seed is None else before.seed
    if seed is None:
        raise DamagedRun(f"{run.path}/.seed is missing, and no other file holds the run's seed; start a new run")
    if given not in (None, seed):
        raise BadInput(f"{run.path} was started with another seed; leave --seed out to resume it")
    return seed


def _manifest(
    fleet: Fleet, command: Sequence[str], plan: RunPlan, before: RunManifest | None, executor: str
) -> RunManifest:
    if before is not None:
        return _with_devices(
            msgspec.structs.replace(before, resumed=before.resumed + 1, finished_utc=None, seed=None), fleet, before
        )
    facts = fleet.facts
    return RunManifest(
        command=tuple(command),
        options=fleet.options,
        environment=facts.environment,
        sandbox=facts.sandbox,
        sandbox_missing=facts.sandbox_missing,
        started_utc=now(),
        notes=tuple(_notes(plan, interpreted=facts.interpreted, on_cpu=fleet.options.device.startswith("cpu"))),
        executor=executor.partition(":")[0],
        devices=fleet.used_devices(),
    )


def _with_devices(manifest: RunManifest, fleet: Fleet, before: RunManifest | None) -> RunManifest:
    """The manifest with what is known of the devices by now."""
    devices = (*(before.devices if before else ()), *fleet.used_devices())
    clock = next((device.clock for device in reversed(devices) if device.clock is not None), manifest.clock)
    return msgspec.structs.replace(manifest, devices=devices, clock=clock)


def _notes(plan: RunPlan, *, interpreted: bool, on_cpu: bool) -> Iterator[str]:
    if interpreted and any(op.kernel and op.kernel.dsl == "triton" for op in plan.ops):
        yield INTERPRETER_NOTE
    if any(op.kind is TaskKind.COLLECTIVE or (op.kind.on_ranks and not on_cpu) for op in plan.ops):
        yield RANKS_NOTE
    if plan.unrecognised:
        yield f"These name no op of this torch and were not judged: {', '.join(plan.unrecognised)}."


def _nothing_asked(options: Options, enumeration: Enumeration) -> str:
    if options.selection.problems is not None and enumeration.skipped:
        return next(iter(enumeration.skipped.values()))  # The problem files are the user's own: they are at fault.
    what = f"suite {options.suite} has no case for dtype {','.join(options.dtypes)} on {options.device}"
    if options.case is not None:
        return f"{what} at address {options.case!r} under this seed; copy the address from verdicts.jsonl"
    if options.ops:
        return f"{what} among the ops {','.join(options.ops)}; see `opsmith ops --suite {options.suite}`"
    return what


def now() -> str:
    """The time, ISO 8601."""
    return datetime.now(UTC).isoformat(timespec="seconds")
