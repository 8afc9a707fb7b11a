"""Jobs: what of a plan is still to be judged or timed."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from pathlib import Path

import msgspec

from opsmith.core.case import CaseRef
from opsmith.core.kernel import Loader
from opsmith.core.op import OpSchema, TaskKind
from opsmith.core.problems import PLAIN_INPUTS, TIMED_SOURCES, split_sample
from opsmith.core.run import Options, RunDirectory, RunPlan
from opsmith.core.verdict import Part, Verdict
from opsmith.errors import BadInput
from opsmith.runner.plan.planning import Enumeration
from opsmith.runner.plan.snapshot import snapshot_root, take_snapshot
from opsmith.runner.protocol.job import Job
from opsmith.suites.traits import Reads, traits_of


def jobs_to_judge(
    plan: RunPlan,
    enumeration: Enumeration,
    schemas: Iterable[OpSchema],
    run: RunDirectory,
    earlier: Sequence[Verdict],
    *,
    trusted: bool,
) -> list[Job]:
    """One job per answered op, without the cases that have their verdict already.

    Takes the snapshot of every kernel on the way.

    Args:
        trusted: the backend is the reference itself.
    """
    options = run.manifest().options
    integrity = options.checks_integrity(trusted=trusted)
    schema_of = {schema.name: schema for schema in schemas}
    of_op: dict[str, list[Verdict]] = {}
    for verdict in earlier:
        of_op.setdefault(verdict.op, []).append(verdict)
    jobs = []
    for planned in plan.ops:
        if planned.kernel is None or planned.not_asked is not None:
            continue
        take_snapshot(planned.kernel, run.kernels_path)
        verdicts = of_op.get(planned.op, [])
        judged = {verdict.case for verdict in verdicts}
        problem = split_sample(planned.op)[0] if planned.kind.of_problems else planned.op
        all_cases = enumeration.cases[problem]
        cases = tuple(case for case in all_cases if str(case.address) not in judged)
        # What is known of its conduct is said last: without that, an op is not finished.
        watched = integrity and not trusted and planned.kernel.loader is not Loader.INDUCTOR
        watched = watched and planned.void is None
        if cases or (watched and not any(verdict.part is Part.CONDUCT for verdict in verdicts)):
            jobs.append(
                Job(
                    schema=msgspec.structs.replace(schema_of[problem], name=planned.op),
                    kernel=planned.kernel,
                    root=snapshot_root(planned.kernel, run.kernels_path.resolve()),
                    cases=cases,
                    counts=enumeration.counts,
                    earlier=tuple(verdicts),
                    all_cases=all_cases,
                    policy=options.policy if watched else None,
                    integrity=integrity,
                    void=planned.void,
                )
            )
    return jobs


def jobs_to_time(
    plan: RunPlan,
    enumeration: Enumeration,
    schemas: Iterable[OpSchema],
    run: RunDirectory,
    *,
    interpreted: bool,
    trusted: bool,
) -> list[Job]:
    """The cases that are timed, of the ops that are right everywhere.

    All of them where inputs are of real sizes; of suites that ask many tiny ones the largest of each
    op and dtype. Wrong kernels are never timed, nor are Triton kernels that the interpreter runs.
    """
    options = run.manifest().options
    if options.timing == "off":
        return []
    wrong = {verdict.op for verdict in run.verdicts() if verdict.counts_against}
    timed = {(timed.op, timed.case) for timed in run.timed_cases()}
    jobs = []
    for job in jobs_to_judge(plan, enumeration, schemas, run, [], trusted=trusted):
        if job.schema.name not in wrong:
            already = {case for op, case in timed if op == job.schema.name}
            part = timed_part(job, options, interpreted=interpreted, already=already)
            jobs += [part] if part else []
    return jobs


def timed_part(job: Job, options: Options, *, interpreted: bool, already: Container[str] = frozenset()) -> Job | None:
    """What of a correct kernel's job is timed, without the cases that are ``already``; None if nothing is.

    Of what ranks do together the plain case of problems, for each number of ranks, on a CPU: on devices they would have
    to start together.
    """
    triton_is_interpreted = interpreted and job.kernel.dsl == "triton"
    if triton_is_interpreted or job.void is not None:
        return None
    if job.schema.kind.on_ranks:
        clocked = job.schema.kind is TaskKind.PARALLEL and options.device.startswith("cpu")
        job = msgspec.structs.replace(
            job, cases=tuple(case for case in job.cases if clocked and case.address.source == PLAIN_INPUTS)
        )
    named = [case for case in job.cases if case.address.source in TIMED_SOURCES]
    asked = job.cases if traits_of(options.suite).reads is Reads.DATASET else named or _largest_of_each_kind(job.cases)
    cases = tuple(case for case in asked if not case.expects_error and str(case.address) not in already)
    return msgspec.structs.replace(job, cases=cases) if cases else None


def _largest_of_each_kind(cases: Sequence[CaseRef]) -> Iterable[CaseRef]:
    """Of each dtype, and of each number of ranks, one case."""
    largest: dict[tuple[str, int | None], CaseRef] = {}
    for case in cases:
        if not case.expects_error:
            kind = case.address.dtype, case.ranks
            largest[kind] = max(largest.get(kind, case), case, key=lambda c: c.size_bytes)
    return largest.values()


def check_same_kernels(plan: RunPlan, earlier: Sequence[Verdict], out: Path) -> None:
    """A resumed run goes on with the kernels that it began with.

    Raises:
        BadInput: a kernel that has verdicts is another one now.
    """
    current = {planned.op: planned.kernel_hash for planned in plan.ops}
    for verdict in earlier:
        if current.get(verdict.op) != verdict.kernel:
            raise BadInput(f"the kernel of {verdict.op} changed since {out} was started; start a new run")
