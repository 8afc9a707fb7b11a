"""Runs a generated program in several ways and says where they differ.

Each way calls it twice on new arguments, and writes to what the first call returned before the second one: so memory
that results share with arguments, parameters, buffers or each other shows in values.
"""

from __future__ import annotations

import contextlib
import math
import sys
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple

import torch
from tests.differential.grammar import OTHER_SIZE, SIZE, WRITTEN, Program, grad_mode, in_single_precision, source_of
from tests.graphs import in_aten
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten, tree_map

from opsmith.compile.graph_pass import GraphPass, Stage
from opsmith.compile.pass_registry import choose_passes
from opsmith.compile.report import PassReport, collected

#: What a program left, by where it stands: results, arguments and gradients of each call.
Observed = dict[str, Any]
Wrap = Callable[[Any], Any]

_MODULE = "generated"
_NEEDS_GRADIENT = " needs a gradient"
#: Passes that promise the same bits; the one that is left out adds up in another order.
_NOT_EXACT = {"bilinear_form", "library_calls"}
#: How much nearer than a tolerance Inductor or ATen alone has to be for a difference to be the passes'.
_NEARER = 0.25
#: How many times as far from float32's result as eager mode's a result in few bits may be.
_AS_FAR = 2.0
#: Eager runs in which each step's last digits are moved, and how many times as far as they a result may be off.
_TRIALS = 6
_MOVES = 4.0


@dataclass
class Verdict:
    """What came of a program.

    Attributes:
        kind: ``passed``, ``discarded`` (eager mode refuses it), ``shared`` (torch differs from eager mode without
            passes as well) or ``failed``.
        detail: of what differs.
        fired: passes, by how often they rewrote something.
    """

    kind: str
    detail: str = ""
    fired: Counter[str] = field(default_factory=Counter)


class Tolerance(NamedTuple):
    """By dtype: relative to a value, and to the largest one."""

    exact: bool = False
    half: bool = False

    def allowed(self, expected: Tensor, scale: float) -> Tensor | None:
        """How far each element may be off; None where not at all."""
        if self.exact or not (expected.is_floating_point() or expected.is_complex()):
            return None
        own = 5e-2 if self.half or expected.dtype in {torch.float16, torch.bfloat16} else 2e-4
        finite = expected.abs()[expected.abs() < math.inf]
        largest = max(1.0, float(finite.max())) if finite.numel() else 1.0
        return torch.tensor(own * scale * largest)


# ---------------------------------------------------------------- one way


class _MovedDigits(TorchDispatchMode):
    """Moves what each step computes in floating point by a last digit, up or down; views and writes stay."""

    def __init__(self, trial: int) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._draw = torch.Generator().manual_seed(trial)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        returned = func(*args, **(kwargs or {}))
        tied = [one for one in (*func._schema.arguments, *func._schema.returns) if one.alias_info is not None]
        return returned if tied else tree_map(self._moved, returned)

    def _moved(self, leaf: Any) -> Any:
        if not isinstance(leaf, Tensor) or not leaf.is_floating_point():
            return leaf
        signs = torch.randint(2, leaf.shape, generator=self._draw) * 2 - 1
        return leaf * (1 + torch.finfo(leaf.dtype).eps * signs.to(leaf.dtype))


def observe(
    program: Program,
    wrap: Wrap,
    sizes: Sequence[int],
    writable: list[list[bool]] | None = None,
    steps: AbstractContextManager[Any] = contextlib.nullcontext(),  # noqa: B008 - it holds nothing
) -> Observed:
    """Call a program once for each size and keep copies of all that can be seen; an error is seen as ``error``.

    Args:
        program: in text.
        wrap: makes what is called of the function or module.
        sizes: of the arguments of each call.
        writable: for each call, whether a result can be written to; eager mode fills it, other ways follow it.
        steps: within it a program computes its results and gradients.
    """
    sys.modules[_MODULE] = ModuleType(_MODULE)  # Dynamo of torch 2.11 imports it by name.
    scope = sys.modules[_MODULE].__dict__
    exec(compile(source_of(program), "<generated>", "exec"), scope)
    seen: Observed = {}
    writable = [] if writable is None else writable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            run = scope["program"]()
            called = wrap(run)
            for place, size in enumerate(sizes):
                if place == len(writable):
                    writable.append([])
                _call(
                    program,
                    run,
                    called,
                    scope["arguments"](size),
                    seen,
                    f"call {place + 1}",
                    writable[place],
                    steps=steps,
                )
        except Exception as exc:  # noqa: BLE001 - any error of torch's is an observation
            seen["error"] = f"{type(exc).__name__}: {exc}"
    if program.mode in {"training", "plain"}:
        return seen
    # Without gradients, ATen's interpreter has a cast of a parameter need one; compiled code has not.
    return {place: one for place, one in seen.items() if not place.endswith(_NEEDS_GRADIENT)}


def _call(
    program: Program,
    run: Any,
    called: Any,
    given: Sequence[Tensor],
    seen: Observed,
    call: str,
    writable: list[bool],
    *,
    steps: AbstractContextManager[Any],
) -> None:
    held = _held(run)
    names = [f"argument {place}" for place in range(len(given))]
    with _around(program), steps:
        results = called(*given)
    leaves, structure = tree_flatten(results)
    leaves = [one for one in leaves if isinstance(one, Tensor)]
    seen[f"{call}: structure"] = str(structure)
    _keep(seen, f"{call}: ", [f"result {place}" for place in range(len(leaves))], leaves)
    _keep(seen, f"{call}: ", names, given)
    _keep(seen, f"{call}: ", list(held), list(held.values()))
    if program.mode == "training":
        with steps:
            _gradients(seen, call, leaves, {**dict(zip(names, given, strict=True)), **held})
    _write(leaves, writable, program.mode)
    after = f"{call}, after a write to the results: "
    _keep(seen, after, [f"result {place}" for place in range(len(leaves))], leaves)
    _keep(seen, after, names, given)
    _keep(seen, after, list(held), list(held.values()))


def _held(run: Any) -> dict[str, Tensor]:
    if not isinstance(run, torch.nn.Module):
        return {}
    return {**dict(run.named_parameters()), **dict(run.named_buffers())}


@contextlib.contextmanager
def _around(program: Program) -> Iterator[None]:
    with grad_mode(program.mode), torch.autocast("cpu", dtype=torch.bfloat16, enabled=program.autocast):
        yield


def _keep(seen: Observed, prefix: str, names: Sequence[str], tensors: Sequence[Tensor]) -> None:
    with torch.no_grad():
        for name, one in zip(names, tensors, strict=True):
            seen[f"{prefix}{name}"] = one.detach().clone()
            if one.requires_grad:
                seen[f"{prefix}{name}{_NEEDS_GRADIENT}"] = True


def _gradients(seen: Observed, call: str, results: Sequence[Tensor], sources: Mapping[str, Tensor]) -> None:
    wanted = [one for one in results if one.requires_grad and (one.is_floating_point() or one.is_complex())]
    if not wanted:
        return
    total = sum(
        ((torch.view_as_real(one) if one.is_complex() else one).double() * (0.3 + place)).sin().sum()
        for place, one in enumerate(wanted)
    )
    assert isinstance(total, Tensor)
    total.backward()
    for name, one in sources.items():
        if one.requires_grad and one.is_leaf:
            grad = one.grad
            # What is not reached may have no gradient or zeros.
            seen[f"{call}: gradient of {name}"] = torch.zeros_like(one.detach()) if grad is None else grad.clone()
            one.grad = None


def _write(results: Sequence[Tensor], writable: list[bool], mode: str) -> None:
    """Write to the results of a call, one after the other, where eager mode can."""
    first = not writable
    context = torch.inference_mode() if mode == "inference" else torch.no_grad()
    with context:
        for place, one in enumerate(results):
            if first or place >= len(writable):
                writable.append(torch._debug_has_internal_overlap(one) == 0 and _written(one))
            elif writable[place]:
                _written(one)


def _written(one: Tensor) -> bool:
    try:
        if one.dtype == torch.bool:
            one.logical_not_()
        else:
            one.add_(WRITTEN)
    except RuntimeError:
        return False
    return True


# ---------------------------------------------------------------- comparing


def differences(observed: Observed, expected: Observed, tolerance: Tolerance, scale: float = 1.0) -> dict[str, str]:
    """Where two ways differ, with a sentence for each place."""
    if "error" in observed:
        return {"error": observed["error"]}
    found = {}
    for place in dict.fromkeys([*expected, *observed]):
        one, other = observed.get(place), expected.get(place)
        if isinstance(one, Tensor) and isinstance(other, Tensor):
            sentence = _difference(one, other, tolerance, scale)
        else:
            sentence = None if type(one) is type(other) and one == other else f"{one} instead of {other}"
        if sentence is not None:
            found[place] = sentence
    return found


def _difference(one: Tensor, other: Tensor, tolerance: Tolerance, scale: float) -> str | None:
    if (one.shape, one.dtype) != (other.shape, other.dtype):
        return f"{one.dtype} {list(one.shape)} instead of {other.dtype} {list(other.shape)}"
    with torch.no_grad():
        if tolerance.exact and one.is_floating_point():
            equal = (one == other) & (one.signbit() == other.signbit()) | (one.isnan() & other.isnan())
        else:
            allowed = tolerance.allowed(other, scale)
            equal = one == other
            if allowed is not None:
                one, other = (x.to(torch.complex128 if x.is_complex() else torch.float64) for x in (one, other))
                equal |= (one - other).abs() <= allowed
                equal |= one.isnan() & other.isnan()
    return None if bool(equal.all()) else f"{one.tolist()} instead of {other.tolist()}"


def _nearer(place: str, observed: Observed, expected: Observed, wide: Observed) -> bool:
    """Whether a value is about as near to what float32 gives as eager mode's, which rounds each step to few bits."""
    one, other, right = (seen.get(place) for seen in (observed, expected, wide))
    if not (isinstance(one, Tensor) and isinstance(other, Tensor) and isinstance(right, Tensor)):
        return False
    if not one.is_floating_point() or one.shape != right.shape or one.dtype != other.dtype:
        return False
    ours, eagers = ((x.double() - right.double()).abs().max() for x in (one, other))
    return bool(ours <= _AS_FAR * eagers)


def _far(place: str, observed: Observed, expected: Observed, trials: Sequence[Observed]) -> bool:
    """Whether a value is farther from eager mode's than last digits of its steps move that."""
    one, other = observed.get(place), expected.get(place)
    if not (isinstance(one, Tensor) and isinstance(other, Tensor) and one.shape == other.shape):
        return True
    if not one.is_floating_point() or one.dtype != other.dtype:
        return True
    moves = [
        float((moved.double() - other.double()).abs().max())
        for trial in trials
        if isinstance(moved := trial.get(place), Tensor) and moved.shape == other.shape and moved.numel()
    ]
    return not float((one.double() - other.double()).abs().max()) <= _MOVES * max(moves, default=0.0)


# ---------------------------------------------------------------- all ways


def check(program: Program, *, inductor: bool = False) -> Verdict:
    """Run a program with passes, and without where that differs from eager mode."""
    writable: list[list[bool]] = []
    sizes = (SIZE, OTHER_SIZE) if program.resized else (SIZE, SIZE)
    expected = observe(program, lambda run: run, sizes, writable)
    if "error" in expected and program.resized:
        sizes, writable = (SIZE, SIZE), []
        expected = observe(program, lambda run: run, sizes, writable)
    if "error" in expected:
        return Verdict("discarded", expected["error"])
    ways = _Ways(program, sizes, writable, expected)
    if program.special:
        return ways.exact()
    return ways.inductor() if inductor else ways.aten()


@dataclass
class _Ways:
    program: Program
    sizes: Sequence[int]
    writable: list[list[bool]]
    expected: Observed

    def _compiled(self, backend: Any, options: dict[str, Any] | None = None) -> Observed:
        torch._dynamo.reset()
        return observe(
            self.program,
            lambda run: torch.compile(run, backend=backend, dynamic=self.program.dynamic, options=options),
            self.sizes,
            self.writable,
        )

    def aten(self) -> Verdict:
        """Passes, and ATen runs the graphs."""
        reports: list[PassReport] = []
        observed = self._compiled(in_aten(choose_passes("all"), reports))
        return self._verdict(observed, reports, lambda: self._compiled(in_aten(())))

    def inductor(self) -> Verdict:
        """Passes, and Inductor's code."""
        settings: dict[str, Any] = {"fallback_random": True}
        with collected() as reports:
            observed = self._compiled("opsmith", {**settings, "fallback": "raise"})
        return self._verdict(observed, reports.passes, lambda: self._compiled("inductor", settings))

    def exact(self) -> Verdict:
        """Bit by bit, lowered passes alone."""
        reports: list[PassReport] = []
        passes: Sequence[GraphPass] = [
            one for one in choose_passes("all") if one.stage is Stage.LOWERED and one.name not in _NOT_EXACT
        ]
        observed = self._compiled(in_aten(passes, reports))
        self.expected = self._compiled(in_aten(()))
        if "error" in self.expected:
            return Verdict("shared" if "error" in observed else "failed", self.expected["error"])
        return self._verdict(observed, reports, None, Tolerance(exact=True))

    def _verdict(
        self,
        observed: Observed,
        reports: Sequence[PassReport],
        without_passes: Callable[[], Observed] | None,
        tolerance: Tolerance | None = None,
    ) -> Verdict:
        fired = Counter({one.name: one.fired for one in reports if one.fired})
        undone = [f"{one.name} is undone: {one.undone}" for one in reports if one.undone]
        if undone:
            return Verdict("failed", "; ".join(undone), fired)
        tolerance = tolerance or Tolerance(half=self.program.in_half_precision)
        found = differences(observed, self.expected, tolerance)
        if not found:
            return Verdict("passed", "", fired)
        torchs = without_passes() if without_passes is not None else self.expected
        known = differences(torchs, self.expected, tolerance, _NEARER)
        ours = {place: text for place, text in found.items() if place not in known}
        if ours and not tolerance.exact and self.program.in_half_precision:
            wide = observe(in_single_precision(self.program), lambda run: run, self.sizes, self.writable)
            ours = {place: ours[place] for place in ours if not _nearer(place, observed, self.expected, wide)}
        if ours and not tolerance.exact:
            trials = [
                observe(self.program, lambda run: run, self.sizes, self.writable, _MovedDigits(trial))
                for trial in range(_TRIALS)
            ]
            ours = {place: ours[place] for place in ours if _far(place, observed, self.expected, trials)}
            if not ours and not known:
                return Verdict("passed", "", fired)
        kind, shown = ("failed", ours) if ours else ("shared", found)
        return Verdict(kind, "\n".join(f"{place}: {text}" for place, text in shown.items()), fired)
