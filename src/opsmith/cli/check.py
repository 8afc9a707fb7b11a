"""``opsmith check``: judge one kernel against one task."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Annotated

import typer

from opsmith.backends.file import KernelFile
from opsmith.cli import selection
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
from opsmith.core.op import TaskKind
from opsmith.core.run import Options
from opsmith.errors import BadInput
from opsmith.suites.traits import traits_of

EPILOG = """
Examples:

  opsmith check relu__default_implementation_v1.py --task relu.default

  opsmith check mine.py --task add.Tensor --dtype bf16,f32 --device cuda

  opsmith check mine.py --task add.Tensor --case opinfo:add:f32:sample:3:0 --seed 7

  opsmith check my_solution.py --task problems/level1/23_Softmax.py
"""


def check(
    kernel: Annotated[
        Path,
        typer.Argument(
            help="A Python file that defines <op>__<overload>_kernel_impl, or ModelNew.", show_default=False
        ),
    ],
    task: Annotated[
        str,
        typer.Option(
            help="The overload that it implements (relu.default), or the file of a module problem (reference.py).",
            show_default=False,
        ),
    ],
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
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Judge one kernel against one task, with an editor open.

    Without -o the run directory is temporary. Exit status as for `opsmith run`.
    """
    if traits_of(suite).tasks is TaskKind.MODEL:
        raise BadInput(f"suite {suite} is not answered by kernels; use opsmith run --suite {suite}")
    KernelFile(kernel)  # Says what is wrong with the file before anything is started.
    problem = task if task.endswith(".py") else None
    suite = suite if problem is None else selection.MODULES
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend=str(kernel),
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
            tolerance=tolerance,
        ),
    )
    if out is not None:
        return judge(options, out, seed=seed, jobs=jobs, json_output=json_output)
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        return judge(options, Path(folder) / "run", seed=seed, jobs=jobs, json_output=json_output, kept=False)
