"""Every sample of torch's OpInfos through opsmith's passes and through its backend, against eager mode.

    python -m tests.differential.opinfo --dtype f32 --device cpu --jobs 2 -o opinfo.json

A sample is an op's call with inputs of torch's own. It is made by eager mode and by a compiled function, and both
must agree: in outputs, in what inputs hold afterwards, in gradients, in the same once more after every output was
written to (an output that shares memory with an input of which eager's is a copy shows here), and in a second call.
An op's first sample is also made without gradients, as a method and in place.

Each sample runs in ATen, on graphs as Inductor has them when our passes run: after its decompositions, its
partitioning and its passes over joint graphs (``--graphs lowered`` leaves those out, and more is left to our passes).
Where a pass changed a graph, and for each op's first sample, Inductor compiles it too, by ``backend="opsmith"``. A
graph that no pass changed is the graph that Inductor gets without opsmith, so what Inductor makes of it is the same
by construction.

What differs from eager mode is run again without passes. If that fails in the same way, the difference is Inductor's
(or its decompositions'), and ``opinfo_known.py`` must give the reason; all else is a failure.
"""

from __future__ import annotations

import argparse
import collections
import contextlib
import fnmatch
import functools
import itertools
import json
import multiprocessing
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import torch
from tests.differential.opinfo_known import KNOWN, UNINITIALISED
from tests.graphs import in_aten
from torch import Tensor, fx
from torch._functorch._aot_autograd.utils import make_boxed_func
from torch._guards import detect_fake_mode
from torch._inductor.compile_fx import compile_fx
from torch._inductor.virtualized import V
from torch.testing._comparison import default_tolerances
from torch.testing._internal.opinfo.core import OpInfo, SampleInput
from torch.utils._pytree import TreeSpec, tree_flatten, tree_leaves, tree_map

from opsmith.compile import choose_passes
from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.manager import run_passes
from opsmith.compile.report import PassReport, collected
from opsmith.compile.shipped import kernel_decompositions
from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.seeds import derive_seed
from opsmith.suites.opinfo import _declared_tolerance, op_infos, seed_everything

#: How graphs run: in ATen, before or after Inductor's passes over joint graphs; compiled by Inductor.
LOWERED, JOINT, INDUCTOR = "lowered", "joint", "inductor"
#: Which samples Inductor compiles: an op's first one, with the first one for each set of passes that changed
#: something; those with all that a pass changed; all; none.
INDUCTOR_WHEN = ("first", "changed", "all", "none")

#: Workers that an op may kill or hang before it is given up.
MAX_LOSSES = 6


class Case(NamedTuple):
    """One call of an op.

    Attributes:
        name: of the OpInfo.
        number: of the sample.
        variant: which function of the OpInfo's is called, and how.
        function: what is called.
        arguments: the first one, the others, and those by keyword.
        gradients: whether they are compared.
        processed: makes of outputs those that have gradients.
        tolerance: rtol and atol that the OpInfo declares, or None.
    """

    name: str
    number: int
    variant: str
    function: Callable[..., Any]
    arguments: tuple[Any, tuple[Any, ...], dict[str, Any]]
    gradients: bool
    processed: Callable[[Any], Any] | None = None
    tolerance: tuple[float, float] | None = None


class Seen(NamedTuple):
    """What there is to see of a function that was called; tensors are copies.

    Attributes:
        structure: of the outputs.
        parts: lists of leaves by what they are.
        written: which outputs could be written to.
    """

    structure: TreeSpec
    parts: dict[str, list[Any]]
    written: tuple[bool, ...]


class Verdict(NamedTuple):
    """How a case fared in one mode.

    Attributes:
        problems: differences from eager mode, none where all is well.
        shared: whether the same happens without opsmith.
        reports: of every pass and graph.
    """

    problems: list[str]
    shared: bool
    reports: list[PassReport]

    @property
    def fired(self) -> dict[str, int]:
        counts: collections.Counter[str] = collections.Counter()
        for one in self.reports:
            counts[one.name] += one.fired
        return dict(+counts)

    @property
    def undone(self) -> list[str]:
        return sorted({f"{one.name}: {one.undone}" for one in self.reports if one.undone})


# ---------------------------------------------------------------- cases


def cases(name: str, dtype: torch.dtype, device: str, seed: int, first: int = 0) -> Iterator[list[Case]]:
    """The cases of one OpInfo, sample by sample from number ``first`` on."""
    info = op_infos()[name]
    _leave_seeds_to_us()
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes(torch.device(device).type)
    tolerance = _declared_tolerance(info, dtype, device)
    seed_everything(derive_seed(seed, "differential", name))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        samples = info.sample_inputs(device, dtype, requires_grad=differentiable)
        for number, sample in itertools.islice(enumerate(samples), first, None):
            variants = _variants(info, sample, differentiable=differentiable) if number == 0 else ()
            yield [
                _case(name, number, variant, function, sample, gradients=gradients, tolerance=tolerance)
                for variant, function, gradients in (("op", info.op, differentiable), *variants)
            ]


@functools.cache
def _leave_seeds_to_us() -> None:
    """Dynamo takes no function that seeds, as OpInfos of random ops do, and would run all of it in eager mode."""
    for name, module in list(sys.modules.items()):
        if name.startswith("torch.testing._internal") and "wrapper_set_seed" in vars(module):
            vars(module)["wrapper_set_seed"] = _call


def _call(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


def _case(
    name: str,
    number: int,
    variant: str,
    function: Callable[..., Any],
    sample: SampleInput,
    *,
    gradients: bool,
    tolerance: tuple[float, float] | None,
) -> Case:
    arguments = (sample.input, tuple(sample.args), dict(sample.kwargs))
    return Case(name, number, variant, function, arguments, gradients, sample.output_process_fn_grad, tolerance)


def _variants(
    info: OpInfo, sample: SampleInput, *, differentiable: bool
) -> Iterator[tuple[str, Callable[..., Any], bool]]:
    if differentiable:
        yield "no_grad", info.op, False
    if not isinstance(sample.input, Tensor):
        return
    if callable(info.method_variant):
        yield "method", info.method_variant, differentiable
    in_place = info.inplace_variant
    if callable(in_place) and not sample.broadcasts_input:
        yield "inplace", in_place, False
        yield "inplace_of_copy", functools.partial(_on_a_copy, in_place), differentiable


def _on_a_copy(function: Callable[..., Any], given: Tensor, *args: Any, **kwargs: Any) -> Any:
    return function(given.clone(), *args, **kwargs)


# ---------------------------------------------------------------- what a function does


def observe(case: Case, function: Callable[..., Any]) -> Seen:
    """Call a function with copies of a case's arguments, write to what comes out, and call it again."""
    arguments = copied(case.arguments, gradients=case.gradients)
    parts: dict[str, list[Any]] = {}
    torch.manual_seed(case.number)
    with contextlib.nullcontext() if case.gradients else torch.no_grad():
        outputs = function(*arguments)
    leaves, structure = tree_flatten(outputs)
    parts["output"], parts["input"] = _snapshot(outputs), _snapshot(arguments)
    parts["need of a gradient of output"] = [one.requires_grad for one in leaves if isinstance(one, Tensor)]
    if case.gradients:
        parts["gradient of input"] = _gradients(case, outputs, arguments)
    written = tuple(_write(one) for one in leaves)
    parts["written output"], parts["input after its outputs were written"] = _snapshot(outputs), _snapshot(arguments)
    parts["output of the second call"] = _once_more(case, function, arguments)
    return Seen(structure, parts, written)


def copied(arguments: Any, *, gradients: bool) -> Any:
    """The arguments with tensors of their own: strides, offsets and shared storages are kept."""
    storages: dict[int, torch.UntypedStorage] = {}

    def copy(value: Any) -> Any:
        if isinstance(value, torch.Generator):
            return torch.Generator(value.device).set_state(value.get_state())
        if not isinstance(value, Tensor):
            return value
        plain = value.layout is torch.strided and not (value.is_conj() or value.is_neg())
        twin = _with_its_storage(value.detach(), storages) if plain else value.detach().clone()
        return twin.requires_grad_(value.requires_grad and gradients)

    with torch.no_grad():
        return tree_map(copy, arguments)


def _with_its_storage(tensor: Tensor, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    storage = tensor.untyped_storage()
    twin = storages.setdefault(storage._cdata, storage.clone() if storage._cdata not in storages else storage)
    empty = torch.empty(0, dtype=tensor.dtype, device=tensor.device)
    return empty.set_(twin, tensor.storage_offset(), tensor.shape, tensor.stride())


def _snapshot(values: Any) -> list[Any]:
    leaves = tree_leaves(values)
    return [one.detach().clone() if isinstance(one, Tensor) else one for one in leaves]


def _gradients(case: Case, outputs: Any, arguments: Any) -> list[Tensor | None]:
    """Of the inputs that have one, for cotangents that differ from element to element."""
    wanted = outputs if case.processed is None else case.processed(outputs)
    ends = [one for one in tree_leaves(wanted) if isinstance(one, Tensor) and one.requires_grad]
    inputs = [one for one in tree_leaves(arguments) if isinstance(one, Tensor) and one.requires_grad]
    if not ends or not inputs:
        return []
    torch.manual_seed(case.number + 1)
    cotangents = [torch.randn_like(one, memory_format=torch.contiguous_format) for one in ends]
    torch.manual_seed(case.number + 2)
    return [
        None if one is None else one.detach().clone()
        for one in torch.autograd.grad(ends, inputs, cotangents, allow_unused=True)
    ]


def _write(output: Any) -> bool:
    if not isinstance(output, Tensor) or output.layout is not torch.strided or _overlaps(output):
        return False
    shared = output.detach()
    if shared.dtype is torch.bool:
        shared.logical_not_()
    else:
        shared.add_(1)
    return True


def _overlaps(tensor: Tensor) -> bool:
    """Whether elements share memory, as far as strides tell."""
    reach = 0
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size > 1 and stride <= reach:
            return True
        reach += stride * (size - 1) if size else 0
    return False


def _once_more(case: Case, function: Callable[..., Any], arguments: Any) -> list[Any]:
    torch.manual_seed(case.number)
    with contextlib.nullcontext() if case.gradients else torch.no_grad():
        try:
            return _snapshot(function(*arguments))
        except RuntimeError as exc:  # Inputs that were written to may not be good ones any more.
            return [type(exc).__name__]


# ---------------------------------------------------------------- comparison


def differences(case: Case, expected: Seen, actual: Seen) -> list[str]:
    """In what a function differs from another, one line for each part."""
    if expected.structure != actual.structure:
        return [f"structure of outputs: {actual.structure}, not {expected.structure}"]
    by_values = case.name not in UNINITIALISED
    found = []
    for part, wanted in expected.parts.items():
        if (part.startswith(("written", "input after")) or "second" in part) and expected.written != actual.written:
            continue
        if not by_values and part != "output":
            continue
        given = actual.parts[part]
        if len(given) != len(wanted):
            found.append(f"{part}: {given} instead of {wanted}")
            continue
        pairs = enumerate(zip(wanted, given, strict=True))
        problems = ((index, _difference(one, other, case, by_values=by_values)) for index, (one, other) in pairs)
        found.extend(f"{part} {index}: {problem}" for index, problem in problems if problem)
    return found


def _difference(expected: Any, actual: Any, case: Case, *, by_values: bool) -> str | None:
    if isinstance(expected, Tensor) is not isinstance(actual, Tensor):
        return _of_absent(expected, actual)
    if not isinstance(expected, Tensor):
        both_nan = expected != expected and actual != actual  # noqa: PLR0124 - a float that is not a number
        return None if both_nan or expected == actual else f"{actual} instead of {expected}"
    if (expected.shape, expected.dtype, expected.device) != (actual.shape, actual.dtype, actual.device):
        shapes = [f"{one.dtype} {tuple(one.shape)} on {one.device}" for one in (actual, expected)]
        return " instead of ".join(shapes)
    if not by_values:
        return None
    declared = case.tolerance or (0.0, 0.0)
    rtol, atol = (max(pair) for pair in zip(default_tolerances(expected), declared, strict=True))
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
    except AssertionError as exc:
        return " ".join(str(exc).split())[:300]
    return None


def _of_absent(expected: Any, actual: Any) -> str | None:
    """No gradient is a gradient of zeros."""
    present, absent = (expected, actual) if isinstance(expected, Tensor) else (actual, expected)
    return None if absent is None and not present.count_nonzero() else f"{actual} instead of {expected}"[:300]


# ---------------------------------------------------------------- both modes


def examine(case: Case, passes: Sequence[GraphPass], mode: str = JOINT) -> Verdict | None:
    """Run a case in eager mode and compiled; None if eager mode itself does not take it.

    What differs is compared with a compilation without passes as well: a difference is shared if that differs from
    eager mode too, and not from what opsmith made, unless it differs from itself.
    """
    try:
        expected = observe(case, _of_three(case.function))
    except Exception:  # noqa: BLE001 - eager mode refuses a sample in any way it likes
        return None
    reports: list[PassReport] = []
    actual = _compiled(case, passes, mode, reports)
    problems = _problems(case, expected, actual)
    if not problems:
        return Verdict([], shared=False, reports=reports)
    plain = _compiled(case, (), mode, [])
    shared = bool(_problems(case, expected, plain))
    if shared and (beside := _problems(case, plain, actual)):
        shared = bool(_problems(case, plain, _compiled(case, (), mode, [])))
        problems += [] if shared else [f"{one} (without passes)" for one in beside]
    return Verdict(problems, shared, reports)


def _problems(case: Case, expected: Seen | Exception, actual: Seen | Exception) -> list[str]:
    if isinstance(expected, Exception) and type(expected) is type(actual):
        return []
    if isinstance(actual, Exception):
        return [f"raises {type(actual).__name__}: {' '.join(str(actual).split())}"[:500]]
    if isinstance(expected, Exception):
        return [f"raises no {type(expected).__name__}"]
    return differences(case, expected, actual)


def _compiled(case: Case, passes: Sequence[GraphPass], mode: str, reports: list[PassReport]) -> Seen | Exception:
    """What a compiled function does, or raises; without passes, what torch's own makes of it."""
    torch._dynamo.reset()
    with collected() as told, torch._inductor.config.patch(fallback_random=True):
        try:
            compiled = torch.compile(_of_three(case.function), **_backend(passes, mode, reports))
            return observe(case, compiled)
        except Exception as exc:  # noqa: BLE001 - whatever compilation raises is a difference from eager mode
            return getattr(exc, "inner_exception", exc)  # Dynamo wraps what a backend raises.
        finally:
            reports.extend(told.passes)


def _of_three(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(first: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return function(first, *args, **kwargs)

    return call


def _backend(passes: Sequence[GraphPass], mode: str, reports: list[PassReport]) -> dict[str, Any]:
    if mode == LOWERED:
        return {"backend": in_aten(passes, reports)}
    if mode == JOINT:
        return {"backend": functools.partial(_after_joint_passes, passes, reports)}
    options = {"fallback_random": True}
    if not passes:
        return {"backend": "inductor", "options": options}
    names = [one.name for one in passes]
    return {"backend": "opsmith", "options": {**options, "fallback": "raise", "passes": names}}


def _after_joint_passes(
    passes: Sequence[GraphPass], reports: list[PassReport], module: fx.GraphModule, examples: Sequence[Any]
) -> Any:
    """A backend: Inductor's compilation with our passes, up to where it would write code; ATen runs the graphs."""

    def inner(lowered: fx.GraphModule, inputs: Sequence[Any], **_settings: Any) -> Callable[..., Any]:
        with V.set_fake_mode(detect_fake_mode(inputs)):
            reports.extend(run_passes(lowered.graph, passes, Stage.LOWERED))
        lowered.recompile()
        boxed: Callable[..., Any] = make_boxed_func(lowered.forward)
        return boxed

    reports.extend(run_passes(module.graph, passes, Stage.TRACED))
    module.recompile()
    compile_any: Any = compile_fx
    kernels = kernel_decompositions("measured" if passes else "none")
    return compile_any(module, examples, inner_compile=inner, decompositions=kernels)


# ---------------------------------------------------------------- one sample, one op


class Examiner:
    """Examines samples, and remembers of one op which passes Inductor has compiled after.

    Args:
        passes: those of opsmith, or what stands for them.
        graphs: ``lowered`` or ``joint``: in which mode every case runs.
        inductor: of ``INDUCTOR_WHEN``.
    """

    def __init__(self, passes: Sequence[GraphPass], *, graphs: str, inductor: str) -> None:
        self._passes = passes
        self._graphs = graphs
        self._inductor = inductor
        self._compiled: set[tuple[str, frozenset[str]]] = set()

    def record(self, of_sample: Sequence[Case]) -> dict[str, Any]:
        """How a sample fared in all variants and modes, as the line of results that it becomes."""
        started = time.perf_counter()
        counts: collections.Counter[str] = collections.Counter()
        fired: collections.Counter[str] = collections.Counter()
        problems: list[dict[str, Any]] = []
        for case in of_sample:
            verdicts = self._verdicts(case)
            counts.update(list(verdicts) or ["refused"])
            counts["uncaptured"] += any(not one.reports for one in verdicts.values())
            for mode, one in verdicts.items():
                problems += _problem_records(case, mode, one)
            fired.update(verdicts[self._graphs].fired if verdicts else {})
        first = of_sample[0]
        return {
            "op": first.name,
            "sample": first.number,
            "gradients": first.gradients,
            "counts": dict(+counts),
            "fired": dict(fired),
            "problems": problems,
            "seconds": round(time.perf_counter() - started, 3),
        }

    def _verdicts(self, case: Case) -> dict[str, Verdict]:
        verdict = examine(case, self._passes, self._graphs)
        if verdict is None:
            return {}
        compiled = examine(case, self._passes, INDUCTOR) if self._is_compiled(case, verdict.fired) else None
        return {self._graphs: verdict} | ({INDUCTOR: compiled} if compiled is not None else {})

    def _is_compiled(self, case: Case, fired: Mapping[str, int]) -> bool:
        if self._inductor in {"all", "none"}:
            return self._inductor == "all"
        changes = (case.name, frozenset(fired))
        is_new = bool(fired) and changes not in self._compiled
        self._compiled.add(changes)
        is_first = case.number == 0 and case.variant == "op"
        return is_new or is_first or (self._inductor == "changed" and bool(fired))


def _problem_records(case: Case, mode: str, verdict: Verdict) -> list[dict[str, Any]]:
    where = {"variant": case.variant, "mode": mode}
    undone = [f"the pass {one} (undone)" for one in verdict.undone]
    found = [{**where, "shared": verdict.shared, "what": verdict.problems}] if verdict.problems else []
    return found + ([{**where, "shared": False, "what": undone}] if undone else [])


def serve(connection: Connection, settings: Mapping[str, Any]) -> None:
    """Answer requests for an op's samples from a number on: a record each, then None.

    Before each sample its number is sent, so that whoever asks knows which one crashed.
    """
    _prepare()
    dtype = getattr(torch, TORCH_NAMES[settings["dtype"]])
    examiner = Examiner(choose_passes("all"), graphs=settings["graphs"], inductor=settings["inductor"])
    while (request := connection.recv()) is not None:
        name, at = request
        connection.send(at)
        try:
            for of_sample in cases(name, dtype, settings["device"], settings["seed"], at):
                if at >= settings["samples"]:
                    break
                connection.send(examiner.record(of_sample))
                at = of_sample[0].number + 1
                connection.send(at)
            else:
                connection.send({"op": name, "complete": True})
        except Exception as exc:  # noqa: BLE001 - a generator of samples may raise anything
            connection.send(_failed(name, at, f"no samples from here on: {type(exc).__name__}: {exc}"))
        connection.send(None)


def _failed(op: str, sample: int, how: str) -> dict[str, Any]:
    problem = {"variant": "", "mode": "", "shared": False, "what": [how]}
    return {"op": op, "sample": sample, "problems": [problem]}


def _prepare() -> None:
    import logging

    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    torch.set_num_threads(1)
    torch._dynamo.config.recompile_limit = 64
    torch._dynamo.config.fail_on_recompile_limit_hit = True  # It would run in eager mode, and all would be well.
    torch._inductor.config.compile_threads = 1
    torch._inductor.config.fx_graph_cache = False  # Passes that changed must run.
    torch._functorch.config.enable_autograd_cache = False


# ---------------------------------------------------------------- processes

#: Answers requests in a process of its own, by a connection and settings.
Serve: TypeAlias = Callable[[Connection, Mapping[str, Any]], None]


class Worker:
    """A process that takes one op at a time; it is replaced when it dies or takes too long for a sample."""

    def __init__(self, settings: Mapping[str, Any], serve: Serve) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, settings), daemon=True)
        self._process.start()
        theirs.close()
        self.op: str | None = None
        self.sample = 0
        self.since = time.monotonic()

    def ask(self, op: str, first: int) -> None:
        self.op, self.sample, self.since = op, first, time.monotonic()
        self.connection.send((op, first))

    def end(self) -> None:
        """Now, whatever it does: it may hang."""
        if self.op is None:
            with contextlib.suppress(OSError):
                self.connection.send(None)
            self._process.join(5)
        self._process.kill()
        self._process.join()
        self.connection.close()


class Campaign:
    """Asks workers for all samples of some ops and keeps what they answer in a file that only grows."""

    def __init__(
        self, path: Path, settings: Mapping[str, Any], *, jobs: int, limit_s: float, serve: Serve = serve
    ) -> None:
        self._file = path.open("a", encoding="utf-8")
        self._settings = settings
        self._serve = serve
        self._jobs = jobs
        self._limit_s = limit_s
        self._waiting: collections.deque[tuple[str, int]] = collections.deque()
        self._tried: set[tuple[str, int]] = set()
        self._losses: collections.Counter[str] = collections.Counter()
        self._done = 0

    def run(self, todo: Sequence[tuple[str, int]], deadline: float) -> None:
        """Until all is done, or until the deadline: a sample that runs then is not waited for."""
        self._waiting.extend(todo)
        workers = [Worker(self._settings, self._serve) for _ in range(min(self._jobs, len(todo)))]
        for worker in workers:
            self._next(worker)
        while busy := [one for one in workers if one.op is not None]:
            ready = wait([one.connection for one in busy], timeout=1.0)
            for worker in busy:
                if worker.connection in ready:
                    self._hear(worker, workers)
                elif time.monotonic() - worker.since > self._limit_s:
                    self._lost(worker, workers, "TIMEOUT")
            if time.monotonic() > deadline:
                break
        for worker in workers:
            worker.end()
        self._file.close()

    def _next(self, worker: Worker) -> None:
        worker.op = None
        if self._waiting:
            worker.ask(*self._waiting.popleft())

    def _hear(self, worker: Worker, workers: list[Worker]) -> None:
        try:
            answer = worker.connection.recv()
        except (EOFError, OSError):
            self._lost(worker, workers, "CRASHED")
            return
        if isinstance(answer, int):
            worker.sample, worker.since = answer, time.monotonic()
        elif answer is not None:
            self._keep(answer)
        else:
            self._done += 1
            if self._done % 20 == 0:
                sys.stderr.write(f"{self._done} ops done, {len(self._waiting)} wait\n")
            self._next(worker)

    def _lost(self, worker: Worker, workers: list[Worker], how: str) -> None:
        """A worker is replaced; its sample is asked once more, then left out; so is an op that goes on so."""
        op, sample = worker.op or "", worker.sample
        self._losses[op] += 1
        if (op, sample) in self._tried:
            self._keep(_failed(op, sample, how))
            sample += 1
        self._tried.add((op, sample))
        if self._losses[op] < MAX_LOSSES:
            self._waiting.appendleft((op, sample))
        else:
            self._keep(_failed(op, sample, f"given up after {MAX_LOSSES} workers were lost"))
        worker.end()
        workers[workers.index(worker)] = fresh = Worker(self._settings, self._serve)
        self._next(fresh)

    def _keep(self, record: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(record) + "\n")
        self._file.flush()


# ---------------------------------------------------------------- results


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The records that were kept so far; a line that was cut off is none."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    records = []
    for line in lines:
        with contextlib.suppress(json.JSONDecodeError):
            records.append(json.loads(line))
    return records


def remaining(names: Sequence[str], records: Sequence[Mapping[str, Any]]) -> list[tuple[str, int]]:
    """The ops that are not complete, each with the number of the sample to go on with."""
    complete = {one["op"] for one in records if one.get("complete")}
    following: dict[str, int] = {}
    for one in records:
        following[one["op"]] = max(following.get(one["op"], 0), one.get("sample", -1) + 1)
    return [(name, following.get(name, 0)) for name in names if name not in complete]


def summary(records: Sequence[Mapping[str, Any]], known: Mapping[str, str] = KNOWN) -> dict[str, Any]:
    """What the records of samples come to.

    The keys ``failures`` and ``not_listed`` must be empty; ``stale`` names ops of the known list of which every
    sample was run and none differs.
    """
    samples = [one for one in records if "sample" in one]
    problems = [{**_address(one), **problem} for one in samples for problem in one["problems"]]
    shared = sorted({one["op"] for one in problems if one["shared"]})
    counts: collections.Counter[str] = collections.Counter()
    fired: collections.Counter[str] = collections.Counter()
    for one in samples:
        counts.update(one.get("counts", {}))
        fired.update(one.get("fired", {}))
    complete = {one["op"] for one in records if one.get("complete")}
    return {
        "ops": len({one["op"] for one in samples}),
        "ops_complete": len(complete),
        "ops_with_backward": len({one["op"] for one in samples if one.get("gradients")}),
        "samples": len(samples),
        "samples_with_gradients": sum(bool(one.get("gradients")) for one in samples),
        "cases_in_aten": counts[LOWERED] + counts[JOINT],
        "cases_through_inductor": counts[INDUCTOR],
        "cases_refused_by_eager": counts["refused"],
        "cases_without_a_graph": counts["uncaptured"],
        "ops_without_a_graph": sorted({one["op"] for one in samples} - _captured(samples)),
        "fired": dict(sorted(fired.items())),
        "shared_with_inductor": {name: known.get(name) for name in shared},
        "not_listed": [one for one in problems if one["shared"] and one["op"] not in known],
        "stale": sorted(name for name in known if name in complete and name not in shared),
        "failures": [one for one in problems if not one["shared"]],
    }


def _captured(samples: Sequence[Mapping[str, Any]]) -> set[str]:
    """Ops of which Dynamo captured something in one case at least."""
    counts = ((one["op"], one.get("counts", {})) for one in samples)
    return {op for op, made in counts if made.get(LOWERED, 0) + made.get(JOINT, 0) > made.get("uncaptured", 0)}


def _address(record: Mapping[str, Any]) -> dict[str, Any]:
    return {"op": record["op"], "sample": record["sample"]}


# ---------------------------------------------------------------- command line


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; the exit status is 1 if something differs that Inductor's result does not."""
    given = _parser().parse_args(arguments)
    started = time.monotonic()
    names, lines = asked(given), given.output.with_suffix(".jsonl")
    if not given.resume:
        lines.unlink(missing_ok=True)
    settings = {name: getattr(given, name) for name in ("dtype", "device", "seed", "samples", "graphs", "inductor")}
    todo = remaining(names, read_lines(lines))
    campaign = Campaign(lines, settings, jobs=given.jobs, limit_s=given.limit)
    campaign.run(todo, started + given.seconds)
    result = summary(read_lines(lines))
    facts = facts_of(given, time.monotonic() - started, "tests.differential.opinfo")
    result = {"ops_asked": len(names), **result, "settings": settings, **facts}
    given.output.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    wrong, ran = len(result["failures"]) + len(result["not_listed"]), result["cases_in_aten"]
    sys.stderr.write(f"{ran} cases of {result['ops']} ops, {wrong} wrong: {given.output}\n")
    return int(wrong > 0 or ran == 0)


def asked(given: argparse.Namespace) -> list[str]:
    """The OpInfos that options of :func:`parser_of` name, of those that know the dtype on the device."""
    dtype, device_type = getattr(torch, TORCH_NAMES[given.dtype]), torch.device(given.device).type
    patterns = given.ops.split(",") if given.ops else ["*"]
    return [
        name
        for name, info in op_infos().items()
        if info.supports_dtype(dtype, device_type) and any(fnmatch.fnmatchcase(name, one) for one in patterns)
    ]


def parser_of(description: str | None) -> argparse.ArgumentParser:
    """The options of a campaign over OpInfos.

    Args:
        description: a module's docstring, of which the first line is shown.
    """
    parser = argparse.ArgumentParser(description=(description or "").splitlines()[0])
    parser.add_argument("-o", "--output", type=Path, required=True, help="a JSON file; lines of samples go beside it")
    parser.add_argument("--dtype", choices=sorted(TORCH_NAMES), default="f32")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--ops", default="", help="names of OpInfos, separated by commas; * stands for anything")
    parser.add_argument("--samples", type=int, default=sys.maxsize, help="of each op, at most")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=float, default=300, help="seconds that a sample may take")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="seconds after which to stop")
    parser.add_argument("--resume", action="store_true", help="go on after the samples that the file holds")
    return parser


def _parser() -> argparse.ArgumentParser:
    parser = parser_of(__doc__)
    parser.add_argument("--graphs", choices=(LOWERED, JOINT), default=JOINT, help="what ATen runs")
    parser.add_argument("--inductor", choices=INDUCTOR_WHEN, default="changed", help="which samples Inductor compiles")
    return parser


def facts_of(given: argparse.Namespace, seconds: float, module: str) -> dict[str, Any]:
    """Where a campaign ran, by what command, and how long.

    Args:
        given: its options.
        seconds: that it took.
        module: whose command line it was.
    """
    on_gpu = torch.device(given.device).type == "cuda"
    return {
        "torch": torch.__version__,
        "device_name": torch.cuda.get_device_name(given.device) if on_gpu else "cpu",
        "command": " ".join([f"python -m {module}", *sys.argv[1:]]),
        "seconds": round(seconds, 1),
    }


if __name__ == "__main__":
    sys.exit(main())
