"""Why a call goes to PyTorch's own kernel, and the guards that find out before a kernel is called.

Tensors of other layouts (sparse, quantised, nested, mkldnn) and functorch's wrappers need no guard: the
dispatcher resolves them under keys of their own, above the one that kernels are registered under.
"""

from __future__ import annotations

import enum
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.nn import Parameter

from opsmith.aten.arguments import tensors_in


class Fallback(enum.StrEnum):
    """Why a call was answered by PyTorch's own kernel."""

    DECLINED = "declined"
    RAISED = "raised"
    UNLOADABLE = "unloadable"
    DTYPE = "dtype"
    SUBCLASS = "subclass"
    LAZY = "lazy"
    DEVICE = "device"
    DESTINATION = "destination"
    RANDOM = "random"
    TRACED = "traced"
    NEEDS_GRADIENT = "needs_gradient"


#: What kernels are asked for. Complex numbers, quantised integers and the 8-bit floats have rules of
#: their own that a kernel for the others seldom knows.
SERVED_DTYPES = frozenset(
    {
        torch.bool,
        torch.uint8,
        torch.int8,
        torch.int16,
        torch.int32,
        torch.int64,
        torch.float16,
        torch.bfloat16,
        torch.float32,
        torch.float64,
    }
)


def obstacle(values: Iterable[Any]) -> Fallback | None:
    """Why no kernel is asked to answer a call with these arguments, or None."""
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            if value.dtype not in SERVED_DTYPES:
                return Fallback.DTYPE
        elif kind is list or kind is tuple:
            found = obstacle(value)
            if found is not None:
                return found
        elif isinstance(value, Tensor):
            return Fallback.SUBCLASS
        elif kind is complex:
            return Fallback.DTYPE
    return None


def on_several_devices(values: Sequence[Any]) -> bool:
    """Whether tensors lie on different devices; a 0-dim CPU tensor beside others counts as well."""
    first = None
    for value in values:
        kind = type(value)
        if kind is list or kind is tuple:
            return len({tensor.get_device() for tensor in tensors_in(values)}) > 1
        if kind is Tensor or kind is Parameter:
            index = value.get_device()
            if first is None:
                first = index
            elif index != first:
                return True
    return False


def has_lazy(values: Iterable[Any]) -> bool:
    """Whether a tensor is negated lazily, as imaginary parts of conjugates are, or stands for zeros without memory."""
    return any(tensor.is_neg() or tensor._is_zerotensor() for tensor in tensors_in(values))


def gradient_needed(values: Iterable[Any]) -> bool:
    """Whether autograd records what is done with these arguments, backward or forward."""
    if forward_ad._current_level >= 0:
        return True
    return torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors_in(values))
