"""Module problems and whole models through opsmith's passes, in inference and in training, against eager mode.

    python -m tests.differential.models --jobs 2 -o models.json

Subjects are opsmith's module problems (``L1/2_Softmax``) at the sizes of their ``SMALL``, and the models of the suite
``models`` at their small ones (``models/gpt2``). Each is run in inference, in evaluation mode without gradients, and
in training, with the gradients of its parameters and floating-point inputs, for two batches. Results, gradients,
buffers and what the inputs hold afterwards have to be those of eager mode.

Passes run at every size here: those that leave small products alone are told that none is small. Graphs are run by
ATen (``--code aten``), or compiled by ``backend="opsmith"`` (``--code inductor``).

Verdicts:

``agrees``    the same as eager mode, up to 1e-4 of the largest number of a tensor (a layer, for gradients and buffers)
``rounding``  not that, but no further from float64 than four times what eager mode is
``shared``    not that either, and neither without passes (by ``backend="inductor"``)
``failed``    all else, and a pass that had to be undone
``skipped``   eager mode itself cannot do it, or a package is missing
``timeout``   the subject took too long; ``memory``: too much; ``unreached``: the run's time was over
"""

from __future__ import annotations

import argparse
import collections
import copy
import fnmatch
import json
import multiprocessing
import os
import sys
import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any, NamedTuple

import torch
from tests.graphs import in_aten
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.aten.low_precision import is_low, readable
from opsmith.compile import choose_passes
from opsmith.compile.report import PassReport, collected
from opsmith.compile.traced import triangles
from opsmith.core.problems import SHIPPED_PROBLEMS, problem_files
from opsmith.core.seeds import derive_seed
from opsmith.suites.models import INFER, TRAIN, Models
from opsmith.suites.models.workload import plain, without_dropout
from opsmith.tasks.module_call import CONSTRUCTION_SEED
from opsmith.tasks.problem import ProblemFile

ATEN, INDUCTOR = "aten", "inductor"
AGREES, ROUNDING, SHARED, FAILED, SKIPPED = "agrees", "rounding", "shared", "failed", "skipped"
TIMEOUT, MEMORY, UNREACHED = "timeout", "memory", "unreached"
#: Of the largest number of a tensor; and how much further from float64 than eager mode counts as rounding.
TOLERANCE, FURTHER = 1e-4, 4.0
#: Seconds of a subject, and bytes of all workers together.
MOST_SECONDS, MOST_BYTES = 120.0, 20 << 30
#: Differences that a record quotes.
MOST_DIFFERENCES = 5
_MODELS = "models/"

#: What one run of a subject leaves, by name.
Seen = Mapping[str, Tensor]


class Skipped(Exception):
    """There is nothing to compare; the message says why."""


class Subject(NamedTuple):
    """A module with what it is called with.

    Attributes:
        module: with random weights.
        batches: arguments of its calls, positional and named.
        results: the tensors of what it returns.
        input_gradients: whether its inputs have gradients in training.
    """

    module: nn.Module
    batches: Sequence[tuple[Sequence[Any], Mapping[str, Any]]]
    results: Callable[[Any], Any]
    input_gradients: bool = True

    def moved(self, *place: Any) -> Subject:
        """A copy on another device, or with another dtype for its floating-point numbers."""

        def move(given: Tensor) -> Tensor:
            keep = isinstance(place[0], torch.dtype) and not given.is_floating_point()
            return given if keep else given.to(*place)

        return self._replace(
            module=copy.deepcopy(self.module).to(*place), batches=tree_map_only(Tensor, move, self.batches)
        )


class Verdict(NamedTuple):
    """What became of a subject in one mode; see the module's docstring."""

    verdict: str
    details: Sequence[str] = ()
    fired: Mapping[str, int] = {}


# ---------------------------------------------------------------- subjects


def subject_names() -> list[str]:
    """All problems, then all models that are no problems."""
    models = [name for name in Models().models() if not name.startswith("L4/")]
    return [*problem_files(SHIPPED_PROBLEMS), *(_MODELS + name for name in models)]


def make_subject(name: str) -> Subject:
    """A subject at its small size, the same each time.

    Raises:
        Skipped: its package is not installed.
    """
    if not name.startswith(_MODELS):
        problem = ProblemFile(problem_files(SHIPPED_PROBLEMS)[name], small=True)
        module = problem.model(problem.init_inputs(derive_seed(name, "init")), CONSTRUCTION_SEED)
        batches: list[Any] = [(problem.inputs(derive_seed(name, place)), {}) for place in range(2)]
        return Subject(without_dropout(module), batches, plain)
    model, suite = name.removeprefix(_MODELS), Models()
    missing = suite.missing(model)
    if missing is not None:
        raise Skipped(missing)
    torch.manual_seed(derive_seed(name))
    workload = suite.workload(model, small=True)
    return Subject(workload.module, [((), batch) for batch in workload.batches()[:2]], workload.results)


# ---------------------------------------------------------------- one run


def observe(subject: Subject, mode: str, compiler: Callable[[nn.Module], Any]) -> Seen:
    """Run a copy of a subject's module on all batches, as ``compiler`` makes it.

    Raises:
        Skipped: nothing in it has a gradient.
    """
    training = mode == TRAIN
    module = copy.deepcopy(subject.module).train(training).requires_grad_(training)
    call = compiler(module)
    seen: dict[str, Tensor] = {}
    for place, batch in enumerate(subject.batches):
        args, kwargs = tree_map_only(Tensor, lambda one: _given(one, leaf=training and subject.input_gradients), batch)
        torch.manual_seed(place)
        with torch.set_grad_enabled(training):
            results = [one for one in tree_leaves(subject.results(call(*args, **kwargs))) if isinstance(one, Tensor)]
        given = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Tensor)]
        found = {f"result {number}": one for number, one in enumerate(results)}
        found |= {f"input {number} afterwards": one for number, one in enumerate(given)}
        found |= {f"buffer {name}": one for name, one in module.named_buffers()}
        if training:
            found |= _gradients(results, module, given)
        seen |= {f"batch {place}: {name}": readable(one.detach()).clone() for name, one in found.items()}
    return seen


def _given(tensor: Tensor, *, leaf: bool) -> Tensor:
    return tensor.detach().clone().requires_grad_(leaf and tensor.is_floating_point() and not is_low(tensor))


def _gradients(results: Sequence[Tensor], module: nn.Module, inputs: Sequence[Tensor]) -> dict[str, Tensor]:
    """Of a sum of all results with fixed weights of both signs."""
    leaves: dict[str, Tensor] = {f"gradient of {name}": one for name, one in module.named_parameters()}
    leaves |= {f"gradient of/input {number}": one for number, one in enumerate(inputs) if one.requires_grad}
    losses = [(_weights(one) * one).sum() for one in results if one.requires_grad]
    if not leaves or not losses:
        raise Skipped("nothing in it has a gradient")
    found = torch.autograd.grad(torch.stack(losses).sum(), list(leaves.values()), allow_unused=True)
    return {name: one for name, one in zip(leaves, found, strict=True) if one is not None}


def _weights(result: Tensor) -> Tensor:
    places = torch.arange(result.numel(), dtype=result.dtype, device=result.device)
    return places.reshape(result.shape).mul(0.7).sin().add(0.1)


def compilers(code: str, reports: list[PassReport]) -> tuple[Callable[[nn.Module], Any], Callable[[nn.Module], Any]]:
    """Two ways to compile: with passes, whose reports are added to ``reports``, and without."""
    if code == ATEN:
        with_passes, without = in_aten(choose_passes("all"), reports), in_aten(())
        return (lambda one: torch.compile(one, backend=with_passes)), (lambda one: torch.compile(one, backend=without))
    plainly: dict[str, Any] = {"fallback_random": True, "force_disable_caches": True}
    ours = {**plainly, "fallback": "raise"}
    return (
        lambda one: torch.compile(one, backend="opsmith", options=ours),
        lambda one: torch.compile(one, backend="inductor", options=plainly),
    )


# ---------------------------------------------------------------- verdicts


def examine(name: str, mode: str, *, code: str = ATEN, device: str = "cpu") -> Verdict:
    """Compare a subject with eager mode."""
    try:
        subject, expected = _in_eager_mode(make_subject(name).moved(torch.device(device)), mode)
    except Exception as exc:  # noqa: BLE001 - whatever a problem's file, or eager mode, raises
        return Verdict(SKIPPED, [str(exc) if isinstance(exc, Skipped) else f"eager: {_line(exc)}"])
    reports: list[PassReport] = []
    ours, plainly = compilers(code, reports)
    actual = _seen_by(subject, mode, ours, reports if code == INDUCTOR else [])
    fired = collections.Counter[str]()
    for one in reports:
        fired.update({one.name: one.fired} if one.fired else {})
    undone = [f"the pass {one.name} was undone: {one.undone}" for one in reports if one.undone]
    if undone:
        return Verdict(FAILED, undone[:MOST_DIFFERENCES], fired)
    found = differences(expected, actual)
    if not found:
        return Verdict(AGREES, (), fired)
    shared = differences(expected, _seen_by(subject, mode, plainly, []))
    left = found.keys() - shared.keys()
    if left and (isinstance(actual, Exception) or not left <= _near_float64(subject, mode, expected, actual)):
        return Verdict(FAILED, [found[name] for name in sorted(left)][:MOST_DIFFERENCES], fired)
    return Verdict(ROUNDING if left else SHARED, [*found.values()][:MOST_DIFFERENCES], fired)


def _in_eager_mode(subject: Subject, mode: str) -> tuple[Subject, Seen]:
    """What is to be seen; without gradients of inputs where the module writes to them."""
    try:
        return subject, observe(subject, mode, lambda module: module)
    except RuntimeError:
        subject = subject._replace(input_gradients=False)
        return subject, observe(subject, mode, lambda module: module)


def _seen_by(
    subject: Subject, mode: str, compiler: Callable[[nn.Module], Any], reports: list[PassReport]
) -> Seen | Exception:
    torch._dynamo.reset()
    with collected() as found, torch._inductor.config.patch(fallback_random=True):
        try:
            return observe(subject, mode, compiler)
        except Exception as exc:  # noqa: BLE001 - what eager mode did, a compiled module has to do
            return exc
        finally:
            reports.extend(found.passes)


def differences(expected: Seen, actual: Seen | Exception) -> dict[str, str]:
    """What is not as in eager mode, by name, a line each."""
    if isinstance(actual, Exception):
        return {"": _line(actual)}
    largest, found = _magnitudes(expected), {}
    for name, one in expected.items():
        line = _difference(name, one, actual[name], largest[name]) if name in actual else f"{name} is missing"
        found.update({name: line} if line is not None else {})
    return found | {name: f"{name} is new" for name in actual.keys() - expected.keys()}


def _difference(name: str, expected: Tensor, actual: Tensor, largest: float) -> str | None:
    before, after = ((one.dtype, tuple(one.shape), _layout(name, one)) for one in (expected, actual))
    if before != after:
        return f"{name}: {after} instead of {before}"
    if not expected.is_floating_point():
        return None if torch.equal(expected, actual) else f"{name}: other values of {expected.dtype}"
    if not torch.equal(_unlike_numbers(expected), _unlike_numbers(actual)):
        return f"{name}: infinities or NaN elsewhere"
    error = _error(expected, actual)
    return None if error <= TOLERANCE * largest else f"{name}: {error:.3g} of {largest:.3g}"


def _magnitudes(seen: Seen) -> dict[str, float]:
    """The largest finite number of each tensor; of gradients and of buffers, of each layer's together."""
    largest: dict[str, float] = collections.defaultdict(float)
    for name, one in seen.items():
        numbers = one.double()[one.isfinite()].abs()
        largest[_group(name)] = max(largest[_group(name)], float(numbers.max()) if numbers.numel() else 0.0)
    return {name: largest[_group(name)] for name in seen}


def _group(name: str) -> str:
    return name.rpartition(".")[0] if "gradient of " in name or "buffer " in name else name


def _unlike_numbers(tensor: Tensor) -> Tensor:
    """Zero where a tensor is finite, 1 and -1 for infinities, 2 for NaN."""
    signs = torch.where(tensor.isinf(), tensor.sign(), torch.zeros_like(tensor))
    return torch.where(tensor.isnan(), 2, signs)


def _error(one: Tensor, other: Tensor) -> float:
    error = (one.double() - other.double())[one.isfinite()].abs()
    return float(error.max()) if error.numel() else 0.0


def _layout(name: str, tensor: Tensor) -> tuple[int, ...]:
    """Strides, which of gradients are torch's own affair; those of dimensions without a second element say nothing."""
    if "gradient of" in name:
        return ()
    return tuple(stride if size > 1 else 0 for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _near_float64(subject: Subject, mode: str, expected: Seen, actual: Seen) -> set[str]:
    """Names of tensors that are about as near to float64 as eager mode's."""
    try:
        exact = observe(subject.moved(torch.float64), mode, lambda module: module)
    except Exception:  # noqa: BLE001 - a module that takes no float64 is judged without
        return set()
    largest, near = _magnitudes(expected), set()
    for name in expected.keys() & actual.keys() & exact.keys():
        one, other, best = expected[name], actual[name], exact[name]
        alike = one.shape == other.shape == best.shape and _layout(name, one) == _layout(name, other)
        if not alike or not all(each.is_floating_point() and each.isfinite().all() for each in (one, other, best)):
            continue
        if _error(best, other) <= max(FURTHER * _error(best, one), TOLERANCE * largest[name]):
            near.add(name)
    return near


def _line(exc: Exception) -> str:
    frames = [one for one in traceback.extract_tb(exc.__traceback__) if "opsmith" in Path(one.filename).parts]
    place = f" ({Path(frames[-1].filename).name}, line {frames[-1].lineno})" if frames else ""
    return f"{type(exc).__name__}{place}: {' '.join(str(exc).split())}"[:400]


# ---------------------------------------------------------------- processes


def serve(connection: Connection, code: str, device: str) -> None:
    """Examine what the other side names, one after the other."""
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    at_every_size()
    while True:
        try:
            name, mode = connection.recv()
        except EOFError:
            return
        started = time.perf_counter()
        try:
            found = examine(name, mode, code=code, device=device)
        except Exception as exc:  # noqa: BLE001 - a fault of this file is no reason to stop
            found = Verdict(FAILED, [_line(exc)])
        record = {"name": name, "mode": mode, **found._asdict(), "fired": dict(found.fired)}
        connection.send(record | {"seconds": round(time.perf_counter() - started, 2)})


def at_every_size() -> None:
    """Let passes that leave small products alone take all, in this process."""
    triangles._FEWEST_ENTRIES, triangles._FEWEST_PRODUCTS = 4, 1


class Worker:
    """A process that examines subjects, and is ended where one takes too much."""

    def __init__(self, code: str, device: str) -> None:
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, code, device), daemon=True)
        self._process.start()
        theirs.close()
        self.asked: tuple[str, str] | None = None
        self._since = 0.0

    def ask(self, asked: tuple[str, str]) -> None:
        self.asked, self._since = asked, time.monotonic()
        self.connection.send(asked)

    def excess(self, most_bytes: int) -> str | None:
        """The verdict about a subject that takes too much time or memory."""
        if time.monotonic() - self._since > MOST_SECONDS:
            return TIMEOUT
        return MEMORY if self._resident() > most_bytes else None

    def end(self) -> None:
        """At once if it is busy."""
        self.connection.close()
        if self.asked is not None:
            self._process.kill()
        self._process.join(timeout=10)
        self._process.kill()

    def _resident(self) -> int:
        try:
            pages = Path(f"/proc/{self._process.pid}/statm").read_text("utf-8").split()[1]
        except OSError:
            return 0
        return int(pages) * os.sysconf("SC_PAGE_SIZE")


def run(asked: Sequence[tuple[str, str]], *, jobs: int, code: str, device: str, seconds: float) -> Iterator[Any]:
    """Records of all subjects, as they come."""
    waiting, ends = collections.deque(asked), time.monotonic() + seconds
    workers = [Worker(code, device) for _ in range(min(jobs, len(asked)) if seconds else 0)]
    try:
        while waiting or any(one.asked for one in workers):
            if time.monotonic() >= ends:
                yield from (_unexamined(one, UNREACHED, 0.0) for one in waiting)
                waiting.clear()
            for worker in workers:
                if worker.asked is None and waiting:
                    worker.ask(waiting.popleft())
            ready = wait([one.connection for one in workers if one.asked], timeout=0.5)
            for place, worker in enumerate(workers):
                record = _answer(worker, MOST_BYTES // jobs, ready=worker.connection in ready)
                if record is not None:
                    yield record
                if worker.asked is not None and record is not None:
                    worker.end()
                    workers[place] = Worker(code, device)
    finally:
        for worker in workers:
            worker.end()


def _answer(worker: Worker, most_bytes: int, *, ready: bool) -> Any:
    """A record, or None as long as there is none; a worker that has to go still has its question."""
    if worker.asked is None:
        return None
    if ready:
        try:
            record = worker.connection.recv()
        except (EOFError, OSError):
            return _unexamined(worker.asked, FAILED, 0.0, "the process died")
        worker.asked = None
        return record
    excess = worker.excess(most_bytes)
    return None if excess is None else _unexamined(worker.asked, excess, MOST_SECONDS if excess == TIMEOUT else 0.0)


def _unexamined(asked: tuple[str, str], verdict: str, seconds: float, *details: str) -> dict[str, Any]:
    name, mode = asked
    return {"name": name, "mode": mode, "verdict": verdict, "details": details, "fired": {}, "seconds": seconds}


# ---------------------------------------------------------------- records


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts of verdicts by mode and of passes, and all records but those that agree."""
    fired = collections.Counter[str]()
    counts: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for record in records:
        counts[record["mode"]][record["verdict"]] += 1
        fired.update(record["fired"])
    return {
        "counts": {mode: dict(count) for mode, count in sorted(counts.items())},
        "fired": dict(fired.most_common()),
        "subjects_that_passes_changed": sum(any(record["fired"].values()) for record in records),
        "others": [dict(record) for record in records if record["verdict"] != AGREES],
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; 1 where something failed."""
    given = _parser().parse_args(arguments)
    patterns = given.only.split(",")
    names = [name for name in subject_names() if any(fnmatch.fnmatch(name, one) for one in patterns)]
    asked = [(name, mode) for name in names for mode in (INFER, TRAIN)]
    started, records = time.monotonic(), []
    for record in run(asked, jobs=given.jobs, code=given.code, device=given.device, seconds=given.seconds):
        records.append(record)
        if record["verdict"] not in {AGREES, UNREACHED}:
            _say(f"{record['verdict']}: {record['name']} {record['mode']}: {'; '.join(record['details'])}")
    setting = {
        "command": "python -m tests.differential.models " + " ".join(sys.argv[1:] if arguments is None else arguments),
        "torch": torch.__version__,
        "code": given.code,
        "device": given.device,
        "seconds": round(time.monotonic() - started, 1),
    }
    found = {**setting, **summary(records)}
    if given.output is not None:
        given.output.write_text(json.dumps({**found, "records": records}, indent=1) + "\n", "utf-8")
    _say(json.dumps({name: one for name, one in found.items() if name != "others"}, indent=1))
    return int(any(record["verdict"] == FAILED for record in records))


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.differential.models", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--only", default="*", help="names, or patterns of them, separated by commas")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--code", choices=(ATEN, INDUCTOR), default=ATEN, help="who runs the graphs")
    parser.add_argument("--seconds", type=float, default=float("inf"), help="after which no subject is begun")
    parser.add_argument("-o", "--output", type=Path, help="a JSON file for the record")
    return parser


if __name__ == "__main__":
    os.environ["OMP_NUM_THREADS"] = "1"  # Of the processes that it starts.
    sys.exit(main())
