"""``opsmith run``: judge a backend."""

from __future__ import annotations

import re
import sys
from datetime import datetime
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console

from opsmith.backends.resolve import OWN
from opsmith.cli import outcomes, selection
from opsmith.cli.document import print_json
from opsmith.cli.outcomes import ORDINARY, Ending, FailOn, Junit, LastFailed, StopAtFirst
from opsmith.cli.preflight import check_backend, op_patterns
from opsmith.cli.progress import StageProgress
from opsmith.core.op import TaskKind
from opsmith.core.run import Options, RunDirectory
from opsmith.errors import BadInput
from opsmith.pipeline import LOCAL, evaluate
from opsmith.report.results import Results
from opsmith.report.tables import print_results
from opsmith.suites.traits import traits_of
from opsmith.whole_models.pipeline import evaluate_models

EPILOG = """
Examples:

  opsmith run --suite smoke --backend opsmith

  opsmith run --suite opinfo --backend my_kernels/ --dtype bf16 -o runs/mine

  opsmith run --suite opinfo --backend aten --ops 'relu.default,add*' --json

  opsmith run --suite opinfo --backend my_kernels/ --dtype bf16 -o runs/mine --resume

  opsmith run --suite traces --backend opsmith --top-inputs 2 --models 'timm:*,transformers:*'

  opsmith run --suite traces --backend opsmith --devices all

  opsmith run --suite opinfo --backend my_kernels/ --executor ray:10.0.0.1:6379

  opsmith run --suite modules --backend solutions/ --ops 'L1/*'

  opsmith run --suite distributed --backend my_kernels/ --ranks 2,4

  opsmith run --backend my_kernels/ --junit opsmith.xml --fail-on slower

  opsmith run --suite models --backend opsmith --columns inductor,max-autotune --models 'gpt*,timm:*'

  opsmith run --suite modules --problems hf:ScalingIntelligence/KernelBench --backend runs/my_run/ --policy any
"""

Isolation = Annotated[
    Literal["auto", "kernel", "backend"],
    typer.Option(
        help="One worker process per kernel, or one for the whole backend; auto: per kernel, but for aten and opsmith."
    ),
]
Tolerance = Annotated[
    Literal["strict", "backendbench", "kernelbench"],
    typer.Option(help="How close a value must be; the last two reproduce published scores."),
]
Layout = Annotated[
    Literal["dense", "exact"],
    typer.Option(help="dense lets another dense layout pass; exact asks for eager's strides."),
]
Timing = Annotated[
    Literal["off", "quick", "full"],
    typer.Option(help="Time correct kernels against the baseline; full finds differences of 2 %."),
]
TimingPairs = Annotated[
    int | None,
    typer.Option(min=1, help="Time so many pairs of blocks of each case.", show_default="until the interval is narrow"),
]
Baseline = Annotated[
    Literal["eager", "compile", "max-autotune", "cudagraphs"],
    typer.Option(help="What times are compared with: eager, torch.compile in two modes, or eager in a CUDA graph."),
]
Warm = Annotated[bool, typer.Option("--warm", help="Time with inputs in the device's cache.")]
Jobs = Annotated[
    int | None,
    typer.Option(
        min=1, help="Ops judged at a time on each device.", show_default="one per CPU; on a GPU 14, traces 12"
    ),
]
Executor = Annotated[
    str, typer.Option(help="Whose devices: local, ray (a cluster started here), ray:ADDRESS, or a plug-in's.")
]
Devices = Annotated[
    str,
    typer.Option(
        help="Judge on several: all, how many, or cuda:0,cuda:2. On the CPU: how many judges share it.",
        show_default="the one of --device; of a cluster all",
    ),
]
Columns = Annotated[
    str,
    typer.Option(
        help="Suite models: further columns, comma-separated: eager, a backend or a mode of torch.compile, "
        "enabled:KERNELS.",
        show_default="eager, where anything is timed",
    ),
]
Policy = Annotated[
    Literal["native", "any"],
    typer.Option(help="Whose code computes: the kernel's own (native), or also other ATen ops than the one asked."),
]
Integrity = Annotated[
    Literal["auto", "on", "off"],
    typer.Option(help="Watch kernels, call them again with other values and vary the cases; auto: all but aten's."),
]
Seed = Annotated[int | None, typer.Option(help="Seed of all values.", show_default="secret, recorded at the end")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Run directory.", show_default="runs/TIME-SUITE-BACKEND")]
Case = Annotated[str | None, typer.Option(help="Judge this one case, by its address.", show_default=False)]
Json = Annotated[bool, typer.Option("--json", help="Print summary.json on stdout and nothing else.")]


def run(
    backend: Annotated[
        str,
        typer.Option(
            help="Who answers: a name (aten, opsmith, inductor, flag_gems), a directory or pkg.mod:attr; "
            "for models a column."
        ),
    ],
    suite: selection.Suite = "opinfo",
    ops: selection.Ops = "",
    dtype: selection.Dtype = "",
    device: selection.Device = "",
    dataset: selection.Dataset = None,
    top_inputs: selection.TopInputs = None,
    spread_inputs: selection.SpreadInputs = None,
    sample: selection.Sample = None,
    models: selection.Models = "",
    overhead_dominated: selection.OverheadDominated = "with",
    problems: selection.Problems = None,
    sizes: selection.Sizes = "full",
    trials: selection.Trials = selection.DEFAULT_TRIALS,
    ranks: selection.Ranks = "",
    mode: selection.ModelMode = "both",
    columns: Columns = "",
    autocast: selection.Autocast = False,
    policy: Policy = "native",
    integrity: Integrity = "auto",
    isolation: Isolation = "auto",
    timing: Timing = "quick",
    timing_pairs: TimingPairs = None,
    baseline: Baseline = "eager",
    warm: Warm = False,
    tolerance: Tolerance = "strict",
    layout: Layout = "dense",
    jobs: Jobs = None,
    executor: Executor = LOCAL,
    devices: Devices = "",
    seed: Seed = None,
    case: Case = None,
    fail_on: FailOn = "wrong",
    junit: Junit = None,
    stop_at_first: StopAtFirst = False,
    last_failed: LastFailed = False,
    out: Out = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the interrupted run in -o.")] = False,
    json_output: Json = False,
) -> int:
    """Judge a backend: is every op right, and how fast?

    Exit status: 0 everything asked was answered and passed, 1 something did not (or, with `--fail-on slower`, is
    slower), 2 wrong usage or bad input, 3 internal error. On GitHub Actions failing ops become annotations.
    """
    on = selection.parse_device(device)
    options = Options(
        suite=suite,
        backend=backend,
        device=on,
        dtypes=selection.parse_dtype(dtype, suite=suite, device=on),
        ops=op_patterns(selection.parse_ops(ops), suite=suite),
        timing=timing,
        timing_pairs=timing_pairs,
        baseline=baseline,
        warm=warm,
        isolation=_isolation(isolation, backend),
        policy=policy,
        integrity=integrity,
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
            problems=problems,
            sizes=sizes,
            trials=trials,
            tolerance=tolerance,
            ranks=ranks,
            mode=mode,
            columns=columns,
            autocast=autocast,
        ),
    )
    if traits_of(suite).tasks is TaskKind.MODEL:
        _refuse_for_models(
            suite,
            policy=policy != "native",
            integrity=integrity != "auto",
            isolation=isolation != "auto",
            baseline=baseline != "eager",
            warm=warm,
            jobs=jobs is not None,
            executor=executor != LOCAL,
            devices=bool(devices),
            last_failed=last_failed,
            stop_at_first=stop_at_first,
        )
    else:
        check_backend(options)
    if last_failed and (failed := outcomes.last_failed(options)) is not None:
        options = msgspec.structs.replace(options, ops=failed.ops)
    if resume and out is None:
        raise BadInput("--resume needs the run's directory: -o DIR")
    return judge(
        options,
        out or default_out(options),
        seed=seed,
        jobs=jobs,
        executor=executor,
        devices=devices,
        resume=resume,
        json_output=json_output,
        ending=Ending(fail_on=fail_on, junit=junit),
        stop_at_first=stop_at_first,
    )


def _isolation(asked: str, backend: str) -> str:
    """What one worker process is for: ``kernel`` or ``backend``.

    Opsmith's own backends have one author, who gains nothing if a kernel of theirs reaches into another one. With a
    worker for each kernel a GPU is busy making contexts.
    """
    if asked != "auto":
        return asked
    return "backend" if backend in OWN else "kernel"


def judge(
    options: Options,
    out: Path,
    *,
    seed: int | None,
    jobs: int | None,
    executor: str = LOCAL,
    devices: str = "",
    resume: bool = False,
    json_output: bool = False,
    kept: bool = True,
    ending: Ending = ORDINARY,
    stop_at_first: bool = False,
) -> int:
    """Run the pipeline with a progress bar, print what was asked for, and return the exit status.

    Args:
        kept: the run directory stays, so its paths are printed.
        ending: what is written beside the run, and what counts as failed.
        stop_at_first: judge nothing more after the first failure.
    """
    ending.check(options)
    command = ("opsmith", *sys.argv[1:])
    with StageProgress() as progress:
        if traits_of(options.suite).tasks is TaskKind.MODEL:
            summary = evaluate_models(options, out, seed=seed, resume=resume, command=command, progress=progress)
        else:
            summary = evaluate(
                options,
                out,
                seed=seed,
                jobs=jobs,
                executor=executor,
                devices=devices,
                resume=resume,
                command=command,
                progress=progress,
                stop_at_first=stop_at_first,
            )
    results = Results.read(RunDirectory(out))
    if json_output:
        print_json(summary)
    else:
        console = Console()
        print_results(results, console)
        if kept:
            console.print(f"\nrun:  {out}\npage: {out / 'report.html'}", markup=False, highlight=False, soft_wrap=True)
    return ending.carry_out(results)


def _refuse_for_models(suite: str, **given: bool) -> None:
    """Say which of the options given mean nothing for whole models.

    Raises:
        BadInput: one of them does.
    """
    if unfit := [f"--{name.replace('_', '-')}" for name, is_given in given.items() if is_given]:
        raise BadInput(f"{', '.join(unfit)}: not for --suite {suite}; see docs/how-to/judge-whole-models.md")


def default_out(options: Options) -> Path:
    """A new directory under ``runs/``, named by time, suite and backend."""
    stamp = datetime.now().astimezone().strftime("%Y%m%d-%H%M%S")
    backend = re.sub(r"[^A-Za-z0-9._-]+", "-", Path(options.backend).name) or "backend"
    return Path("runs") / f"{stamp}-{options.suite}-{backend}"
