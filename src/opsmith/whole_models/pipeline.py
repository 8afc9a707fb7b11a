"""The flow of a run of whole models: plan the cases, judge each under each column, append, score.

A column (:mod:`opsmith.core.columns`) is a way to run a model. That of ``--backend`` is judged: verdicts, scores and
exit status are about it. The others stand beside it in ``columns.jsonl`` and in the tables.
"""

from __future__ import annotations

import itertools
import platform
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from opsmith.core.columns import EAGER, Column, parse_column
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind
from opsmith.core.run import (
    ColumnResult,
    Options,
    PlannedOp,
    RunManifest,
    RunPlan,
    Summary,
    UsedDevice,
)
from opsmith.core.seeds import derive_seed
from opsmith.errors import BadInput, UnknownName
from opsmith.pipeline import Progress, Silent, now, open_run, run_seed
from opsmith.report.publish import publish
from opsmith.runner.machine.environment import describe_environment
from opsmith.whole_models.judging import ModelJudge, ModelLimits, address_of, column_hash
from opsmith.whole_models.messages import ModelCase

#: What a model is asked.
MODES = ("infer", "train")
#: f32 leaves a model as it is; the others convert its floats.
DTYPES = ("f32", "f16", "bf16")
NOTE = "Models, compilers and enabled kernels ran in processes of their own, without a sandbox."


def evaluate_models(
    options: Options,
    out: Path,
    *,
    seed: int | None = None,
    resume: bool = False,
    command: Sequence[str] = (),
    limits: ModelLimits | None = None,
    progress: Progress | None = None,
) -> Summary:
    """Judge a column on whole models, beside others, and write the run directory.

    Args:
        options: what is asked; ``backend`` and ``selection.columns`` name columns.
        out: the run directory; it must be new or empty unless ``resume``.
        seed: of all weights and inputs; a fresh secret one if None.
        resume: continue a run that was interrupted; what was found stays.
        command: the command line, for the record.
        limits: time limits; sensible ones if None.
        progress: told how far the work is.

    Raises:
        UsageError: the request cannot be carried out as written.
    """
    progress = progress or Silent()
    started = time.monotonic()
    run, before, earlier = open_run(out, options, resume=resume)
    seed = run_seed(run, before, seed)
    progress.stage("starting", 0)
    judge = ModelJudge(options, limits=limits or ModelLimits(), waiting=progress.waiting)
    columns = _columns(options, judge)
    cases = list(_cases(options, judge, seed))
    judged = next(column for column in columns if column.name == options.backend)
    plan = _plan(judge, cases, judged)
    manifest = _manifest(options, judge, command, before)
    run.create(seed, anew=before is None)
    run.write("run.json", manifest)
    run.write("plan.json", plan)

    found = list(run.column_results()) if resume else []
    judged_before, timed_before = {verdict.case for verdict in earlier}, {timed.case for timed in run.timed_cases()}
    progress.stage("judging", len(cases) * len(columns))
    with (
        run.claimed(),
        run.appender("columns.jsonl") as append,
        run.appender("verdicts.jsonl") as append_verdict,
        run.appender("timings.jsonl") as append_timing,
        tempfile.TemporaryDirectory(prefix="opsmith-caches-") as caches,
    ):
        # A run that was killed between two files has a result without its verdict.
        for result in itertools.chain(found, _results(judge, cases, columns, found, Path(caches), append, progress)):
            case, timed = result.verdict.case, result.timed
            if result.column == judged.name and case not in judged_before:
                append_verdict(result.verdict)
            if result.column == judged.name and timed is not None and case not in timed_before:
                append_timing(timed)

    progress.stage("writing the report", 0)
    wall_s = round(time.monotonic() - started, 2)
    run.write("run.json", msgspec.structs.replace(manifest, finished_utc=now(), seed=seed, wall_s=wall_s))
    run.forget_seed()
    return publish(run)


def survey_models(options: Options, *, progress: Progress | None = None) -> RunPlan:
    """What a run with these options would ask; nothing is judged.

    Raises:
        UsageError: the request cannot be carried out as written.
    """
    progress = progress or Silent()
    progress.stage("starting", 0)
    judge = ModelJudge(options, limits=ModelLimits())
    judged = next(column for column in _columns(options, judge) if column.name == options.backend)
    return _plan(judge, list(_cases(options, judge, 0)), judged)


def _results(
    judge: ModelJudge,
    cases: Iterable[ModelCase],
    columns: Sequence[Column],
    found: Iterable[ColumnResult],
    caches: Path,
    append: Callable[[msgspec.Struct], None],
    progress: Progress,
) -> Iterator[ColumnResult]:
    """What is found of every case under every column that it was not found of before."""
    before = {(result.verdict.case, result.column): result for result in found}
    count = len(before)
    for case in cases:
        address = str(address_of(case))
        todo = [column for column in columns if (address, column.name) not in before]
        for result in judge.judge(case, todo, caches, eager=before.get((address, EAGER))) if todo else ():
            append(result)
            count += 1
            progress.advance(count, f"{case.task} {result.column}")
            yield result


def _columns(options: Options, judge: ModelJudge) -> list[Column]:
    """Eager, which shows the noise where anything is timed, then the backend's column, then the others."""
    first = (EAGER,) if options.timing != "off" else ()
    names = dict.fromkeys((*first, options.backend, *options.selection.columns))
    return [parse_column(name, backends=judge.opened.backends, modes=judge.opened.modes) for name in names]


def _cases(options: Options, judge: ModelJudge, seed: int) -> Iterator[ModelCase]:
    """The cases asked, of models whose packages are installed.

    Raises:
        UnknownName: a pattern names no model, or no task.
        BadInput: no model is left, or a dtype is not of floats.
    """
    selection = options.selection
    if unfit := [dtype for dtype in options.dtypes if dtype not in DTYPES]:
        raise BadInput(f"suite {options.suite} has no case for dtype {unfit[0]}; write --dtype {','.join(DTYPES)}")
    _check_patterns("model", selection.models, judge.opened.models)
    modes = MODES if selection.mode == "both" else (selection.mode,)
    tasks = [f"{model}/{mode}" for model in judge.opened.models for mode in modes]
    _check_patterns("task", options.ops, tasks)
    count = 0
    for model, missing in judge.opened.models.items():
        for mode in modes if missing is None and _matches(model, selection.models) else ():
            for dtype in options.dtypes if _matches(f"{model}/{mode}", options.ops) else ():
                case = ModelCase(
                    suite=options.suite,
                    model=model,
                    mode=mode,
                    dtype=dtype,
                    autocast=selection.autocast,
                    small=selection.sizes == "small",
                    device=options.device,
                    seed=derive_seed(seed, options.suite, model, mode, dtype),
                )
                if options.case in (None, str(address_of(case))):
                    count += 1
                    yield case
    if not count:
        chosen = (missing for model, missing in judge.opened.models.items() if _matches(model, selection.models))
        reason = next((missing for missing in chosen if missing is not None), None)
        raise BadInput(reason or f"suite {options.suite} has no such case; see `opsmith ops --suite {options.suite}`")


def _check_patterns(kind: str, patterns: Sequence[str], names: Iterable[str]) -> None:
    known = list(names)
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in known):
            raise UnknownName(kind, pattern, known)


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)


def _plan(judge: ModelJudge, cases: Sequence[ModelCase], judged: Column) -> RunPlan:
    ops = [
        PlannedOp(
            op=task,
            schema=task.rpartition("/")[0],
            cases=sum(case.task == task for case in cases),
            error_cases=0,
            kernel=Kernel(task=task, backend=judged.name, loader=Loader.COLUMN, entry=judged.name, dsl=judged.how),
            kernel_hash=column_hash(task, judged),
            kind=TaskKind.MODEL,
        )
        for task in dict.fromkeys(case.task for case in cases)
    ]
    skipped = {model: missing for model, missing in judge.opened.models.items() if missing is not None}
    return RunPlan(ops=tuple(ops), skipped=skipped)


def _manifest(options: Options, judge: ModelJudge, command: Sequence[str], before: RunManifest | None) -> RunManifest:
    device = judge.opened.device
    used = UsedDevice(name=device.name, identity=device.identity, host=platform.node(), jobs=1)
    if before is not None:
        resumed = before.resumed + 1
        return msgspec.structs.replace(
            before, resumed=resumed, finished_utc=None, seed=None, devices=(*before.devices, used)
        )
    return RunManifest(
        command=tuple(command),
        options=options,
        environment=describe_environment(judge.opened.versions, device=options.device, device_name=device.name),
        sandbox=(),
        started_utc=now(),
        notes=(NOTE,),
        devices=(used,),
    )
