"""Does the answer depend on everything that it is given?

An input that makes no difference is one that a solution need not read, and the same goes for a weight.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from opsmith.aten.low_precision import PACKED, SCALES, is_low, readable, same_values
from opsmith.audit.draws import Draws, alike
from opsmith.core.audit import AuditFinding, Check
from opsmith.tasks.module_state import State, is_mask, perturbed

#: Names that a line lists.
MOST_NAMES = 6


def constant(draws: Draws) -> AuditFinding | None:
    """Whether there is but one answer."""
    if not alike(*draws.answers):
        return None
    return AuditFinding(check=Check.CONSTANT, detail="two draws of the inputs have the same answer")


def findings(draws: Draws) -> Iterator[AuditFinding]:
    """What the answer does not depend on."""
    ignored = list(_ignored_inputs(draws))
    if ignored:
        names = ", ".join(f"{number} ({_described(leaf)})" for number, leaf in ignored)
        yield AuditFinding(check=Check.INDEPENDENT, detail=f"the answer stays the same whatever is in input {names}")
    if unused := _unused_state(draws):
        more = f" and {len(unused) - MOST_NAMES} more" if len(unused) > MOST_NAMES else ""
        names = ", ".join(unused[:MOST_NAMES])
        yield AuditFinding(check=Check.UNUSED, detail=f"the answer stays the same whatever is in {names}{more}")


def _ignored_inputs(draws: Draws) -> Iterator[tuple[int, torch.Tensor]]:
    leaves, spec = tree_flatten(draws.inputs[0])
    others, _ = tree_flatten(draws.inputs[1])
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or leaf.numel() == 0:
            continue
        replacement = _other_values(leaf, others[number] if number < len(others) else None)
        if replacement is None:
            continue
        changed = [*leaves[:number], replacement, *leaves[number + 1 :]]
        if alike(draws.answers[0], draws.answer(tree_unflatten(changed, spec))):
            yield number, leaf


def _other_values(leaf: torch.Tensor, drawn: Any) -> torch.Tensor | None:
    """Other values for an input: those of another draw, else its own moved; None where nothing is to be moved."""
    if isinstance(drawn, torch.Tensor) and drawn.shape == leaf.shape and not same_values(drawn, leaf):
        return drawn
    if leaf.is_floating_point() and leaf.dtype not in (PACKED, SCALES) and not is_mask(readable(leaf)):
        return perturbed(leaf, torch.Generator().manual_seed(0))
    plain = leaf.view(torch.uint8) if is_low(leaf) else leaf
    moved = plain.flatten().roll(1).view(leaf.shape)
    return None if torch.equal(moved, plain) else moved.view(leaf.dtype) if is_low(leaf) else moved


def _unused_state(draws: Draws) -> list[str]:
    """Names of the state that the answer does not depend on.

    One backward pass says which parameters may be: their gradient is zero or missing. Those, and whatever has no
    gradient, are looked at one by one.
    """
    other = draws.other_state(1)
    suspects = _without_gradient(draws)
    unused = []
    for name in suspects:
        tensor = draws.state[name]
        if same_values(tensor, other[name]):
            continue  # Counters, masks and indices are left as they are.
        tied = {tie: other[name] for tie, each in draws.state.items() if each is tensor}
        if alike(draws.answers[0], draws.answer(draws.inputs[0], draws.state | tied)):
            unused.append(name)
    return unused


def _without_gradient(draws: Draws) -> list[str]:
    parameters = dict(draws.problem.model.named_parameters())
    names = _read_by_forward(draws, draws.state)
    try:
        gradients = _gradients(draws, parameters)
    except (RuntimeError, NotImplementedError):
        return names  # Something in the model has no gradient.
    return [name for name in names if gradients.get(name) is None or not bool(gradients[name].any())]


def _read_by_forward(draws: Draws, state: State) -> list[str]:
    """The state but for what forward overwrites: running statistics in training mode are results."""
    draws.answer(draws.inputs[0])
    live = draws.problem.state()
    return [name for name in state if same_values(live[name], state[name].to(live[name].dtype))]


def _gradients(draws: Draws, parameters: dict[str, torch.nn.Parameter]) -> dict[str, torch.Tensor]:
    for parameter in parameters.values():
        parameter.grad = None
    with torch.enable_grad():
        result = draws.problem.model(*[_copied(leaf) for leaf in draws.inputs[0]])
        leaves = [leaf for leaf in tree_flatten(result)[0] if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
        if not leaves:
            raise RuntimeError("nothing in the answer has a gradient")
        # Weighted at random, for the sum of a softmax has no gradient.
        sum((leaf * torch.rand_like(leaf)).sum() for leaf in leaves).backward()  # type: ignore[union-attr]
    return {name: parameter.grad for name, parameter in parameters.items() if parameter.grad is not None}


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, torch.Tensor) else leaf


def _described(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')} {'x'.join(map(str, tensor.shape)) or 'scalar'}"
