"""What is traced: a model, what it is called with, and what its training minimises."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec
import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.errors import UnknownName


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """How large the inputs are; None leaves it to the model.

    Attributes:
        batch_size: samples of a batch.
        sequence_length: tokens of a sample.
        image_size: height and width of an image in pixels.
    """

    batch_size: int | None = None
    sequence_length: int | None = None
    image_size: int | None = None


def mean_of_outputs(output: Any) -> torch.Tensor:
    """A loss for outputs that nobody said anything about: every one of them gets a gradient."""
    tensors = [leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor)]
    means = [leaf.float().mean() for leaf in tensors if leaf.is_floating_point() and leaf.requires_grad]
    return torch.stack(means).sum()


def classification_loss(output: Any) -> torch.Tensor:
    """Cross entropy of logits ``(N, classes, ...)``."""
    targets = torch.zeros(output.shape[0], *output.shape[2:], dtype=torch.long, device=output.device)
    return torch.nn.functional.cross_entropy(output, targets)


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A model with everything that one call of it needs.

    Attributes:
        module: the model.
        args: positional inputs.
        kwargs: inputs by name.
        training_kwargs: inputs by name of a training step only, such as labels.
        loss: what training minimises, from what the model returned.
        follow_up: what inference does with the result of a call, such as the next token's call.
    """

    module: torch.nn.Module
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    training_kwargs: Mapping[str, Any] = field(default_factory=dict)
    loss: Callable[[Any], torch.Tensor] = mean_of_outputs
    follow_up: Callable[[Any], Any] | None = None

    def inputs_in(self, dtype: torch.dtype) -> tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]]:
        """All three groups of inputs, with floating-point ones in ``dtype``."""

        def convert(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(dtype) if tensor.is_floating_point() else tensor

        values = (self.args, dict(self.kwargs), dict(self.training_kwargs))
        converted: tuple[tuple[Any, ...], dict[str, Any], dict[str, Any]] = tree_map_only(torch.Tensor, convert, values)
        return converted


def in_dtype(module: torch.nn.Module, dtype: torch.dtype) -> None:
    """Convert what is floating point; ``Module.to`` would take complex numbers along and lose half of them."""
    module._apply(lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor)


class Source(Protocol):
    """Where a model comes from."""

    def build(self, config: Mapping[str, Any], sizes: Sizes, dtype: torch.dtype) -> Subject:
        """Make the model with random weights, on torch's default device.

        Args:
            config: arguments of the model by name, on top of its own.
            sizes: of the inputs.
            dtype: of the weights.

        An argument that the model does not take raises what its library raises.
        """
        ...


def unknown_model(kind: str, name: str, known: Iterable[str]) -> UnknownName:
    """The error for a name of no model; it lists the nearest ones only, for there are hundreds."""
    return UnknownName(f"{kind} model", name, difflib.get_close_matches(name, sorted(known), n=6, cutoff=0.0))
