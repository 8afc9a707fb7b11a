"""The whole flow on one screen: plan the jobs, judge each, append each verdict, score."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from opsmith import plugins
from opsmith.backends import Backend
from opsmith.backends.attribute import NeedsDiscovery
from opsmith.backends.resolve import resolve
from opsmith.core.run import Options, Plan, RunDirectory, RunManifest, Summary, new_seed
from opsmith.core.task import Task
from opsmith.core.verdict import Verdict
from opsmith.errors import BadInput, UnknownName
from opsmith.report.publish import publish
from opsmith.runner.environment import describe_environment
from opsmith.runner.executors.local import LocalExecutor
from opsmith.runner.links import Limits
from opsmith.runner.planning import Enumeration, discover_backend, enumerate_cases, make_plan, select_ops
from opsmith.runner.processes import SANDBOX_LAYERS, Processes
from opsmith.runner.protocol import OpsListed
from opsmith.runner.slot import Job
from opsmith.runner.snapshot import snapshot_root, take_snapshot
from opsmith.runner.suite_index import cache_folder

MEMORY_LIMIT_BYTES = 4 << 30
OUTPUT_LIMIT_BYTES = 8 << 20


class Progress(Protocol):
    """Is told how far the work is; the command line draws it."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins (0: not known yet)."""
        ...

    def advance(self, done: int, note: str = "") -> None:
        """``done`` steps of the current stage are finished."""
        ...


class Silent:
    """Progress that nobody watches."""

    def stage(self, name: str, total: int) -> None: ...

    def advance(self, done: int, note: str = "") -> None: ...


def evaluate(
    options: Options,
    out: Path,
    *,
    seed: int | None = None,
    jobs: int = 1,
    resume: bool = False,
    command: Sequence[str] = (),
    limits: Limits | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Judge a backend on a suite and write the run directory.

    Args:
        options: what is asked.
        out: the run directory; it must be new or empty unless ``resume``.
        seed: of all values; a fresh secret one if None.
        jobs: ops judged at a time.
        resume: continue a run that was interrupted; finished verdicts are kept.
        command: the command line, for the record.
        limits: time limits; sensible ones if None.
        progress: told how far the work is.

    Raises:
        UsageError: the request cannot be carried out as written.
        RefereeFailed: the trusted processes do not start.
    """
    progress = progress or Silent()
    started = time.monotonic()
    if options.suite not in plugins.names(plugins.SUITES):
        raise UnknownName("suite", options.suite, plugins.names(plugins.SUITES))
    asked = resolve(options.backend)
    run, earlier = _open_run(out, options, resume=resume)
    seed = run.stored_seed() or new_seed(seed)
    progress.stage("starting", 0)
    with start_processes(options.device) as processes:
        processes.wait_ready()
        with _executor(processes, jobs, options, seed=seed, limits=limits or Limits()) as executor:
            listed = _list_ops(executor)
            manifest = RunManifest(
                command=tuple(command),
                options=options,
                environment=describe_environment(
                    processes.facts, device=options.device, device_name=listed.device_name
                ),
                sandbox=SANDBOX_LAYERS,
                started_utc=_now(),
                resumed=_times_resumed(run, resume=resume),
                notes=_notes(processes.facts),
            )
            plan, enumeration = _plan(executor, processes, listed, asked, progress)
            _check_same_kernels(plan, earlier, out)
            # Only now is there something to keep: a request that fails before leaves no directory.
            run.create(seed)
            run.write("run.json", manifest)
            run.write("plan.json", plan)
            todo = _jobs(plan, enumeration, listed, run, earlier)
            progress.stage("judging", sum(len(job.cases) for job in todo))
            with run.appender() as append:
                for done, verdict in enumerate(executor.judge(todo), start=1):
                    append(verdict)
                    progress.advance(done, verdict.op)

    progress.stage("writing the report", 0)
    run.write(
        "run.json",
        msgspec.structs.replace(
            manifest, finished_utc=_now(), seed=seed, wall_s=round(time.monotonic() - started, 2)
        ),
    )
    run.forget_seed()
    return publish(run)


def survey(options: Options, *, progress: Progress | None = None) -> Plan:
    """What a run with these options would ask, and who would answer; nothing is judged.

    Raises:
        UsageError: the request cannot be carried out as written.
    """
    progress = progress or Silent()
    asked = resolve(options.backend)
    progress.stage("starting", 0)
    with start_processes(options.device) as processes:
        processes.wait_ready()
        with _executor(processes, len(os.sched_getaffinity(0)), options, seed=0, limits=Limits()) as executor:
            return _plan(executor, processes, _list_ops(executor), asked, progress)[0]


def start_processes(device: str) -> Processes:
    """The zygote and its children, with this project's limits; a context manager."""
    return Processes(device, memory_limit_bytes=MEMORY_LIMIT_BYTES, output_limit_bytes=OUTPUT_LIMIT_BYTES)


def _executor(processes: Processes, slots: int, options: Options, *, seed: int, limits: Limits) -> LocalExecutor:
    return LocalExecutor(processes, slots, builds=cache_folder() / "builds", options=options, seed=seed, limits=limits)


def _plan(
    executor: LocalExecutor,
    processes: Processes,
    listed: OpsListed,
    asked: Backend | NeedsDiscovery,
    progress: Progress,
) -> tuple[Plan, Enumeration]:
    """Enumerate what is asked and find out who answers."""
    options = executor.options
    schemas = {schema.name: schema for schema in listed.schemas}
    ops = select_ops(options.ops, schemas)
    progress.stage("enumerating", len(listed.entries))
    enumeration = enumerate_cases(
        executor, listed, ops, torch_version=processes.facts["torch"], advance=progress.advance
    )
    if not enumeration.cases:
        raise BadInput(_nothing_asked(options))
    tasks = [Task(name=op, op=schemas[op], suite=options.suite) for op in enumeration.cases]
    return make_plan(enumeration, schemas, discover_backend(executor, asked, tasks), options), enumeration


def _list_ops(executor: LocalExecutor) -> OpsListed:
    """Ask a referee for the schemas and the suite's entries.

    Raises:
        BadInput: the device cannot be used.
    """
    options = executor.options
    listed = executor.list_ops(options.suite, options.dtypes)
    if listed.device_problem is not None:
        raise BadInput(f"device {options.device} cannot be used: {listed.device_problem}")
    return listed


def _open_run(out: Path, options: Options, *, resume: bool) -> tuple[RunDirectory, list[Verdict]]:
    if not resume:
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise BadInput(f"{out} exists and is not empty; choose another -o, or continue that run with --resume")
        return RunDirectory(out), []
    run = RunDirectory.open(out)
    before = run.manifest()
    if before.finished_utc is not None:
        raise BadInput(f"{out} is a finished run; look at it with `opsmith report {out}`")
    if before.options != options:
        raise BadInput(f"{out} was started with other options; resume it with the command in {out}/run.json")
    verdicts, _ = run.recover()
    return run, verdicts


def _times_resumed(run: RunDirectory, *, resume: bool) -> int:
    return run.manifest().resumed + 1 if resume else 0


def _jobs(
    plan: Plan, enumeration: Enumeration, listed: OpsListed, run: RunDirectory, earlier: Sequence[Verdict]
) -> list[Job]:
    """One job per answered op, without the cases that have their verdict already."""
    schemas = {schema.name: schema for schema in listed.schemas}
    of_op: dict[str, list[Verdict]] = {}
    for verdict in earlier:
        of_op.setdefault(verdict.op, []).append(verdict)
    jobs = []
    for planned in plan.ops:
        if planned.kernel is None:
            continue
        take_snapshot(planned.kernel, run.kernels_path)
        judged = {verdict.case for verdict in of_op.get(planned.op, ())}
        cases = tuple(case for case in enumeration.cases[planned.op] if str(case.address) not in judged)
        if cases:
            jobs.append(
                Job(
                    schema=schemas[planned.op],
                    kernel=planned.kernel,
                    root=snapshot_root(planned.kernel, run.kernels_path.resolve()),
                    cases=cases,
                    counts=enumeration.counts,
                    earlier=tuple(of_op.get(planned.op, ())),
                )
            )
    return jobs


def _check_same_kernels(plan: Plan, earlier: Sequence[Verdict], out: Path) -> None:
    current = {planned.op: planned.kernel_hash for planned in plan.ops}
    for verdict in earlier:
        if current.get(verdict.op) != verdict.kernel:
            raise BadInput(f"the kernel of {verdict.op} changed since {out} was started; start a new run")


def _notes(facts: dict[str, object]) -> tuple[str, ...]:
    notes = []
    if facts["interpreted"] and facts["triton"] is not None:
        notes.append("Triton kernels ran under Triton's interpreter on the CPU: correctness only, never timed.")
    return tuple(notes)


def _nothing_asked(options: Options) -> str:
    what = f"suite {options.suite} has no case for dtype {','.join(options.dtypes)} on {options.device}"
    if options.case is not None:
        return f"{what} at address {options.case!r} under this seed; copy the address from verdicts.jsonl"
    return f"{what} among the ops {','.join(options.ops)}; see `opsmith ops --suite {options.suite}`" if options.ops else what


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
