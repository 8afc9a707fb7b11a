"""``module.to(...)`` for modules whose parameters are fake tensors.

torch exchanges a fake parameter with its converted one in place, which it refuses where anything
refers to the parameter weakly, as fake tensor mode itself does. Here the module gets new ones.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any, cast
from unittest import mock

import torch

Convert = Callable[[torch.Tensor], torch.Tensor]


@contextlib.contextmanager
def replacing_conversions() -> Iterator[None]:
    """Within it ``Module.to``, ``half``, ``cuda`` and their like put new parameters in the place of the old."""
    converted: dict[torch.Tensor, torch.Tensor] = {}
    depth = 0

    def apply(module: torch.nn.Module, convert: Convert, recurse: bool = True) -> torch.nn.Module:  # noqa: FBT001, FBT002 - torch's own signature
        nonlocal depth
        depth += 1
        try:
            for child in module.children() if recurse else ():
                child._apply(convert)
            for tensors in (module._parameters, module._buffers):
                own = cast("dict[str, Any]", tensors)
                own.update({name: _replace(t, convert, converted) for name, t in own.items() if t is not None})
        finally:
            depth -= 1
            if depth == 0:
                converted.clear()  # What modules share is shared within one conversion.
        return module

    with mock.patch.object(torch.nn.Module, "_apply", apply):
        yield


def _replace(tensor: torch.Tensor, convert: Convert, converted: dict[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    if tensor not in converted:
        plain = tensor.detach()
        changed = convert(plain)
        if changed is plain:
            changed = tensor
        elif isinstance(tensor, torch.nn.Parameter):
            changed = torch.nn.Parameter(changed, tensor.requires_grad)
        converted[tensor] = changed
    return converted[tensor]
