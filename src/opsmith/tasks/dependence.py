"""What the answer of a Model does not depend on: inputs, parameters and buffers whose values make no difference."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

from opsmith.aten.low_precision import readable, same_values
from opsmith.tasks.module_state import declared_state, equal, perturbed
from opsmith.tasks.problem_module import seed_everything

#: Results that differ by less than this share of their root mean square are called equal.
_NOISE = 2e-5
#: Weights without a gradient that are looked at one by one.
_MOST_SUSPECTS = 32


def independent(model: torch.nn.Module, inputs: list[Any], others: list[Any]) -> frozenset[str]:
    """Names of what makes no difference: ``input 0``, or a name of the state.

    Args:
        model: it is called, and its state is put back.
        inputs: of one draw.
        others: of another.

    Raises:
        Exception: whatever the Model raises.
    """
    return frozenset([*_ignored_inputs(model, inputs, others), *_unused_state(model, inputs)])


def _ignored_inputs(model: torch.nn.Module, inputs: list[Any], others: list[Any]) -> Iterator[str]:
    expected = _answer(model, inputs)
    leaves, spec = tree_flatten(inputs)
    replacements = tree_leaves(others)
    for number, leaf in enumerate(leaves):
        if not isinstance(leaf, torch.Tensor) or not leaf.numel():
            continue
        other = replacements[number] if number < len(replacements) else leaf
        if not isinstance(other, torch.Tensor) or other.shape != leaf.shape or same_values(other, leaf):
            other = perturbed(leaf, torch.Generator().manual_seed(number))
        if same_values(other, leaf):
            continue  # A mask, or numbers that are always the same.
        changed = tree_unflatten([*leaves[:number], other, *leaves[number + 1 :]], spec)
        if _alike(expected, _answer(model, changed)):
            yield f"input {number}"


def _unused_state(model: torch.nn.Module, inputs: list[Any]) -> Iterator[str]:
    state = declared_state(model)
    held = {name: tensor.detach().clone() for name, tensor in state.items()}
    expected = _answer(model, inputs)
    gradients = _with_gradient(model, inputs)
    # Running statistics in training mode are results.
    read = [name for name, tensor in state.items() if equal(tensor, held[name])]
    suspects = [name for name in read if state[name].is_floating_point() and name not in gradients]
    for name in suspects[:_MOST_SUSPECTS]:
        before = state[name].detach().clone()
        other = perturbed(before, torch.Generator().manual_seed(0))
        with torch.no_grad():
            state[name].copy_(other)
            unused = not same_values(other, before) and _alike(expected, _answer(model, inputs))
            state[name].copy_(before)
        if unused:
            yield name


def _with_gradient(model: torch.nn.Module, inputs: list[Any]) -> set[str]:
    """Names of parameters that the answer has a gradient for; none where it has no gradients."""
    parameters = dict(model.named_parameters(remove_duplicate=False))
    seed_everything(0)
    try:
        with torch.enable_grad():
            leaves = [leaf for leaf in _results(model(*_copied(inputs))) if leaf.requires_grad]
            gradients = torch.autograd.grad(
                sum((leaf * torch.rand_like(leaf)).sum() for leaf in leaves),  # type: ignore[arg-type]
                list(parameters.values()),
                allow_unused=True,
            )
    except (RuntimeError, NotImplementedError, TypeError, AttributeError):
        return set()
    pairs = zip(parameters, gradients, strict=True)
    return {name for name, gradient in pairs if gradient is not None and bool(gradient.any())}


@torch.no_grad()
def _answer(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    seed_everything(0)
    return [leaf.clone() for leaf in _results(model(*_copied(inputs)))]


def _results(result: Any) -> list[torch.Tensor]:
    leaves = [leaf for leaf in tree_leaves(result) if isinstance(leaf, (torch.Tensor, int, float))]
    return [leaf if isinstance(leaf, torch.Tensor) else torch.tensor(leaf) for leaf in leaves]


def _copied(inputs: list[Any]) -> list[Any]:
    leaves, spec = tree_flatten(inputs)
    copied: list[Any] = tree_unflatten(
        [leaf.detach().clone() if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves], spec
    )
    return copied


def _alike(expected: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return len(expected) == len(other) and all(map(_near, expected, other))


def _near(one: torch.Tensor, other: torch.Tensor) -> bool:
    one, other = readable(one), readable(other)
    if one.shape != other.shape or not one.is_floating_point():
        return one.shape == other.shape and torch.equal(one, other)
    wide, moved = one.double().nan_to_num(), other.double().nan_to_num()
    scale = wide.square().mean().sqrt().item() if wide.numel() else 0.0
    return bool(((wide - moved).abs() <= _NOISE * scale).all())
