"""``opsmith check``: judge one kernel against one task."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Annotated

import msgspec
import typer

from opsmith.aten.native_functions import functional_names
from opsmith.aten.spellings import COMPOSED, composed
from opsmith.backends.entry_names import check_solution, entry_for, tasks_named_in
from opsmith.backends.file import KernelFile
from opsmith.cli import outcomes, selection
from opsmith.cli.outcomes import Ending, FailOn, Junit, LastFailed, StopAtFirst
from opsmith.cli.preflight import op_patterns
from opsmith.cli.run import (
    Baseline,
    Case,
    Integrity,
    Jobs,
    Json,
    Layout,
    Out,
    Policy,
    Seed,
    Timing,
    TimingPairs,
    Tolerance,
    Warm,
    judge,
)
from opsmith.cli.watch import watched
from opsmith.core.op import TaskKind
from opsmith.core.run import Options
from opsmith.errors import BadInput
from opsmith.formats.readers import solutions_from
from opsmith.suites.traits import Reads, traits_of

EPILOG = """
Examples:

  opsmith check relu__default_implementation_v1.py --task relu.default

  opsmith check mine.py --task add.Tensor --dtype bf16,f32 --device cuda

  opsmith check mine.py --task relu.default --entry my_relu

  opsmith check mine.py --task add.Tensor --case opinfo:add:f32:sample:3:0 --seed 7

  opsmith check mine.py --task relu.default --watch -x

  opsmith check my_solution.py --task problems/level1/23_Softmax.py

  opsmith check my_ranks.py --suite parallel --task 1_AllReduce --ranks 2,4
"""


def check(
    kernel: Annotated[
        Path,
        typer.Argument(
            help="A Python file that defines the kernel: relu__default_kernel_impl, relu, or ModelNew.",
            show_default=False,
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            help="The overload that it implements (relu.default), or the file of a module problem (reference.py).",
            show_default="what the file's function is named for",
        ),
    ] = "",
    entry: Annotated[
        str | None,
        typer.Option(help="The function of the file that is judged.", show_default="the one named for the task"),
    ] = None,
    suite: selection.Suite = "opinfo",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    dataset: selection.Dataset = None,
    top_inputs: selection.TopInputs = None,
    spread_inputs: selection.SpreadInputs = None,
    sample: selection.Sample = None,
    models: selection.Models = "",
    overhead_dominated: selection.OverheadDominated = "with",
    sizes: selection.Sizes = "full",
    trials: selection.Trials = selection.DEFAULT_TRIALS,
    ranks: selection.Ranks = "",
    policy: Policy = "native",
    integrity: Integrity = "auto",
    timing: Timing = "quick",
    timing_pairs: TimingPairs = None,
    baseline: Baseline = "eager",
    warm: Warm = False,
    tolerance: Tolerance = "strict",
    layout: Layout = "dense",
    jobs: Jobs = None,
    seed: Seed = None,
    case: Case = None,
    fail_on: FailOn = "wrong",
    junit: Junit = None,
    stop_at_first: StopAtFirst = False,
    last_failed: LastFailed = False,
    watch: Annotated[bool, typer.Option("--watch", help="Judge again whenever the file changes; Ctrl-C ends.")] = False,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Judge one kernel against one task, with an editor open.

    Without -o the run directory is temporary. Exit status as for `opsmith run`.
    """
    if watch:
        if out is not None:
            raise BadInput("--watch judges again and again; leave -o out")
        once = functools.partial(check, **{name: value for name, value in locals().items() if name != "watch"})
        return watched(kernel, once)
    if traits_of(suite).tasks is TaskKind.MODEL:
        raise BadInput(f"suite {suite} is not answered by kernels; use opsmith run --suite {suite}")
    KernelFile(kernel)  # Says what is wrong with the file before anything is started.
    task = task or _named_task(kernel)
    problem = task if is_problem(task) else None
    if problem is not None:
        suite = selection.suite_of_problem(Path(problem))
    tasks = traits_of(suite).tasks
    backend = str(kernel)
    if not tasks.of_problems:
        (task,) = op_patterns((task,), suite=suite)
        _refuse_composed(task, suite)
        function = entry_for(kernel, task, entry, functional=task in functional_names())
        backend += "" if function is None else f":{function}"
    elif entry is not None:
        raise BadInput("--entry is for ops; the class that answers a module problem is called ModelNew")
    elif not _is_in_another_format(kernel, problem):
        check_solution(kernel, on_ranks=tasks.on_ranks)
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend=backend,
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=(task,) if problem is None else (),
        policy=policy,
        integrity=integrity,
        timing=timing,
        timing_pairs=timing_pairs,
        baseline=baseline,
        warm=warm,
        tolerance=tolerance,
        layout=layout,
        case=case,
        selection=selection.parse_selection(
            suite,
            dataset=dataset,
            top_inputs=top_inputs,
            spread_inputs=spread_inputs,
            sample=sample,
            sample_seed=seed,
            models=models,
            overhead_dominated=overhead_dominated,
            problems=problem,
            sizes=sizes,
            trials=trials,
            ranks=ranks,
            tolerance=tolerance,
        ),
    )
    if last_failed and (failed := outcomes.last_failed(options)) is not None and failed.case is not None:
        options = msgspec.structs.replace(options, case=failed.case)
        seed = failed.seed if seed is None else seed
    ending = Ending(fail_on=fail_on, junit=junit)
    if out is not None:
        return judge(
            options, out, seed=seed, jobs=jobs, json_output=json_output, ending=ending, stop_at_first=stop_at_first
        )
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        return judge(
            options,
            Path(folder) / "run",
            seed=seed,
            jobs=jobs,
            json_output=json_output,
            kept=False,
            ending=ending,
            stop_at_first=stop_at_first,
        )


def is_problem(task: str) -> bool:
    """Whether ``--task`` names a module problem: its file, or a file or folder of another tool's format."""
    return task.endswith((".py", ".json", ".yml", ".yaml")) or (bool(task) and Path(task).is_dir())


def _is_in_another_format(kernel: Path, problem: str | None) -> bool:
    if problem is None:
        return False
    return selection.problems_path(problem) != Path(problem) or bool(solutions_from(kernel, Path(problem), problem))


def _named_task(kernel: Path) -> str:
    """The task that the file's only kernel is named for.

    Raises:
        BadInput: it is named for none, or several are.
    """
    tasks = tasks_named_in(kernel)
    if len(tasks) != 1:
        named = f"; it has kernels for {', '.join(tasks[:5])}" if tasks else ""
        raise BadInput(f"say what {kernel} implements: --task relu.default, or --task PROBLEM.py for a module{named}")
    return tasks[0]


def _refuse_composed(task: str, suite: str) -> None:
    """Refuse a function that PyTorch composes of ops: no suite that makes its own inputs ever asks it.

    Raises:
        BadInput: it is one; says which op does its work.
    """
    packet, _, overload = task.partition(".")
    if packet in COMPOSED and traits_of(suite).reads is Reads.NOTHING and (not overload or task in functional_names()):
        raise BadInput(composed(packet))
