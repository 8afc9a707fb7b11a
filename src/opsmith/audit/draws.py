"""A problem's inputs, states and answers, as the checks of an audit ask for them."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import readable
from opsmith.core.seeds import derive_seed
from opsmith.evaluation.criteria.tolerance import is_within
from opsmith.suites.modules import variants
from opsmith.tasks.module_call import ModuleCall
from opsmith.tasks.module_state import State
from opsmith.tasks.problem import BrokenProblem, Problem

Answer = list[torch.Tensor]

#: Values under which an op has to make a difference: as drawn, and where guards and ranges show.
SCALES = (-1.0, 64.0, 1e-3, 0.0)


class Draws:
    """Runs the Model of a problem on inputs and states of its own kind.

    Args:
        problem: loaded on ``device``.
        device: where it runs.

    Raises:
        BrokenProblem: Model does not answer its own inputs.
    """

    def __init__(self, problem: Problem, device: torch.device) -> None:
        self.problem = problem
        self._device = device
        self._call = ModuleCall(problem.model)
        self.inputs = [self.draw(0), self.draw(1)]
        self.state = self.other_state(0)
        self.answers = [self._first_answer(inputs) for inputs in self.inputs]

    def draw(self, number: int) -> list[Any]:
        """Inputs as the problem draws them."""
        drawn = self.problem.inputs(derive_seed("audit", number))
        moved: list[Any] = tree_map(
            lambda leaf: leaf.to(self._device) if isinstance(leaf, torch.Tensor) else leaf, drawn
        )
        return moved

    def other_state(self, number: int) -> State:
        """A state as a case has one."""
        return self.problem.other_state(torch.Generator().manual_seed(derive_seed("audit state", number)))

    def answer(
        self, inputs: Sequence[Any], state: State | None = None, *, mode: TorchDispatchMode | None = None
    ) -> Answer:
        """The tensors and numbers of Model's result, in order; random numbers are the same each time.

        Args:
            mode: watches or changes the ATen calls of ``forward``.

        Raises:
            Exception: whatever Model raises.
        """
        copied = tree_map(lambda leaf: leaf.clone() if isinstance(leaf, torch.Tensor) else leaf, list(inputs))
        with torch.no_grad(), every_call_shown():
            self._call.take(self.state if state is None else state)
            torch.manual_seed(derive_seed("audit forward"))
            with mode or contextlib.nullcontext():
                result = self._call.forward(*copied)
        leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, (torch.Tensor, int, float))]
        return [leaf.detach() if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves]

    def _first_answer(self, inputs: Sequence[Any]) -> Answer:
        try:
            return self.answer(inputs)
        except torch.AcceleratorError:
            raise
        except Exception as exc:
            line = " ".join(str(exc).split())[:300]
            raise BrokenProblem(f"Model does not answer its own inputs: {type(exc).__name__}: {line}") from exc

    def not_finite(self) -> str | None:
        """What of the answers is no number, or None."""
        for answer in self.answers:
            for number, result in enumerate(answer):
                finite = readable(result).isfinite()
                if result.is_floating_point() and not bool(finite.all()):
                    share = 1 - finite.double().mean().item()
                    return f"{share:.2%} of result {number} are infinite or no numbers"
        return None

    def sets(self) -> list[tuple[list[Any], Answer]]:
        """Inputs, and what Model does with them: two draws, and one of them scaled, where that has an answer."""
        found = [(inputs, self.effects(inputs)) for inputs in self.inputs]
        if variants.BOUNDED.isdisjoint(self.problem.call.calls):
            found += [each for scale in SCALES if (each := self._scaled(scale)) is not None]
        return found

    def _scaled(self, scale: float) -> tuple[list[Any], Answer] | None:
        inputs = variants.varied(self.inputs[0], lambda tensor, _: tensor * scale, torch.Generator())
        if inputs is None:
            return None
        try:
            answer = self.effects(inputs)
        except torch.AcceleratorError:
            raise
        except Exception:  # noqa: BLE001 - a Model refuses in any way it likes
            return None
        return (inputs, answer) if all(bool(readable(result).isfinite().all()) for result in answer) else None

    def effects(self, inputs: Sequence[Any], *, mode: TorchDispatchMode | None = None) -> Answer:
        """The answer, and the buffers as forward leaves them."""
        answer = self.answer(inputs, mode=mode)
        return [*answer, *[buffer.clone() for buffer in self.problem.model.buffers()]]

    def is_unchanged(self, inputs: Sequence[Any], expected: Answer, mode: TorchDispatchMode) -> bool:
        """Whether the effects stay what they are when a mode changes calls; an error is a change."""
        try:
            return alike(expected, self.effects(inputs, mode=mode))
        except torch.AcceleratorError:
            raise
        except Exception:  # noqa: BLE001 - as above
            return False


@contextlib.contextmanager
def every_call_shown() -> Iterator[None]:
    """Attention without its fused fast path for inference, which hides a whole layer in one call."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def alike(expected: Answer, other: Answer) -> bool:
    """Whether two answers are equal within the tolerance that solutions are granted."""
    return len(expected) == len(other) and all(
        is_within(ours, theirs, "strict") for ours, theirs in zip(expected, other, strict=True)
    )
