"""What compiling a model comes to: graph breaks, guards, recompilations, passes, launches, bytes and time."""

from __future__ import annotations

import contextlib
import functools
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol

import msgspec
import torch

from opsmith.compile.replay.replayed import RECORDED_AT
from opsmith.compile.report import GraphReport, PassReport, collected
from opsmith.compile.work import CompiledBytes, Work, eager_work, profiled_launches
from opsmith.trials.book import Trial

#: Keeps nothing on disk, so that every pass runs, and lets the profiler see generated kernels on a CPU.
_SETTINGS: Mapping[str, Any] = {"force_disable_caches": True, "cpp.enable_kernel_profile": True}


#: The backend without passes, kernels and CUDA graphs of ours, and with Inductor's own rule for layouts.
ALONE: Mapping[str, Any] = {"passes": "none", "kernels": "none", "graphs": "off", "layout_optimization": True}


class GraphBreak(msgspec.Struct, frozen=True, kw_only=True):
    """A place where one graph ends and the next one begins.

    Attributes:
        reason: Dynamo's, its first line.
        file: of the model's source.
        line: in it.
        function: around it.
    """

    reason: str
    file: str
    line: int
    function: str


class Compilation(msgspec.Struct, frozen=True, kw_only=True):
    """One compilation of a Python frame.

    Attributes:
        frame: function and source line.
        guards: checks of each later call.
        seconds: that it took.
        cause: why it was not the first one of its frame: the guard that failed; else None.
    """

    frame: str
    guards: int
    seconds: float
    cause: str | None


class PassSummary(msgspec.Struct, frozen=True, kw_only=True):
    """What a pass did to all graphs.

    Attributes:
        name: of the pass.
        stage: ``traced`` or ``lowered``.
        graphs: that it saw.
        fired: how often it rewrote something.
        undone: why it was taken back, once for each reason.
        differs: where results may differ from those of eager and of Inductor alone by more than rounding, or None.
        seconds: that it took.
    """

    name: str
    stage: str
    graphs: int
    fired: int
    undone: list[str]
    differs: str | None
    seconds: float


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What ``opsmith explain`` prints.

    Attributes:
        model: its name.
        mode: ``infer`` or ``train``.
        device: torch device string.
        graph_breaks: in the order of the calls.
        guards: kind -> number, over all frames.
        compilations: of all calls, in their order.
        passes: in the order in which they run.
        fallbacks: why graphs were compiled without opsmith's part.
        graphs: what became of CUDA graphs, in the order of the decisions.
        trials: what ways of making a call take on this device, each call once.
        work: ``eager``, ``inductor`` (without passes and kernels of ours) and ``opsmith`` -> one call's work.
        first_call_s: the same -> seconds of the first call, with compilation.
    """

    model: str
    mode: str
    device: str
    graph_breaks: list[GraphBreak]
    guards: dict[str, int]
    compilations: list[Compilation]
    passes: list[PassSummary]
    fallbacks: list[str]
    graphs: list[GraphReport]
    trials: list[Trial]
    work: dict[str, Work]
    first_call_s: dict[str, float]

    @property
    def recompilations(self) -> list[Compilation]:
        """Compilations of what had been compiled."""
        return [one for one in self.compilations if one.cause is not None]


class Progress(Protocol):
    """Told what goes on."""

    def stage(self, name: str, total: int) -> None:
        """A stage of ``total`` steps begins; 0 where nobody knows."""
        ...


#: Runs a module, or its compiled form, on one set of inputs.
Run = Callable[[Callable[..., Any]], object]


def explain(
    module: torch.nn.Module,
    runs: Sequence[Run],
    *,
    model: str,
    mode: Literal["infer", "train"],
    device: str,
    options: Mapping[str, Any],
    progress: Progress,
) -> Explanation:
    """Compile a model and say what came of it.

    Args:
        module: on its device.
        runs: calls of it. The first is counted; those after it may make Dynamo compile again.
        model: its name.
        mode: what the calls do.
        device: torch device string.
        options: of the backend.
        progress: told what goes on.

    Raises:
        Exception: whatever the model raises.
    """
    kind = torch.device(device).type
    progress.stage("eager", 0)
    started = time.perf_counter()
    runs[0](module)
    seconds = {"eager": time.perf_counter() - started}
    work = {"eager": eager_work(lambda: runs[0](module), kind)}
    progress.stage("graphs and guards", 0)
    guards = _guards(module, runs[0])
    for name, chosen in (("inductor", ALONE), ("opsmith", options)):
        progress.stage(f"compile with {name}", 0)
        with collected() as reports, _fresh_dynamo():
            compiled, moved = counted(module, chosen)
            started = time.perf_counter()
            runs[0](compiled)
            seconds[name] = time.perf_counter() - started
            bytes_moved = moved.bytes_moved
            launches = profiled_launches(functools.partial(runs[0], compiled), kind)
            work[name] = Work(launches=launches, bytes_moved=bytes_moved)
            if name == "opsmith":
                progress.stage("further calls", 0)
                for _ in range(RECORDED_AT):
                    runs[0](compiled)  # One of these decides about CUDA graphs.
                for run in runs[1:]:
                    run(compiled)
                breaks, compilations = _graph_breaks(), _compilations()
    return Explanation(
        model=model,
        mode=mode,
        device=device,
        graph_breaks=breaks,
        guards=guards,
        compilations=compilations,
        passes=summarise(reports.passes),
        fallbacks=list(reports.fallbacks),
        graphs=list(reports.graphs),
        trials=list({trial.line(): trial for trial in reports.trials}.values()),
        work=work,
        first_call_s={name: round(value, 3) for name, value in seconds.items()},
    )


def counted(module: torch.nn.Module, options: Mapping[str, Any]) -> tuple[Callable[..., Any], CompiledBytes]:
    """A module that its first call compiles with these options, and the bytes that each of its calls then moves."""
    moved = CompiledBytes()
    settings = {**_SETTINGS, **options, "_post_fusion_custom_pass": moved}
    return torch.compile(module, backend="opsmith", options=settings), moved


@contextlib.contextmanager
def _fresh_dynamo() -> Iterator[None]:
    """Nothing compiled before, and nothing left behind."""
    torch._dynamo.reset()
    torch._dynamo.utils.clear_compilation_metrics()
    torch._dynamo.utils.graph_break_reasons.clear()
    try:
        yield
    finally:
        torch._dynamo.reset()


def _guards(module: torch.nn.Module, run: Run) -> dict[str, int]:
    """The guards of a call by kind, most frequent first."""
    counted: Counter[str] = Counter()

    def count(*args: Any, **kwargs: Any) -> Any:
        found = torch._dynamo.explain(module)(*args, **kwargs)
        counted.update(guard.create_fn_name() for guard in found.out_guards)
        return module(*args, **kwargs)

    with _fresh_dynamo():
        run(count)
    return dict(counted.most_common())


def _graph_breaks() -> list[GraphBreak]:
    found: dict[tuple[str, str, int], GraphBreak] = {}
    for one in torch._dynamo.utils.graph_break_reasons:
        if not one.user_stack:
            continue
        place = one.user_stack[-1]
        reason = str(one.reason).splitlines()[0].removesuffix(".")
        key = (reason, place.filename, place.lineno or 0)
        found[key] = GraphBreak(reason=reason, file=place.filename, line=place.lineno or 0, function=place.name)
    return list(found.values())


def _compilations() -> list[Compilation]:
    return [
        Compilation(
            frame=f"{one.co_name} ({one.co_filename}:{one.co_firstlineno})",
            guards=one.guard_count or 0,
            seconds=round(one.entire_frame_compile_time_s or 0.0, 3),
            cause=_first_line(one.recompile_reason),
        )
        for one in torch._dynamo.utils.get_compilation_metrics()
        if one.co_name is not None
    ]


def _first_line(reason: str | None) -> str | None:
    """``0/0: tensor 'x' size mismatch ...`` without the number of the compilation before."""
    if not reason:
        return None
    line = reason.strip().splitlines()[0]
    return line.partition(": ")[2] or line


def summarise(reports: Sequence[PassReport]) -> list[PassSummary]:
    """One row for each pass, in the order of their first runs, traced ones first."""
    names: dict[tuple[str, str], list[PassReport]] = {}
    for one in reports:
        names.setdefault((one.stage, one.name), []).append(one)
    ordered = sorted(names.items(), key=lambda item: item[0][0] != "traced")
    return [
        PassSummary(
            name=name,
            stage=stage,
            graphs=len(runs),
            fired=sum(run.fired for run in runs),
            undone=sorted({run.undone for run in runs if run.undone}),
            differs=runs[0].differs,
            seconds=round(sum(run.seconds for run in runs), 4),
        )
        for (stage, name), runs in ordered
    ]
