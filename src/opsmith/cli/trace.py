"""``opsmith trace``: record what a script or a model calls."""

from __future__ import annotations

import contextlib
import runpy
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from opsmith.cli.document import print_json
from opsmith.cli.progress import StageProgress
from opsmith.core.dtypes import parse_dtypes
from opsmith.errors import BadInput
from opsmith.report.strangers import one_line

if TYPE_CHECKING:
    from opsmith.traces.capture import Capture

EPILOG = """
Examples:

  opsmith trace train.py -o train.txt -- --epochs 1

  opsmith trace -m package.train -o train.txt -- --epochs 1

  opsmith trace --model timm:resnet50 --mode train --dtype f16 --batch-size 64

  opsmith trace --model transformers:LlamaForCausalLM --config num_hidden_layers=80 --config hidden_size=8192

  opsmith trace --model transformers:path/to/config.json --mode infer --sequence-length 8192

  opsmith trace --model my_models.py:unet --json
"""

Script = Annotated[Path | None, typer.Argument(help="Python script to run and record.", show_default=False)]
Module = Annotated[
    str, typer.Option("--module", "-m", help="Run a module instead, as `python -m` does.", show_default=False)
]
Arguments = Annotated[list[str] | None, typer.Argument(help="The script's own, after `--`.", show_default=False)]
Model = Annotated[
    str,
    typer.Option(
        help="timm:NAME, torchvision:NAME, transformers:NAME, FILE.py (Model, get_inputs) or FILE.py:FUNCTION.",
        show_default=False,
    ),
]
Config = Annotated[
    list[str] | None,
    typer.Option(help="KEY=VALUE for the model; VALUE as in JSON. Can be repeated.", show_default=False),
]
Mode = Annotated[
    Literal["infer", "train", "both"] | None, typer.Option(help="What the model does.", show_default="both")
]
Dtype = Annotated[str | None, typer.Option(help="Dtype of weights and inputs.", show_default="bf16")]
Autocast = Annotated[bool, typer.Option("--autocast", help="Keep weights in f32 and compute in --dtype.")]
Optimizer = Annotated[
    Literal["adamw", "sgd", "none"] | None, typer.Option(help="Whose step training ends with.", show_default="adamw")
]
BatchSize = Annotated[int | None, typer.Option(min=1, help="Samples of a batch.", show_default="the model's")]
SequenceLength = Annotated[int | None, typer.Option(min=1, help="Tokens of a sample.", show_default="the model's")]
ImageSize = Annotated[int | None, typer.Option(min=1, help="Pixels of an image's side.", show_default="the model's")]
Fake = Annotated[bool, typer.Option("--fake", help="Run the script without a GPU: its CUDA tensors have no content.")]
Out = Annotated[Path | None, typer.Option("--out", "-o", help="Trace file.", show_default="NAME.txt")]
Json = Annotated[bool, typer.Option("--json", help="Print a summary as one JSON document.")]


def trace(
    script: Script = None,
    arguments: Arguments = None,
    module: Module = "",
    model: Model = "",
    config: Config = None,
    mode: Mode = None,
    dtype: Dtype = None,
    autocast: Autocast = False,
    optimizer: Optimizer = None,
    batch_size: BatchSize = None,
    sequence_length: SequenceLength = None,
    image_size: ImageSize = None,
    fake: Fake = False,
    out: Out = None,
    json_output: Json = False,
) -> int:
    """Record every ATen call of a script, or of a model, with its count.

    A model gets random weights, and tensors without content stand for those on the GPU: nothing
    is downloaded, and a model of 70 billion parameters fits on any machine. A script runs as it is.

    The calls of a script's threads and forked processes are among its own. They are written as they come.

    Exit status: the script's own: 1 where it raised, 130 where it was interrupted. What it called until then is kept.
    """
    if module and script is not None:
        script, arguments = None, [str(script), *(arguments or [])]
    sizes = {"batch_size": batch_size, "sequence_length": sequence_length, "image_size": image_size}
    of_model = {
        "config": config,
        "mode": mode,
        "dtype": dtype,
        "autocast": autocast or None,
        "optimizer": optimizer,
        **sizes,
    }
    if (script is None and not module) == (not model):
        raise BadInput("give either a SCRIPT or a --model; `opsmith trace --help` has examples")
    if script is not None or module:
        for name, value in of_model.items():
            if value is not None:
                raise BadInput(f"--{name.replace('_', '-')} goes with --model; a script says itself what it runs")
        name = script.stem if script is not None else module.rpartition(".")[2]
        out = _writable(out or Path(f"{name}.txt"))
        return _trace_script(script or module, arguments or [], fake=fake, out=out, json_output=json_output)
    if fake:
        raise BadInput("--fake goes with a SCRIPT; a --model is always traced without a GPU")
    out = _writable(out or Path(f"{model.replace(':', '--').replace('/', '-')}.txt"))
    plan = {"model": model, "sizes": sizes, **_given(of_model, except_for=sizes)}
    return _trace_model(plan, out=out, json_output=json_output)


def _given(options: dict[str, Any], *, except_for: dict[str, Any]) -> dict[str, Any]:
    """The fields of a TracePlan that the command line sets."""
    given = {name: value for name, value in options.items() if value is not None and name not in except_for}
    if "config" in given:
        given["config"] = dict(parse_setting(setting) for setting in given["config"])
    if mode := given.pop("mode", None):
        given["modes"] = ("infer", "train") if mode == "both" else (mode,)
    if "dtype" in given:
        given["dtype"] = parse_float_dtype(given["dtype"])
    return given


def parse_setting(text: str, option: str = "--config") -> tuple[str, Any]:
    """``num_layers=12`` -> ``("num_layers", 12)``; a value that is no JSON is a string.

    Raises:
        BadInput: it is no ``KEY=VALUE``.
    """
    name, separator, value = text.partition("=")
    if not (name.replace(".", "_").isidentifier() and separator):
        raise BadInput(f"{option} {text!r} is no KEY=VALUE")
    try:
        return name, msgspec.json.decode(value)
    except msgspec.DecodeError:
        return name, value


def parse_float_dtype(text: str) -> str:
    """The short name of the floating-point dtype that a model is to compute in.

    Raises:
        BadInput: it is none.
    """
    dtypes = parse_dtypes(text)
    if len(dtypes) != 1 or dtypes[0] not in {"bf16", "f16", "f32", "f64"}:
        raise BadInput(f"--dtype {text!r}: a model computes in one of bf16, f16, f32, f64")
    return dtypes[0]


def _writable(path: Path) -> Path:
    """Find out before the work, and leave nothing behind, whether the trace can be written."""
    if path.is_dir() or not path.parent.is_dir():
        raise BadInput(f"{path} cannot be written: {'it is' if path.is_dir() else 'there is no'} folder")
    return path


def _trace_model(plan: dict[str, Any], *, out: Path, json_output: bool) -> int:
    from opsmith.traces.session import TracePlan, trace_model

    request = msgspec.convert(plan, TracePlan)
    started = time.perf_counter()
    with StageProgress() as progress:
        capture, guesses = trace_model(request, progress=progress)
    headers = {"model": request.model, "mode": ", ".join(request.modes), "dtype": request.dtype}
    capture.write(out, headers=headers)
    _report(capture, guesses, out, time.perf_counter() - started, json_output=json_output)
    return 0


def _trace_script(script: Path | str, arguments: list[str], *, fake: bool, out: Path, json_output: bool) -> int:
    """Run and record a script, or a module by its name."""
    if isinstance(script, Path) and not script.is_file():
        raise BadInput(f"there is no script {script}")
    from opsmith.traces.fake_device import FakeDevice
    from opsmith.traces.scripts import Recorder
    from opsmith.traces.transformers_models import eager_paths

    started, stdout = time.perf_counter(), sys.stderr if json_output else sys.stdout
    complaint, status = None, 0
    with StageProgress() as progress, contextlib.ExitStack() as stack:
        device = FakeDevice()
        if fake:
            stack.enter_context(device)
            stack.enter_context(eager_paths())
        # A progress bar takes standard output over; what goes to a file or a pipe is the script's.
        if json_output or not stdout.isatty():
            stack.enter_context(contextlib.redirect_stdout(stdout))
        stack.enter_context(_as_main(script, arguments))
        name = script.name if isinstance(script, Path) else script
        recorder = Recorder(out, name, device="cuda" if fake else None, progress=progress.advance)
        progress.stage("run", 0)
        try:
            with recorder.recording():
                _run(script)
        except SystemExit as exc:
            if recorder.is_forked:
                raise
            complaint = f"ended with status {one_line(str(exc.code))}" if exc.code else None
            status = exc.code if isinstance(exc.code, int) else int(exc.code is not None)
        except KeyboardInterrupt:
            complaint, status = "was interrupted", 130
        except Exception as exc:  # noqa: BLE001 - the script is the user's and may raise anything
            complaint, status = _describe(exc, script), 1
    if recorder.is_forked:
        return status
    capture, seconds = recorder.capture, time.perf_counter() - started
    written = out if capture.calls or not complaint else None
    if written is not None and not capture.calls:
        capture.write(out, headers={"model": one_line(name)})
    _report(
        capture, device.guesses, written, seconds, json_output=json_output, complaint=complaint, others=recorder.others
    )
    if complaint:
        kept = (
            f"its {capture.calls:,} calls until then are in {one_line(str(out))}"
            if capture.calls
            else "it had called nothing"
        )
        _say(f"opsmith: {one_line(str(script))} {complaint}; {kept}")
    return status


def _run(script: Path | str) -> None:
    if isinstance(script, Path):
        runpy.run_path(str(script), run_name="__main__")
    else:
        runpy.run_module(script, run_name="__main__", alter_sys=True)


@contextlib.contextmanager
def _as_main(script: Path | str, arguments: list[str]) -> Iterator[None]:
    """Arguments and import path as ``python SCRIPT ARGUMENTS``, or ``python -m MODULE ARGUMENTS``, has them."""
    argv, path = sys.argv, list(sys.path)
    sys.argv = [str(script), *arguments]
    sys.path[0] = str(script.parent.resolve() if isinstance(script, Path) else Path.cwd())
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path


def _describe(error: Exception, script: Path | str) -> str:
    """Type, place in the script and message of an exception, on one line that a terminal can show."""
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if isinstance(script, Path) and Path(frame.filename) == script]
    place = f" at line {lines[-1]}" if lines else ""
    message = one_line(str(error))
    return f"raised {one_line(type(error).__name__)}{place}{': ' if message else ''}{message}"


def _report(
    capture: Capture,
    guesses: Counter[str],
    out: Path | None,
    seconds: float,
    *,
    json_output: bool,
    complaint: str | None = None,
    others: Mapping[str, int] | None = None,
) -> None:
    entries = capture.entries()
    ops = {entry.call.op for entry in entries}
    if json_output:
        summary = {
            "out": None if out is None else str(out).encode(errors="backslashreplace").decode(),
            "calls": capture.calls,
            "ops": len(ops),
            "inputs": len(entries),
            "seconds": round(seconds, 2),
            "error": complaint,
            "left_out": dict(capture.left_out.most_common()),
            "untraceable": dict(capture.untraceable.most_common()),
            "guesses": dict(guesses.most_common()),
            "other_programs": dict(others or {}),
        }
        print_json(summary)
        return
    _say(f"{capture.calls:,} calls: {len(entries):,} inputs of {len(ops)} ops, in {seconds:.1f} s")
    for reason, count in capture.untraceable.most_common():
        _say(f"not traced: {count:,} calls of {one_line(reason)}")
    for op, count in guesses.most_common():
        _say(f"guessed, as for tensors of ones: {count:,} results of {op}")
    if others:
        started = ", ".join(f"{one_line(name)} ({count})" for name, count in others.items())
        _say(f"not recorded: what other programs called that it started: {started}")
    if out is not None:
        _say(f"trace: {one_line(str(out))}")


def _say(line: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # The script may have closed it.
        sys.stderr.write(f"{line}\n")
