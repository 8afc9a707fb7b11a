"""``opsmith explain``: what compiling a model comes to."""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.table import Table

from opsmith.cli.document import Json, print_json
from opsmith.cli.progress import StageProgress
from opsmith.cli.trace import parse_float_dtype, parse_setting
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.devices import kind_of, names
from opsmith.errors import BadInput, OpsmithError

if TYPE_CHECKING:
    from opsmith.compile.explain import Explanation
    from opsmith.traces.subject import Subject

EPILOG = """
Examples:

  opsmith explain problems/level3/26_Llama_blocks.py

  opsmith explain my_models.py:unet --mode train --json

  opsmith explain transformers:BertForMaskedLM --batch-size 2 --batch-size 4 --batch-size 8

  opsmith explain timm:resnet50 --device cuda --dtype bf16 --option mode=max-autotune
"""

Model = Annotated[
    str,
    typer.Argument(
        help="FILE.py (Model, get_inputs), FILE.py:FUNCTION, timm:NAME, torchvision:NAME or transformers:NAME.",
        show_default=False,
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option(help="KEY=VALUE for the model; VALUE as in JSON. Can be repeated.", show_default=False),
]
Option = Annotated[
    list[str] | None,
    typer.Option(
        "--option",
        help="KEY=VALUE for the backend: mode, passes, kernels, fallback or a setting of Inductor. Can be repeated.",
        show_default=False,
    ),
]
Mode = Annotated[Literal["infer", "train"], typer.Option(help="A forward pass, or one with gradients.")]
Dtype = Annotated[str, typer.Option(help="Dtype of weights and inputs.")]
Device = Annotated[str | None, typer.Option(help="cpu or cuda.", show_default="cuda where there is one")]
BatchSize = Annotated[
    list[int] | None, typer.Option(min=1, help="Samples of a batch. Repeated: further calls.", show_default=False)
]
SequenceLength = Annotated[
    list[int] | None, typer.Option(min=1, help="Tokens of a sample. Repeated: further calls.", show_default=False)
]
ImageSize = Annotated[
    list[int] | None, typer.Option(min=1, help="Pixels of a side. Repeated: further calls.", show_default=False)
]


def explain(
    model: Model,
    config: Config = None,
    mode: Mode = "infer",
    dtype: Dtype = "f32",
    device: Device = None,
    batch_size: BatchSize = None,
    sequence_length: SequenceLength = None,
    image_size: ImageSize = None,
    option: Option = None,
    json_output: Json = False,
) -> int:
    """Compile a model with the backend opsmith and say what came of it.

    Graph breaks with their source lines, guards, recompilations with their causes, how often each pass fired, kernel
    launches and bytes moved before and after, CUDA graphs, and the time. The model gets random weights and runs; sizes
    that are given several times are called one after the other, which shows what makes the compiler compile again.

    Exit status: 0 everything was compiled, 1 a pass was undone or a graph was compiled without opsmith's
    part, 2 wrong usage.
    """
    sizes = _calls({"batch_size": batch_size, "sequence_length": sequence_length, "image_size": image_size})
    settings = {
        "config": dict(parse_setting(setting) for setting in config or ()),
        "options": dict(parse_setting(setting, "--option") for setting in option or ()),
        "mode": mode,
        "dtype": parse_float_dtype(dtype),
    }
    # What the model itself prints belongs to nobody who reads ours.
    with StageProgress() as progress, contextlib.redirect_stdout(sys.stderr):
        found = _explain(model, sizes, settings, device=device, progress=progress)
    if json_output:
        print_json(found)
    else:
        _print(found, Console())
    return int(bool(found.fallbacks) or any(one.undone for one in found.passes))


def _calls(sizes: Mapping[str, list[int] | None]) -> list[dict[str, int]]:
    """The sizes of each call; a size with fewer values than another keeps its last."""
    given = {name: values for name, values in sizes.items() if values}
    most = max(map(len, given.values()), default=1)
    return [{name: values[min(call, len(values) - 1)] for name, values in given.items()} for call in range(most)]


def _explain(
    model: str,
    sizes: Sequence[dict[str, int]],
    settings: Mapping[str, Any],
    *,
    device: str | None,
    progress: StageProgress,
) -> Explanation:
    import torch

    from opsmith.compile.explain import explain as explain_model
    from opsmith.compile.options import read_options
    from opsmith.traces.models import find_model
    from opsmith.traces.subject import Sizes

    chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if chosen.type != "cpu" and chosen.type in names() and not kind_of(chosen.type).count():
        raise BadInput(f"--device {device}: there is no GPU that torch can use here; leave it out or give cpu")
    read_options(None, settings["options"])
    dtype = getattr(torch, TORCH_NAMES[settings["dtype"]])
    try:
        source = find_model(model)
        progress.stage("build", 0)
        subjects = [source.build(settings["config"], Sizes(**one), dtype) for one in sizes]
        module = subjects[0].module.to(chosen).train(settings["mode"] == "train")
        run = _train if settings["mode"] == "train" else _infer
        return explain_model(
            module,
            [run(subject, chosen, dtype) for subject in subjects],
            model=model,
            mode=settings["mode"],
            device=str(chosen),
            options=settings["options"],
            progress=progress,
        )
    except OpsmithError:
        raise
    except Exception as exc:  # the model is not ours and may raise anything
        message = " ".join(f"{type(exc).__name__}: {exc}".split())
        raise BadInput(f"{model} cannot be run as asked: {message}") from exc


def _infer(subject: Subject, device: Any, dtype: Any) -> Callable[[Callable[..., Any]], object]:
    import torch

    args, kwargs, _ = _on(device, subject.inputs_in(dtype))

    def run(module: Callable[..., Any]) -> object:
        with torch.no_grad():
            return module(*args, **kwargs)

    return run


def _train(subject: Subject, device: Any, dtype: Any) -> Callable[[Callable[..., Any]], object]:
    args, kwargs, training_kwargs = _on(device, subject.inputs_in(dtype))

    def run(module: Callable[..., Any]) -> object:
        loss = subject.loss(module(*args, **{**kwargs, **training_kwargs}))
        loss.backward()
        return loss

    return run


def _on(device: Any, inputs: Any) -> Any:
    import torch
    from torch.utils._pytree import tree_map_only

    return tree_map_only(torch.Tensor, lambda tensor: tensor.to(device), inputs)


# ---------------------------------------------------------------- in the terminal


def _print(found: Explanation, console: Console) -> None:
    def line(text: str) -> None:
        console.print(text, markup=False, highlight=False, soft_wrap=True)

    line(f"{found.model}, {found.mode}, on {found.device}")
    console.print(_work_table(found))
    line(f"\ngraph breaks: {len(found.graph_breaks)}")
    for one in found.graph_breaks:
        line(f"  {one.file}:{one.line} in {one.function}: {one.reason}")
    kinds = ", ".join(f"{count} {kind}" for kind, count in itertools.islice(found.guards.items(), 6))
    line(f"guards: {sum(found.guards.values())}: {kinds}")
    line(f"compilations: {len(found.compilations)}, of which {len(found.recompilations)} again")
    for again in found.recompilations:
        line(f"  {again.frame}: {again.cause}")
    console.print()
    console.print(_pass_table(found))
    for summary in found.passes:
        for reason in summary.undone:
            line(f"undone: {summary.name}: {reason}")
        if summary.fired and summary.differs:
            line(f"{summary.name} may differ from eager and Inductor: {summary.differs}")
    for reason in found.fallbacks:
        line(f"compiled by Inductor alone: {reason}")
    for graph in found.graphs:
        line(f"a graph {graph.line()}")
    for trial in found.trials:
        line(f"tried {trial.line()}")


def _work_table(found: Explanation) -> Table:
    table = Table(box=None, pad_edge=False)
    table.add_column("")
    for title in ("launches", "MB moved", "first call, s"):
        table.add_column(title, justify="right")
    for name, work in found.work.items():
        table.add_row(name, f"{work.launches:,}", f"{work.bytes_moved / 1e6:,.2f}", f"{found.first_call_s[name]:.2f}")
    return table


def _pass_table(found: Explanation) -> Table:
    table = Table(box=None, pad_edge=False)
    for title in ("pass", "stage"):
        table.add_column(title)
    for title in ("graphs", "fired", "ms"):
        table.add_column(title, justify="right")
    for one in found.passes:
        table.add_row(one.name, one.stage, str(one.graphs), str(one.fired), f"{one.seconds * 1e3:.1f}")
    return table
