"""Degenerate problems: a kernel has their answer without computing it.

For every result four trivial kernels are followed from draw to draw, each as long as it is right within the run's
tolerance: what was answered before (zeros, another constant, a bias: whatever the inputs are), each input, and zeros
where eager's own answer is nothing but rounding, as float64 shows. A problem is degenerate if every result and every
tensor of the state has one that is left in the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import is_low, readable, same_values
from opsmith.core.audit import AuditFinding, Check
from opsmith.tasks.module_state import State

#: Whether a result passes for another one: (expected, other).
Alike = Callable[[torch.Tensor, torch.Tensor], bool]
#: The results of a call and the state that it leaves: what a kernel has to have right.
Effects = list[torch.Tensor]
#: Runs Model on inputs under a state, both left as they are, always with the same random numbers.
Run = Callable[[Sequence[Any], State | None], tuple[Any, State]]

#: An answer that is nothing but rounding is at most so many times the machine epsilon of its dtype, and at most this.
MOST_NOISE = 1e4
MOST_ABSOLUTE_NOISE = 0.1

_SAME, _NOISE = -1, -2


class Suspicion:
    """What speaks for a problem being degenerate, after each draw of its inputs.

    Args:
        run: of the problem.
        alike: decides what is right.
        inputs: of the first draw.
        state: what it runs under.
        first: what it answered, and the state after it.

    Attributes:
        inputs: as above.
        draws: so many were seen.
    """

    def __init__(
        self, run: Run, alike: Alike, inputs: Sequence[Any], state: State | None, first: tuple[Any, State]
    ) -> None:
        self._run, self._alike, self._state = run, alike, state
        self.inputs = inputs
        self._results, self._first = _effects(*first, state)
        self.draws = 1
        #: What is left for each effect: inputs by number, and the two others.
        self._left = [
            {_SAME} | self._equal_inputs(effect, _tensors(inputs)) | ({_NOISE} if _is_small(effect) else set())
            if number < self._results
            else {_SAME}  # The state is written back as it is found.
            for number, effect in enumerate(self._first)
        ]
        self._vary = False
        self._first_is_noise: list[bool] | None = None

    @property
    def holds(self) -> bool:
        """Whether every effect has a trivial kernel that was right so far."""
        return self._results > 0 and all(self._left)

    def see(self, inputs: Sequence[Any], other_state: Callable[[], State | None]) -> None:
        """Look at another draw.

        Args:
            inputs: of it.
            other_state: gives another state, for a problem whose inputs are the same in every draw: what it answers
                follows from its state alone.
        """
        self._vary |= not _equal(self.inputs, inputs)
        state = self._state if self._vary else other_state()
        self._left = self._remaining(inputs, state)
        self.draws += 1

    def is_confirmed_by(self, inputs: Sequence[Any]) -> bool:
        """Whether the same trivial kernels are right about inputs that the problem does not draw."""
        return all(self._remaining(inputs, self._state))

    def _remaining(self, inputs: Sequence[Any], state: State | None) -> list[set[int]]:
        try:
            results, effects = _effects(*self._run(inputs, state), state)
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except Exception:  # noqa: BLE001 - a Model refuses in any way it likes, and then nothing is known
            return [set()]
        if (results, len(effects)) != (self._results, len(self._first)):
            return [set()]
        tensors = _tensors(inputs)
        remaining = []
        for expected, effect, left in zip(self._first, effects, self._left, strict=True):
            same = {_SAME} if _SAME in left and self._alike(effect, expected) else set()
            small = left & {_NOISE} if self._first_is_noise is not None or _is_small(effect) else set()
            remaining.append(same | (left & self._equal_inputs(effect, tensors)) | small)
        if not all(remaining) or {_NOISE} not in remaining:
            return remaining
        # Float64 takes its time: it is asked only where nothing else is left.
        if self._first_is_noise is None:
            self._first_is_noise = self._noise(self.inputs, self._state, self._first)
        noise = [a and b for a, b in zip(self._first_is_noise, self._noise(inputs, state, effects), strict=True)]
        return [left if ok else left - {_NOISE} for left, ok in zip(remaining, noise, strict=True)]

    def _equal_inputs(self, effect: torch.Tensor, inputs: Sequence[torch.Tensor]) -> set[int]:
        return {number for number, tensor in enumerate(inputs) if self._alike(effect, tensor)}

    def _noise(self, inputs: Sequence[Any], state: State | None, effects: Effects) -> list[bool]:
        """Of each effect whether zeros are as near to what float64 answers as eager is."""
        wide = tree_map(_widened, list(inputs))
        wide_state = None if state is None else {name: _widened(tensor) for name, tensor in state.items()}
        try:
            _, exact = _effects(*self._run(wide, wide_state), wide_state)
        except torch.AcceleratorError:
            raise  # The device context is lost.
        except Exception:  # noqa: BLE001 - a Model may insist on its dtype in any way it likes
            return [False] * len(effects)
        return [
            effect.shape == truth.shape and bool((truth.abs() <= (effect.to(truth.dtype) - truth).abs()).all())
            for effect, truth in zip(effects, exact, strict=False)
        ] + [False] * (len(effects) - len(exact))

    def finding(self, beside: str) -> AuditFinding:
        """What makes the problem degenerate.

        Args:
            beside: what else it was seen on, besides its own draws, in words.
        """
        seen = f"in {self.draws} draws of the inputs{beside}"
        results = self._first[: self._results]
        if all(result.is_floating_point() and not bool(readable(result).isfinite().any()) for result in results):
            return AuditFinding(check=Check.FINITE, detail=f"not one element of the answer is a finite number, {seen}")
        if all(_SAME in left for left in self._left):
            return AuditFinding(check=Check.CONSTANT, detail=f"the answer is {self._constant(results)}, {seen}")
        if all(_NOISE in left for left in self._left[: self._results]):
            detail = f"the answer is zero but for rounding, {seen}"
            return AuditFinding(check=Check.TRIVIAL, detail=detail)
        numbers = sorted({number for left in self._left for number in left if number >= 0})
        said = " and ".join(f"input {number}" for number in numbers)
        return AuditFinding(check=Check.TRIVIAL, detail=f"the answer is {said} itself, {seen}")

    def _constant(self, results: Sequence[torch.Tensor]) -> str:
        values = {value for result in results for value in _values(result)}
        if len(values) == 1:
            value = values.pop()
            return "zero everywhere" if value == 0 else f"{value:.6g} everywhere"
        return "the same whatever the inputs are" if self._vary else "the same whatever the state is"


def _effects(result: Any, after: State, before: State | None) -> tuple[int, Effects]:
    """The results of a call, how many they are, and behind them what it changed in the state."""
    results = [
        leaf.detach() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf)
        for leaf in tree_leaves(result)
        if isinstance(leaf, (torch.Tensor, bool, int, float))
    ]
    known = before or {}
    changed = [tensor for name, tensor in sorted(after.items()) if not same_values(tensor, known[name])]
    return len(results), [*results, *changed]


def _values(result: torch.Tensor) -> Iterator[float]:
    """The one value of a real result, or two of them."""
    if result.is_complex() or not result.numel():
        yield from (0.0, 1.0)
        return
    values = readable(result)
    yield from {values.min().item(), values.max().item()}


def _is_small(effect: torch.Tensor) -> bool:
    if is_low(effect) or not effect.is_floating_point() or not effect.numel():
        return False
    return bool(effect.abs().max() <= min(MOST_NOISE * torch.finfo(effect.dtype).eps, MOST_ABSOLUTE_NOISE))


def _widened(leaf: Any) -> Any:
    wide = isinstance(leaf, torch.Tensor) and leaf.is_floating_point() and not is_low(leaf)
    return leaf.double() if wide else leaf


def _tensors(inputs: Sequence[Any]) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(list(inputs)) if isinstance(leaf, torch.Tensor)]


def _equal(one: Sequence[Any], other: Sequence[Any]) -> bool:
    pairs = list(zip(tree_leaves(list(one)), tree_leaves(list(other)), strict=False))
    return all(
        isinstance(b, torch.Tensor) and a.shape == b.shape and same_values(a, b)
        if isinstance(a, torch.Tensor)
        else a == b
        for a, b in pairs
    )
