"""Real models under PyTorch's default flags: eager, enabled kernels, Inductor and the backend opsmith, side by side.

    python -m benchmarks.compile.models OUT.jsonl --device cuda [--ops 'llama*,vit_large'] [--minutes 20]
        [--precisions bf16,f32] [--modes inference,training] [--sizes full] [--timeout 400] [--jobs 6]
        [--columns eager,inductor,reduce-overhead,opsmith]
    python -m benchmarks.compile.models OUT.jsonl --device cuda --ours enabled --columns eager,enabled,flag-gems

Precision is the dtype of the parameters and inputs, flags are as torch sets them. Training is a step under autocast in
bf16 with parameters in float32 and fused AdamW. Each model is built once in a process of its own and compiled by every
column; then the columns take turns in random order, block by block. A time is the median over blocks, and a gain the
median ratio of the best other column's neighbouring block to that of the column ``--ours``. Before it is timed a column
is called ``WARM_UP`` times. ``error`` is the distance of the first results from those of a model of more digits
(float32 for bf16, float64 for float32), relative to their length; of training, of the loss. A decoder's cache is its
column's own.

The columns ``enabled`` and ``flag-gems`` are eager mode while ``opsmith.enable()`` or FlagGems has its kernels
installed, for the length of their blocks only. For ``enabled`` all kernels are called once first, so that they are
compiled; when it is the model's turn the calls of its classes are tried out, for ``--settle`` seconds at most, until
nothing is undecided. That is the state of a machine which has met the model before, or whose GPU has a shipped table.

Each line of OUT is one model in one mode and one precision; the same command continues a record. The table comes last:
milliseconds of each column, the gain of ``--ours`` over the best other one, seconds of the first call, peak memory.
"""

from __future__ import annotations

import argparse
import copy
import itertools
import math
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from fnmatch import fnmatchcase
from typing import Any

import msgspec
import torch
from benchmarks.compile.jobs import Job, add_options, have_done, lacks_memory
from benchmarks.compile.real_models import MODELS, Called, Place, State
from benchmarks.compile.speed import blocks_in_turns, ratio, synchronise
from benchmarks.models.records import command_of, environment_of
from torch import Tensor, nn

import opsmith
from opsmith.compile.report import collected
from opsmith.dispatch.activity import ServedClass
from opsmith.dispatch.choice.choosing import Allowance

#: The column of compiled models, of enabled kernels, and of another library's kernels.
COMPILED, ENABLED, FLAG_GEMS = "opsmith", "enabled", "flag-gems"
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
#: Of more digits than the dtype that is timed.
WIDER = {torch.bfloat16: torch.float32, torch.float32: torch.float64}
#: Calls before a column is timed.
WARM_UP = 15
#: Blocks of each column, and how long one lasts at least.
BLOCKS, BLOCK_S = 9, 0.06
LEARNING_RATE = 1e-5

Run = Callable[[], Tensor]


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """One model in one mode and one precision.

    Attributes:
        model: its name.
        mode: ``inference`` or ``training``.
        precision: ``bf16`` or ``f32``; of training, autocast in bf16.
        ms: column -> median milliseconds of a call, or of a step.
        over: column -> median ratio of its time to that of the column in ``ours``.
        error: column -> distance of its results from those of a model of more digits.
        first_s: column -> seconds of the first call.
        peak_mib: column -> peak device memory of a call after the first, without what other columns hold. What a CUDA
            graph keeps is in it, and so are weights that all columns share.
        notes: column -> why it was not timed.
        graphs: what became of the CUDA graphs of the column opsmith.
        passes: its passes that fired -> how often.
        trials: what it tried out.
        served: the classes of calls that enabled kernels answer, with eager's time and theirs.
        left: how many classes were left to PyTorch.
        note: why there is nothing, in one line.
        ours: the column whose gain is told.
    """

    model: str
    mode: str
    precision: str
    ours: str = COMPILED
    ms: dict[str, float] = {}
    over: dict[str, float] = {}
    error: dict[str, float] = {}
    first_s: dict[str, float] = {}
    peak_mib: dict[str, float] = {}
    notes: dict[str, str] = {}
    graphs: list[str] = []
    passes: dict[str, int] = {}
    trials: list[str] = []
    served: list[str] = []
    left: int = 0
    note: str = ""

    @property
    def gain(self) -> float | None:
        """Over the best other column."""
        others = {column: ms for column, ms in self.ms.items() if column != self.ours}
        return self.over[min(others, key=others.__getitem__)] if others and self.ours in self.ms else None


def measure(job: Job, options: argparse.Namespace, take_turn: Callable[[], None]) -> Measured:
    """Compile every column of one job, and time them when it is its turn."""
    mode, precision = job.parts
    try:
        return _measure(job.model, mode, precision, options, take_turn)
    except Exception as exc:  # noqa: BLE001 - a model's, which may raise anything
        return Measured(model=job.model, mode=mode, precision=precision, note=_one_line(exc))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:300]


def _measure(
    model: str, mode: str, precision: str, options: argparse.Namespace, take_turn: Callable[[], None]
) -> Measured:
    torch._dynamo.config.recompile_limit = 64  # All columns compile the same code.
    is_training = mode == "training"
    dtype = torch.float32 if is_training else DTYPES[precision]
    place = Place(options.device, dtype, options.sizes == "small")

    def build(dtype: torch.dtype) -> Called:
        torch.manual_seed(0)
        return MODELS[model](place._replace(dtype=dtype))

    called = build(dtype)
    if is_training and called.loss is None:
        return Measured(model=model, mode=mode, precision=precision, note="it has no loss")
    notes = dict[str, str]()
    exact = None if is_training else _exact(called, build, dtype, notes)
    shared = _allocated(options.device)
    runs: dict[str, Run] = {}
    error, first_s, peak_mib = dict[str, float](), dict[str, float](), dict[str, float]()
    graphs, passes, trials = list[str](), dict[str, int](), dict[str, None]()
    for column in options.columns.split(","):
        synchronise(options.device)
        held = _allocated(options.device) - shared
        started = time.perf_counter()
        with collected() as reports, _kernels_compiled(column):
            try:
                run = _run(called, column, is_training=is_training)
                first = run().detach()
                synchronise(options.device)
                first_s[column] = round(time.perf_counter() - started, 2)
                if is_training:
                    error[column] = first.item()
                elif exact is not None:
                    error[column] = _error(first, exact)
                for _ in range(WARM_UP):
                    run()
                peak_mib |= _peak(column, run, options.device, held)
                runs[column] = run
            except Exception as exc:  # noqa: BLE001 - a compiler's, which may raise anything
                notes[column] = _one_line(exc)
        if column == COMPILED:
            graphs = [one.line() for one in reports.graphs]
            trials = dict.fromkeys(one.line() for one in reports.trials)
            for one in reports.passes:
                if one.fired:
                    passes[one.name] = passes.get(one.name, 0) + one.fired
            notes |= dict(
                itertools.islice({f"pass {one.name}": one.undone for one in reports.passes if one.undone}.items(), 4)
            )
    take_turn()
    served, left = settled(runs[ENABLED], options.settle) if ENABLED in runs else ([], 0)
    times = blocks_in_turns(runs, options.device, blocks=options.blocks, block_s=BLOCK_S, around=_installed)
    ours = times.get(options.ours)
    over = {} if ours is None else {column: round(ratio(blocks, ours), 4) for column, blocks in times.items()}
    return Measured(
        model=model,
        mode=mode,
        precision=precision,
        ours=options.ours,
        ms={column: round(statistics.median(blocks) * 1e3, 4) for column, blocks in times.items()},
        over=over,
        error=error,
        first_s=first_s,
        peak_mib=peak_mib,
        notes=notes,
        graphs=graphs,
        passes=passes,
        trials=list(trials),
        served=served,
        left=left,
    )


def _kernels_compiled(column: str) -> AbstractContextManager[object]:
    """All kernels answer at first, so that those of a column are compiled."""
    return opsmith.enabled(choose="all") if column == ENABLED else _installed(column)


def settled(run: Run, seconds: float) -> tuple[list[str], int]:
    """Enable kernels and call until trials decide nothing more; what they decided."""
    Allowance.START_S = seconds
    opsmith.enable(choose="measured", wait=True)
    decided, ends = -1, time.perf_counter() + seconds
    for _ in range(2):  # A class is tried at its second call.
        run()
    while decided < (decided := len(_classes())) and time.perf_counter() < ends:
        run()
    found = _classes()
    served = [f"{op} {one.text}: {one.eager_us} -> {one.kernel_us} us" for op, one in found if one.served]
    return served, len(found) - len(served)


def _classes() -> list[tuple[str, ServedClass]]:
    return [(op.op, one) for op in opsmith.active().ops for one in op.classes]


@contextmanager
def _installed(column: str) -> Iterator[None]:
    """What is held during a block: the kernels that stay enabled are those of their own column."""
    with ExitStack() as stack:
        if column != ENABLED:
            stack.enter_context(opsmith.disabled())
        if column == FLAG_GEMS:
            import flag_gems

            stack.enter_context(flag_gems.use_gems())
        yield


def _exact(
    called: Called, build: Callable[[torch.dtype], Called], dtype: torch.dtype, notes: dict[str, str]
) -> Tensor | None:
    """Results with more digits, of the same weights and inputs; None and a note where an op knows no such dtype."""
    wide = build(WIDER[dtype])
    wide.module.load_state_dict(called.module.state_dict())
    try:
        with torch.no_grad():
            return wide.call(wide.module, {})
    except RuntimeError as exc:  # Grouped products take no float64.
        notes["error"] = _one_line(exc)
        return None


def _error(found: Tensor, exact: Tensor) -> float:
    difference = (found.to(exact.dtype) - exact).norm() / exact.norm()
    return float(f"{difference.item():.3g}")


def _run(called: Called, column: str, *, is_training: bool) -> Run:
    if not is_training:
        compiled, state = _compiled(called.module, column), State()

        def infer() -> Tensor:
            with torch.no_grad(), _step(column):
                return called.call(compiled, state)

        return infer
    module = copy.deepcopy(called.module).train()
    compiled, loss = _compiled(module, column), called.loss
    assert loss is not None
    device = next(module.parameters()).device.type
    optimizer = torch.optim.AdamW(module.parameters(), lr=LEARNING_RATE, fused=device == "cuda")

    def step() -> Tensor:
        with _step(column):
            with torch.autocast(device, dtype=torch.bfloat16):
                value = loss(compiled)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return value

    return step


@contextmanager
def _step(column: str) -> Iterator[None]:
    """Inductor's CUDA graphs write over the results of the step before."""
    if column == "reduce-overhead":
        torch.compiler.cudagraph_mark_step_begin()
    yield


def _compiled(module: nn.Module, column: str) -> Callable[..., Any]:
    if column in {"eager", ENABLED, FLAG_GEMS}:
        return module
    if column == "inductor":
        return torch.compile(module)
    if column in torch._inductor.list_mode_options():
        return torch.compile(module, mode=column)
    return torch.compile(module, backend=column)


def _allocated(device: str) -> int:
    return torch.cuda.memory_allocated() if device.startswith("cuda") else 0


def _peak(column: str, run: Run, device: str, held: int) -> dict[str, float]:
    if not device.startswith("cuda"):
        return {}
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return {column: round((torch.cuda.max_memory_allocated() - held) / 2**20, 1)}


def table(record: Sequence[Measured], columns: Sequence[str]) -> str:
    """A row for each line of a record, and the geomean of the gains by mode and precision."""
    lines = [
        f"{'model':<30} {'mode':<9} {'':<5}{''.join(f'{one:>16}' for one in columns)}  gain  first call s, peak MiB"
    ]
    for one in sorted(record, key=lambda one: (one.mode, one.precision, one.model)):
        cells = "".join(f"{one.ms[column]:>16.3f}" if column in one.ms else f"{'-':>16}" for column in columns)
        gain = "  - " if one.gain is None else f"{one.gain:.3f}"
        more = [
            " ".join(f"{found.get(column, math.nan):.0f}" for column in columns)
            for found in (one.first_s, one.peak_mib)
        ]
        lines.append(f"{one.model:<30} {one.mode:<9} {one.precision:<5}{cells}  {gain} {', '.join(more)} {one.note}")
    for key, group in itertools.groupby(sorted(record, key=_group), key=_group):
        gains = [one.gain for one in group if one.gain is not None]
        if gains:
            mean = math.exp(statistics.fmean(map(math.log, gains)))
            lines.append(f"{' '.join(key)}: geomean of {len(gains)} gains {mean:.3f}, least {min(gains):.3f}")
    return "\n".join(lines)


def _group(one: Measured) -> tuple[str, str]:
    return one.mode, one.precision


def main() -> int:
    """Time models and print the table last."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser, minutes=20, timeout=400)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--ops", default="*", help="models: wildcards with commas between them")
    parser.add_argument("--modes", default="inference")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--columns", default="eager,inductor,reduce-overhead,opsmith")
    parser.add_argument("--ours", default=COMPILED, choices=(COMPILED, ENABLED), help="the column whose gain is told")
    parser.add_argument("--blocks", type=int, default=BLOCKS, help="of each column")
    parser.add_argument("--settle", type=float, default=60, help="seconds that trials of enabled kernels may take")
    parser.add_argument("--sizes", default="full", choices=("small", "full"))
    options = parser.parse_args()
    names = [name for name in MODELS if any(fnmatchcase(name, pattern) for pattern in options.ops.split(","))]
    parts = itertools.product(options.modes.split(","), options.precisions.split(","))
    jobs = [Job(name, part) for part, name in itertools.product(parts, names)]
    record = have_done(jobs, options, measure, _died, Measured, lambda line: lacks_memory(line.note))
    shown = table(record, options.columns.split(","))
    facts = {
        "command": command_of("benchmarks.compile.models"),
        "environment": environment_of(options.device),
        "table": shown.splitlines(),
    }
    options.out.with_suffix(".json").write_bytes(msgspec.json.format(msgspec.json.encode(facts), indent=1) + b"\n")
    print(shown)
    return 0


def _died(job: Job, note: str) -> Measured:
    mode, precision = job.parts
    return Measured(model=job.model, mode=mode, precision=precision, note=note)


if __name__ == "__main__":
    sys.exit(main())
