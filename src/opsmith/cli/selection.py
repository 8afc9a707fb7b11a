"""Options that every verb that takes tasks shares: which suite, ops, dtypes and device."""

from __future__ import annotations

import ast
import functools
import re
import sys
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer

from opsmith.backends.dsl import parse_source
from opsmith.core.case import digest
from opsmith.core.dtypes import RECORDED, parse_dtypes
from opsmith.core.op import TaskKind
from opsmith.core.problems import (
    SHIPPED_PARALLEL,
    SHIPPED_PROBLEMS,
    input_table,
    problem_files,
    problems_hash,
    task_pattern,
)
from opsmith.core.run import Selection
from opsmith.devices import DeviceKind, kind_of, names
from opsmith.errors import BadInput, UnknownName
from opsmith.formats.readers import problems_from
from opsmith.suites.traits import Reads, traits_of
from opsmith.traces.hub import PREFIX, local_path
from opsmith.traces.hub_problems import hub_problems
from opsmith.traces.schema import read_dataset

DEVICE = re.compile(r"[a-z]+(:\d+)?")
#: The suite of `opsmith check` for a task that is a file, and of what else takes module problems.
MODULES = "modules"
#: The same for a task of ranks.
PARALLEL = "parallel"
DEFAULT_TRIALS = Selection().trials

Suite = Annotated[
    str,
    typer.Option(
        help="What is asked: smoke, opinfo, traces, modules, models, distributed, parallel, or a plug-in's suite."
    ),
]
Ops = Annotated[
    str,
    typer.Option(help="Overloads, packets or wildcards, comma-separated: relu.default,add*,mm.", show_default="all"),
]
Dtype = Annotated[
    str,
    typer.Option(
        help="Dtypes, comma-separated: bf16,f32 (or all); for traces also `recorded`.",
        show_default="f32; traces on a device: recorded",
    ),
]
Device = Annotated[
    str,
    typer.Option(
        help="Torch device string: cpu, cuda or cuda:1 (NVIDIA's; AMD's, untested, where torch is built for ROCm), xpu "
        "(Intel's, untested), or a plug-in's.",
        show_default="cuda where there is such a GPU, else cpu",
    ),
]
Dataset = Annotated[
    str | None,
    typer.Option(help="Suite traces: a dataset (.parquet, .json) or hf:OWNER/NAME.", show_default="opsmith's own"),
]
TopInputs = Annotated[
    int | None, typer.Option(min=1, help="Suite traces: the N largest inputs of each op.", show_default="all")
]
SpreadInputs = Annotated[
    int | None,
    typer.Option(
        min=2,
        help="Suite traces: N inputs of each op, evenly spaced by rank of size; the largest and the smallest are "
        "among them.",
        show_default="all",
    ),
]
Sample = Annotated[
    int | None,
    typer.Option(
        min=1,
        help="Suites of ops: N inputs drawn at random, spread over the ops that are asked; another --seed draws "
        "others. Traced inputs that are too large for the device are drawn, but not asked.",
    ),
]
Models = Annotated[
    str,
    typer.Option(
        help="Suite traces: inputs of these models; suite models: these; comma-separated wildcards.", show_default="all"
    ),
]
OverheadDominated = Annotated[
    Literal["with", "without", "only"],
    typer.Option(help="Suite traces: inputs that mostly wait for their launch."),
]


Problems = Annotated[
    str | None,
    typer.Option(
        help="Suites modules, parallel: a problem file, a folder of problems and levels, or hf:OWNER/NAME.",
        show_default="opsmith's own set",
    ),
]
ProblemSet = Annotated[
    str | None,
    typer.Argument(
        help="A problem file, a folder of problems and levels, or hf:OWNER/NAME.", show_default="opsmith's own set"
    ),
]
ProblemPatterns = Annotated[
    str, typer.Option("--ops", help="Problems, comma-separated wildcards: L1/*,L2/3_*.", show_default="all")
]
Sizes = Annotated[
    Literal["full", "small"],
    typer.Option(help="Suites modules, parallel, models: a problem's own sizes, or small ones, for want of a GPU."),
]
ModelMode = Annotated[
    Literal["infer", "train", "both"], typer.Option("--mode", help="Suite models: a forward pass, a training step.")
]
Autocast = Annotated[
    bool, typer.Option("--autocast", help="Suite models: keep weights in --dtype and compute in bf16 where safe.")
]
Trials = Annotated[
    int,
    typer.Option(min=1, help="Suites modules, parallel: cases of a problem with inputs as get_inputs() draws them."),
]

Ranks = Annotated[
    str,
    typer.Option(
        "--ranks",
        "--world",
        help="Suites distributed and parallel: on how many processes, or GPUs, comma-separated: 2,4.",
        show_default="2",
    ),
]
#: On how many ranks a collective is asked at most: what one machine has of GPUs.
MOST_RANKS = 8
#: And a parallel problem: the processes of a large machine.
MOST_RANKS_OF_PROBLEMS = 64


def parse_ops(text: str) -> tuple[str, ...]:
    """Split a comma-separated list of op patterns."""
    return tuple(part.strip() for part in text.split(",") if part.strip())


def parse_dtype(text: str, *, suite: str, device: str) -> tuple[str, ...]:
    """The dtypes asked for, or the suite's default when ``text`` is empty.

    Raises:
        UnknownName: a name that is no dtype.
        BadInput: ``recorded`` for a suite that reads no dataset.
    """
    traits = traits_of(suite)
    if not text:
        return traits.default_dtypes(device)
    dtypes = parse_dtypes(text)
    if RECORDED in dtypes and traits.reads is not Reads.DATASET:
        raise BadInput(f"suite {suite} has no recorded dtypes; write for example --dtype bf16,f32")
    return dtypes


def parse_selection(
    suite: str,
    *,
    dataset: str | None = None,
    top_inputs: int | None = None,
    spread_inputs: int | None = None,
    sample: int | None = None,
    sample_seed: int | None = None,
    models: str = "",
    overhead_dominated: str = "with",
    problems: str | None = None,
    sizes: str = "full",
    trials: int = DEFAULT_TRIALS,
    tolerance: str = "strict",
    ranks: str = "",
    mode: str = "both",
    columns: str = "",
    autocast: bool = False,
) -> Selection:
    """Which inputs of which dataset are asked, or which problems.

    Raises:
        BadInput: options exclude each other, the suite reads no dataset or no problems, or what it reads cannot be
            had or read.
    """
    if top_inputs is not None and spread_inputs is not None:
        raise BadInput("give either --top-inputs or --spread-inputs, not both")
    traits = traits_of(suite)
    reads_problems, whole_models = traits.reads is Reads.PROBLEMS, traits.tasks is TaskKind.MODEL
    on_ranks = traits.tasks.on_ranks
    if not reads_problems and (problems, trials) != (None, DEFAULT_TRIALS):
        raise BadInput("--problems and --trials are for --suite modules and parallel")
    if not (reads_problems or whole_models) and sizes != "full":
        raise BadInput("--sizes is for --suite modules, parallel and models")
    if not whole_models and (mode, columns, autocast) != ("both", "", False):
        raise BadInput("--mode, --columns and --autocast are for --suite models")
    if not on_ranks and ranks:
        raise BadInput("--ranks is for --suite distributed and parallel")
    if (reads_problems or whole_models) and sample is not None:
        raise BadInput(f"--sample draws inputs of ops; for --suite {suite} choose with --ops")
    path = None if dataset is None else dataset_path(dataset)
    asked = Selection(
        dataset=None if path is None else str(path),
        dataset_hash=None if path is None else digest(path.read_bytes()),
        top_inputs=top_inputs,
        spread_inputs=spread_inputs,
        sample=sample,
        sample_seed=0 if sample is None or sample_seed is None else sample_seed,
        models=parse_ops(models),
        overhead_dominated=overhead_dominated,
    )
    if whole_models:
        of_models = Selection(
            models=asked.models, sizes=sizes, mode=mode, columns=parse_ops(columns), autocast=autocast
        )
        asked = msgspec.structs.replace(asked, models=())
    drawn = Selection(sample=asked.sample, sample_seed=asked.sample_seed)
    if asked != drawn and traits.reads is not Reads.DATASET:
        raise BadInput(
            f"suite {suite} reads no dataset: --dataset, --top-inputs, --spread-inputs, --models and "
            "--overhead-dominated are for --suite traces"
        )
    if whole_models:
        return of_models
    if not reads_problems:
        return msgspec.structs.replace(asked, ranks=parse_ranks(ranks)) if on_ranks else asked
    folder = (SHIPPED_PARALLEL if on_ranks and problems is None else problems_path(problems)).absolute()
    return Selection(
        problems=str(folder),
        problems_hash=problems_hash(folder),
        sizes=sizes,
        trials=trials,
        seeded=tolerance == "kernelbench" and not on_ranks,
        ranks=parse_ranks(ranks, fewest=1, most=MOST_RANKS_OF_PROBLEMS) if on_ranks else (),
    )


def suite_of_problem(file: Path) -> str:
    """The suite that asks a problem file: ``parallel`` where it says what ranks are given, else ``modules``.

    Nothing of it runs. A file that does not parse is a module's: loading it says where.
    """
    tree = parse_source(file)
    functions = [] if tree is None else [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    on_ranks = any(each.name == "get_inputs" and len(each.args.args) > 1 for each in functions)
    return PARALLEL if on_ranks or input_table(file) is not None else MODULES


def dataset_path(name: str) -> Path:
    """The file that ``--dataset`` means, downloaded if need be.

    Raises:
        BadInput: it cannot be had or read.
    """
    path = local_path(name).absolute()
    read_dataset(path)  # Says what is wrong with the file before anything is started.
    return path


def parse_ranks(text: str, *, fewest: int = 2, most: int = MOST_RANKS) -> tuple[int, ...]:
    """On how many ranks tasks are asked, or the default when ``text`` is empty.

    Raises:
        BadInput: not numbers from ``fewest`` to ``most``.
    """
    words = parse_ops(text) or ("2",)
    if not all(word.isdecimal() and fewest <= int(word) <= most for word in words):
        raise BadInput(f"--ranks {text}: write numbers from {fewest} to {most}, for example --ranks 2,4")
    return tuple(dict.fromkeys(map(int, words)))


def problems_path(name: str | None) -> Path:
    """The file or folder that ``--problems`` means, downloaded if need be; without a name opsmith's own set.

    Tasks of another tool's format are a folder in the cache by then.

    Raises:
        BadInput: it is on the hub and cannot be had, or a task is not what its format says.
    """
    if name is None:
        return SHIPPED_PROBLEMS
    return hub_problems(name) if name.startswith(PREFIX) else problems_from(Path(name))


def chosen_problems(name: str | None, patterns: str) -> dict[str, Path]:
    """Task -> file of the problems that a verb of its own takes, all of them or those that ``--ops`` names.

    Raises:
        BadInput: they cannot be had.
        UnknownName: a pattern names none of them.
    """
    files = problem_files(problems_path(name))
    wanted = tuple(map(task_pattern, parse_ops(patterns)))
    for pattern in wanted:
        if not any(fnmatchcase(task, pattern) for task in files):
            raise UnknownName("problem", pattern, list(files))
    return {
        task: file
        for task, file in files.items()
        if not wanted or any(fnmatchcase(task, pattern) for pattern in wanted)
    }


def parse_device(text: str) -> str:
    """The device asked for, or the machine's default when ``text`` is empty; of an untested kind stderr says so.

    Raises:
        BadInput: ``text`` is no torch device string, or its kind is not judged on.
        UnknownName: there is no such kind of device.
    """
    if not text:
        text = "cuda" if kind_of("cuda").missing() is None else "cpu"
    if not DEVICE.fullmatch(text):
        raise BadInput(f"{text!r} is not a torch device string; write cpu, cuda or cuda:1")
    kind = kind_of(text)
    if kind.type == "rocm":
        raise BadInput("torch calls the devices of ROCm cuda; write --device cuda")
    if kind.type not in names():
        raise UnknownName("device", kind.type, names())
    if not kind.has_judge:
        raise BadInput(f"device {text} cannot be used: judging needs Linux, where there is no {kind.label}")
    if not kind.tested:
        _say_untested(kind)
    return text


@functools.cache
def _say_untested(kind: DeviceKind) -> None:
    """Once in a process."""
    sys.stderr.write(
        f"opsmith: device {kind.type} ({kind.label}) is untested: opsmith has never run on one, so check what it says "
        "against another device; docs/reference/devices.md lists what it lacks\n"
    )
