"""Would an answer that nobody computed pass?

The candidates are zeros, the mean of another answer, the answer to other inputs, and each input of the same shape.
One that comes within one percent of nearly all elements, measured by the size of the result, makes the problem
trivially bounded: its answer is always about zero, saturated, or dominated by its mean.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.low_precision import readable
from opsmith.audit.draws import Draws
from opsmith.core.audit import AuditFinding, Check

#: How close an element has to be, as a share of itself plus as much of the result's root mean square.
CLOSENESS = 1e-2
#: And how many elements.
SHARE = 0.9


def findings(draws: Draws) -> Iterator[AuditFinding]:
    """Trivial answers that nearly pass."""
    inputs = [readable(leaf) for leaf in tree_leaves(draws.inputs[1]) if isinstance(leaf, torch.Tensor)]
    for number, (other, asked) in enumerate(zip(*(map(readable, answer) for answer in draws.answers), strict=True)):
        for name, guess in _guesses(other, asked, inputs):
            share = _close(guess, asked)
            if share >= SHARE:
                yield AuditFinding(
                    check=Check.TRIVIAL,
                    detail=f"{name} is within 1 % of {share:.0%} of the elements of result {number}",
                )
                break


def _guesses(
    other: torch.Tensor, asked: torch.Tensor, inputs: list[torch.Tensor]
) -> Iterator[tuple[str, torch.Tensor]]:
    if asked.is_floating_point():
        yield "zero", torch.zeros_like(asked)
        yield "the mean of another answer", torch.full_like(asked, other.double().mean().item())
    else:
        yield "the most frequent value of another answer", torch.full_like(asked, int(other.flatten().mode().values))
    if other.shape == asked.shape:
        yield "the answer to other inputs", other
    for number, tensor in enumerate(inputs):
        if tensor.shape == asked.shape and tensor.dtype == asked.dtype:
            yield f"input {number}", tensor


def _close(guess: torch.Tensor, asked: torch.Tensor) -> float:
    """The share of elements that a guess comes close to."""
    if asked.numel() == 0:
        return 1.0
    if not asked.is_floating_point():
        return (guess == asked).double().mean().item()
    values = asked.double()
    allowed = CLOSENESS * (values.abs() + values.square().mean().sqrt())
    return ((guess.double() - values).abs() <= allowed).double().mean().item()
