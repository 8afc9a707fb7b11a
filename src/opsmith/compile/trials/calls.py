"""Calls of a lowered graph as they can be made by themselves: on tensors of fixed sizes whose numbers do not matter."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_leaves

from opsmith.core.dtypes import SHORT_NAMES

#: On a CPU Inductor's code and its libraries are what there is.
DEVICE_TYPES = frozenset({"cuda"})


@dataclass(frozen=True)
class TriedCall:
    """A call on fake tensors.

    Attributes:
        op: ATen's overload.
        args: of the call.
        kwargs: of the call.
        device: of all tensors.
    """

    op: torch._ops.OpOverload
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    device: torch.device

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Its arguments that are tensors, also those in lists."""
        return [leaf for leaf in tree_leaves((self.args, self.kwargs)) if isinstance(leaf, torch.Tensor)]

    @property
    def packet(self) -> str:
        """``mm``."""
        return str(self.op._schema.name.partition("::")[2])

    @property
    def text(self) -> str:
        """The call with dtypes, shapes, strides where they are not row-major, and numbers."""
        named = [f"{name}={_text(value)}" for name, value in self.kwargs.items()]
        return f"{self.packet}({', '.join([*map(_text, self.args), *named])})"


def read_call(node: fx.Node) -> TriedCall | None:
    """The call of a node, or None where it cannot be made by itself.

    That takes tensors of floating point on one GPU: what a call does with indices depends on values that nobody has.
    """
    args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda one: one.meta["val"])
    leaves = tree_leaves((args, kwargs))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    if any(isinstance(leaf, (torch.SymInt, torch.SymFloat, torch.SymBool)) for leaf in leaves):
        return None
    devices = {tensor.device for tensor in tensors}
    drawn = all(can_be_drawn(one) and one.dtype.is_floating_point for one in tensors)
    if len(devices) != 1 or not may_be_tried_on(tensors[0].device) or not drawn:
        return None
    assert isinstance(node.target, torch._ops.OpOverload)
    return TriedCall(node.target, args, kwargs, devices.pop())


def without_bias(call: TriedCall) -> TriedCall:
    """A convolution as Inductor makes it: it adds the bias in another kernel, with what comes after."""
    if call.op is not torch.ops.aten.convolution.default:
        return call
    return replace(call, args=(*call.args[:2], None, *call.args[3:]))


def may_be_tried_on(device: torch.device) -> bool:
    """Whether there is more than one way to make calls on a device."""
    return device.type in DEVICE_TYPES


def can_be_drawn(tensor: torch.Tensor) -> bool:
    """Whether a trial can make a tensor of that kind: of fixed sizes, of floating point or a mask."""
    fixed = all(isinstance(size, int) for size in (*tensor.shape, *tensor.stride()))
    drawn = tensor.dtype.is_floating_point or tensor.dtype == torch.bool
    return fixed and tensor.layout == torch.strided and drawn


def _text(value: Any) -> str:
    if isinstance(value, torch.Tensor):
        strides = "" if value.is_contiguous() else f" {tuple(value.stride())}"
        return f"{SHORT_NAMES[str(value.dtype).removeprefix('torch.')]}{list(value.shape)}{strides}"
    if isinstance(value, (list, tuple)):
        return f"({', '.join(map(_text, value))})"
    return str(value)
