"""Language models on texts of many lengths with one compilation: eager, Inductor, and the backend opsmith.

    python -m benchmarks.compile.lengths OUT.jsonl --device cuda [--models bert_base,gpt2,llama,gpt] [--minutes 4]
        [--precisions f32,bf16] [--modes training,inference] [--columns eager,inductor,opsmith] [--sizes full]
        [--layers 6] [--batches 40] [--tokens 2048] [--seed 0] [--timeout 300] [--jobs 14]

A stream of batches is drawn once: lengths from a log-normal distribution between 16 and 1,024 tokens, as many texts in
a batch as give it about equally many tokens. An encoder's texts are padded to the longest of their batch, and masked.
Published models have ``--layers`` of their layers: twelve take twice as long to compile, and show nothing else.
Columns are compiled with ``dynamic=True``, each with empty caches, and see the stream in its order, as a service would.
Every batch's results are held against eager's: logits, and in training the loss and the gradients, those of a layer as
one tensor, by the rule of :mod:`benchmarks.compile.speed`. f32 forbids tf32, bf16 is autocast.

Then the columns take turns in random order, stream by stream; a ratio is the median one of neighbouring streams. Each
line of OUT is one model in one mode and one precision; the same command continues a record. The command, the machine
and the table are in the file of the same name that ends in ``.json``; the table comes last.
"""

from __future__ import annotations

import argparse
import math
import random
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import msgspec
import torch
from benchmarks.compile.jobs import Job, add_options, have_done, lacks_memory
from benchmarks.compile.speed import TOLERANCE, distance, precision_of, ratio, synchronise
from benchmarks.compile.subjects import Float64, Subject, moved
from benchmarks.models.records import command_of, environment_of
from torch import Tensor, nn
from torch._dynamo.utils import counters, get_compilation_metrics

from opsmith.compile.report import collected
from opsmith.suites.models import Models
from opsmith.suites.models.workload import WithLoss, Workload, without_dropout

MODELS = ("bert_base", "gpt2", "llama")
#: Of lengths: shortest, longest, median, and the standard deviation of their logarithm.
LENGTHS, SMALL_LENGTHS = (16, 1024, 128, 0.9), (4, 16, 8, 0.5)
#: A text that is padded has at least this share of its batch's length.
LEAST_SHARE = 0.5
#: Streams of each column, as many of them as fit in these seconds.
ROUNDS, ROUNDS_S = (3, 9), 2.0


class Batch(NamedTuple):
    """Inputs of one call, on the CPU, and how many tokens of text they are."""

    inputs: dict[str, Any]
    tokens: int


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one mode and one precision.

    Attributes:
        model: its name.
        mode: ``inference`` or ``training``.
        precision: ``f32`` or ``bf16``.
        shapes: texts and tokens of each, batch by batch.
        tokens: of texts in the stream, without padding.
        graphs: column -> graphs of Dynamo that were compiled, over the whole stream and its repetitions.
        recompiled: column -> those of them that were compiled after the first batch.
        causes: column -> why, a line for each.
        compile_s: column -> seconds of the calls in which graphs were compiled.
        stream_ms: column -> median milliseconds of a stream, after everything has been compiled.
        over: column -> median ratio of eager's time to its time.
        peak_mib: column -> peak device memory of a stream; empty on a CPU.
        wrong: column -> largest relative distance from eager, of the batches whose results leave it.
        wrong_batches: column -> how many these are.
        fallbacks: why graphs were compiled without opsmith's part.
        undone: passes that were taken back.
        note: why there is nothing, in one line.
    """

    model: str
    mode: str
    precision: str
    shapes: list[tuple[int, int]] = []
    tokens: int = 0
    graphs: dict[str, int] = {}
    recompiled: dict[str, int] = {}
    causes: dict[str, list[str]] = {}
    compile_s: dict[str, float] = {}
    stream_ms: dict[str, float] = {}
    over: dict[str, float] = {}
    peak_mib: dict[str, float] = {}
    wrong: dict[str, float] = {}
    wrong_batches: dict[str, int] = {}
    fallbacks: list[str] = []
    undone: list[str] = []
    note: str = ""

    @property
    def is_one_compilation(self) -> bool:
        """Whether opsmith compiled for the first batch alone, with its own part."""
        return self.recompiled.get("opsmith") == 0 and not self.fallbacks and not self.undone


def drawn_shapes(*, batches: int, tokens: int, seed: int, small: bool) -> list[tuple[int, int]]:
    """Texts and tokens of each, for each batch.

    No batch is a single text, for which Dynamo compiles anew whatever it is told, nor has as many texts as tokens:
    sizes that are equal in the first batch would be one symbol.
    """
    shortest, longest, median, deviation = SMALL_LENGTHS if small else LENGTHS
    draws = random.Random(seed)  # noqa: S311 - no secret
    shapes = []
    for _ in range(batches):
        length = min(longest, max(shortest, round(draws.lognormvariate(math.log(median), deviation))))
        texts = max(2, tokens // length)
        shapes.append((texts + (texts == length), length))
    return shapes


def workload_of(model: str, *, small: bool, layers: int) -> Workload:
    """A model of the suite ``models`` that takes every length of the stream.

    Args:
        model: its name.
        small: at a size for machines without a GPU.
        layers: at most; opsmith's own models keep theirs.
    """
    longest = (SMALL_LENGTHS if small else LENGTHS)[1]
    torch.manual_seed(0)
    workload = Models().workload(model, small=small)
    config: Any = getattr(workload.module, "config", None)
    if config is None:
        return workload
    config.num_hidden_layers = min(config.num_hidden_layers, layers)
    config.max_position_embeddings = max(config.max_position_embeddings, longest)
    return workload._replace(module=without_dropout(type(workload.module)(config)))


def drawn_batches(workload: Workload, shapes: Sequence[tuple[int, int]]) -> list[Batch]:
    """Tokens, and a mask where the model's own inputs have one, of torch's generator."""
    inputs = workload.draw()
    vocabulary = _vocabulary(workload.module)
    batches = []
    for texts, length in shapes:
        given = {**inputs, "input_ids": torch.randint(vocabulary, (texts, length))}
        count = texts * length
        if "attention_mask" in inputs:
            lengths = torch.randint(math.ceil(LEAST_SHARE * length), length + 1, (texts, 1))
            lengths[0] = length
            given["attention_mask"] = (torch.arange(length) < lengths).long()
            count = int(lengths.sum())
        batches.append(Batch(given, count))
    return batches


def _vocabulary(module: nn.Module) -> int:
    return next(one.num_embeddings for one in module.modules() if isinstance(one, nn.Embedding))


def measure(job: Job, options: argparse.Namespace, take_turn: Callable[[], None]) -> Measured:
    """Compile every column of one job on the stream, and time them when it is its turn."""
    mode, precision = job.parts
    try:
        with precision_of(precision, options.device):
            return _measure(job.model, mode, precision, options, take_turn)
    except Exception as exc:  # noqa: BLE001 - a model's or a compiler's, which may raise anything
        note = f"{type(exc).__name__}: {' '.join(str(exc).split())}"[:300]
        return Measured(model=job.model, mode=mode, precision=precision, note=note)


def _measure(
    model: str, mode: str, precision: str, options: argparse.Namespace, take_turn: Callable[[], None]
) -> Measured:
    small = options.sizes == "small"
    workload = workload_of(model, small=small, layers=options.layers)
    shapes = drawn_shapes(batches=options.batches, tokens=options.tokens, seed=options.seed, small=small)
    batches = drawn_batches(workload, shapes)
    module = (WithLoss(workload) if mode == "training" else workload.module).train(mode == "training")
    module.to(options.device)
    torch._dynamo.reset()
    columns = {column: _compiled(module, column) for column in options.columns.split(",")}
    _wake(options.device)
    with collected() as reports:
        seen = {
            column: _first_stream(run, module, batches, mode, precision, options.device)
            for column, run in columns.items()
            if column != "eager"
        }
        take_turn()
        streams = {
            column: _stream(run, module, mode, batches, options.device)
            for column, run in columns.items()
            if column == "eager" or not seen[column].wrong
        }
        before = _graphs()
        peaks = {column: _peak(stream, options.device) for column, stream in streams.items()}
        times = _rounds(streams, options.device)
        late = _graphs() - before
    return Measured(
        model=model,
        mode=mode,
        precision=precision,
        shapes=shapes,
        tokens=sum(one.tokens for one in batches),
        graphs={column: one.graphs for column, one in seen.items()},
        recompiled={column: one.recompiled for column, one in seen.items()},
        causes={column: one.causes for column, one in seen.items() if one.causes},
        compile_s={column: round(one.compile_s, 2) for column, one in seen.items()},
        stream_ms={column: round(statistics.median(one) * 1e3, 3) for column, one in times.items()},
        over={column: round(ratio(times["eager"], one), 4) for column, one in times.items()}
        if "eager" in times
        else {},
        peak_mib={column: peak for column, peak in peaks.items() if peak is not None},
        wrong={column: max(one.wrong) for column, one in seen.items() if one.wrong},
        wrong_batches={column: len(one.wrong) for column, one in seen.items() if one.wrong},
        fallbacks=reports.fallbacks,
        undone=[f"{one.name}: {one.undone}" for one in reports.passes if one.undone is not None],
        note=f"{late} graphs were compiled when all had been seen" if late else "",
    )


def _compiled(module: nn.Module, column: str) -> Callable[..., Any]:
    if column == "eager":
        return module
    options: Any = {"fallback_random": True} if column in {"inductor", "opsmith"} else None
    return torch.compile(module, backend=column, dynamic=True, options=options)


def _wake(device: str) -> None:
    """Import the compiler, which is no part of the first column's time."""
    torch.compile(torch.sin)(torch.ones(2, device=device))


class _Seen(NamedTuple):
    """What a column's first stream showed; see :class:`Measured`."""

    graphs: int
    recompiled: int
    causes: list[str]
    compile_s: float
    wrong: list[float]


def _first_stream(
    run: Callable[..., Any], module: nn.Module, batches: Sequence[Batch], mode: str, precision: str, device: str
) -> _Seen:
    """Run a column batch by batch, count what is compiled, and hold results against eager's."""
    from torch._inductor.utils import fresh_cache  # Not where processes fork from: it may look for a device.

    with fresh_cache():
        return _watched_stream(run, module, batches, mode, precision, device)


def _watched_stream(
    run: Callable[..., Any], module: nn.Module, batches: Sequence[Batch], mode: str, precision: str, device: str
) -> _Seen:
    graphs, compile_s, causes, wrong = [_graphs()], 0.0, [], []
    for batch in batches:
        subject = Subject(module, (), batch.inputs)
        call = results(mode)(subject, device)
        expected = call(module)
        started, known = time.perf_counter(), len(get_compilation_metrics())
        found = results(mode, through=run)(subject, device)(module)
        seconds = time.perf_counter() - started
        graphs.append(_graphs())
        if graphs[-1] > graphs[-2]:
            compile_s += seconds
            causes += [one.recompile_reason for one in get_compilation_metrics()[known:] if one.recompile_reason]
        far = distance(expected, found)
        exact = Float64(results(mode), subject, module, device)
        if not far <= TOLERANCE[precision] and not exact.is_as_near(found, expected):
            wrong.append(far)
    # The column before leaves graphs for the same code, which are tried first: not a cause of its own.
    causes = causes[-(graphs[-1] - graphs[1]) :] if graphs[-1] > graphs[1] else []
    return _Seen(graphs[-1] - graphs[0], graphs[-1] - graphs[1], causes, compile_s, wrong)


def _graphs() -> int:
    return int(counters["stats"]["unique_graphs"])


def results(mode: str, through: Callable[..., Any] | None = None) -> Any:
    """How a subject's call is made for its results, as :class:`~benchmarks.compile.subjects.Float64` takes it.

    Args:
        mode: ``inference`` or ``training``.
        through: calls the module; None for itself.
    """

    def made(subject: Subject, device: str, dtype: torch.dtype | None = None) -> Callable[[nn.Module], list[Tensor]]:
        inputs = moved(dict(subject.kwargs), device, dtype)

        def run(module: nn.Module) -> list[Tensor]:
            module.zero_grad(set_to_none=True)
            with torch.set_grad_enabled(mode == "training"):
                output = (module if through is None else through)(**inputs)
            if mode == "inference":
                return [_logits(output)]
            output[0].backward()
            return [one.detach() for one in output] + _gradients(module)

        return run

    return made


def _logits(output: Any) -> Tensor:
    logits: Tensor = output if isinstance(output, Tensor) else output.logits
    return logits


def _gradients(module: nn.Module) -> list[Tensor]:
    """Those of each layer as one tensor: a bias of attention's keys has a gradient that is roundings alone."""
    layers: dict[str, list[Tensor]] = {}
    for name, parameter in module.named_parameters():
        if parameter.grad is not None:
            layers.setdefault(name.rpartition(".")[0], []).append(parameter.grad.flatten())
            parameter.grad = None
    return [torch.cat(parts) for parts in layers.values()]


def _stream(
    run: Callable[..., Any], module: nn.Module, mode: str, batches: Sequence[Batch], device: str
) -> Callable[[], None]:
    """Runs all batches with nothing around them that takes time: inputs are on the device."""
    inputs = [moved(one.inputs, device) for one in batches]
    parameters = list(module.parameters())

    def infer() -> None:
        with torch.no_grad():
            for given in inputs:
                run(**given)

    def train() -> None:
        for given in inputs:
            run(**given)[0].backward()
            for parameter in parameters:
                parameter.grad = None

    return train if mode == "training" else infer


def _peak(stream: Callable[[], None], device: str) -> float | None:
    """Of one stream, which also warms up."""
    on_gpu = torch.device(device).type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    stream()
    synchronise(device)
    return round(torch.cuda.max_memory_allocated() / 2**20, 1) if on_gpu else None


def _rounds(streams: dict[str, Callable[[], None]], device: str) -> dict[str, list[float]]:
    """Seconds of a stream of each column; they take turns in random order."""
    times: dict[str, list[float]] = {column: [] for column in streams}
    order = list(streams)
    began = time.perf_counter()
    for done in range(ROUNDS[1]):
        if done >= ROUNDS[0] and time.perf_counter() - began > ROUNDS_S:
            break
        random.shuffle(order)
        for column in order:
            synchronise(device)
            started = time.perf_counter()
            streams[column]()
            synchronise(device)
            times[column].append(time.perf_counter() - started)
    return times


def table(record: Sequence[Measured]) -> str:
    """A row for each model, mode, precision and column."""
    names = f"{'model':<10} {'mode':<9} {'precision':<9} {'column':<9} {'graphs':>6} {'again':>5} {'compile s':>9} "
    lines = [names + f"{'tokens/s':>11} {'x eager':>8} {'MiB':>9} wrong"]
    for one in record:
        for column in dict.fromkeys((*one.stream_ms, *one.graphs)):
            ms, peak = one.stream_ms.get(column), one.peak_mib.get(column)
            lines.append(
                f"{one.model:<10} {one.mode:<9} {one.precision:<9} {column:<9} "
                f"{one.graphs.get(column, '-'):>6} {one.recompiled.get(column, '-'):>5} "
                f"{one.compile_s.get(column, '-'):>9} {f'{one.tokens / ms * 1e3:,.0f}' if ms else '-':>11} "
                f"{one.over.get(column, '-'):>8} {'-' if peak is None else f'{peak:,.0f}':>9} "
                f"{one.wrong_batches.get(column, 0)}"
            )
        lines.extend(f"  {line}" for line in (one.note, *one.fallbacks, *one.undone) if line)
    compiled = [one for one in record if "opsmith" in one.recompiled]
    single = sum(one.is_one_compilation for one in compiled)
    lines.append(f"opsmith compiled for the first batch alone in {single} of {len(compiled)}")
    return "\n".join(lines)


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside a record."""

    command: tuple[str, ...]
    environment: Any
    table: list[str]


def parser() -> argparse.ArgumentParser:
    """Of the command's options."""
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(made, minutes=4, timeout=300)
    made.add_argument("--device", default="cuda")
    made.add_argument("--models", default=",".join(MODELS))
    made.add_argument("--modes", default="training,inference")
    made.add_argument("--precisions", default="f32,bf16")
    made.add_argument("--columns", default="eager,inductor,opsmith")
    made.add_argument("--sizes", default="full", choices=("small", "full"))
    made.add_argument("--layers", type=int, default=6, help="of a published model, at most")
    made.add_argument("--batches", type=int, help="of the stream; default: 40, small: 6")
    made.add_argument("--tokens", type=int, help="of a batch, about; default: 2,048, small: 64")
    made.add_argument("--seed", type=int, default=0, help="of lengths")
    return made


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command's options, with defaults that hang on the sizes."""
    options = parser().parse_args(arguments)
    small = options.sizes == "small"
    options.batches = options.batches or (6 if small else 40)
    options.tokens = options.tokens or (64 if small else 2048)
    return options


def main() -> int:
    """Measure, and print the table last; fails where a result is wrong or opsmith compiled more than once."""
    options = parsed()
    jobs = [
        Job(model, (mode, precision))
        for mode in options.modes.split(",")
        for precision in options.precisions.split(",")
        for model in options.models.split(",")
    ]
    record = have_done(jobs, options, measure, _died, Measured, _crowded)
    facts = Facts(
        command=command_of("benchmarks.compile.lengths"),
        environment=environment_of(options.device),
        table=table(record).splitlines(),
    )
    options.out.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    print(table(record))
    return int(any(one.wrong or not one.is_one_compilation for one in record))


def _crowded(line: Measured) -> bool:
    return lacks_memory(line.note)


def _died(job: Job, note: str) -> Measured:
    mode, precision = job.parts
    return Measured(model=job.model, mode=mode, precision=precision, note=note)


if __name__ == "__main__":
    sys.exit(main())
