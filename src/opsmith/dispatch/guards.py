"""Why a call goes to PyTorch's own kernel, and the guards that find out before a kernel is called.

Tensors of other layouts (sparse, quantised, nested, mkldnn) and functorch's wrappers need no guard: the
dispatcher resolves them under keys of their own, above the one that kernels are registered under.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch._ops import OpOverload
from torch.autograd import forward_ad
from torch.nn import Parameter

from opsmith.aten.arguments import tensors_in
from opsmith.aten.schemas import overload
from opsmith.core.op import OpSchema
from opsmith.dispatch.exclusions import DROPOUT


class Fallback(enum.StrEnum):
    """Why a call was answered by PyTorch's own kernel."""

    DECLINED = "declined"
    RAISED = "raised"
    UNLOADABLE = "unloadable"
    DTYPE = "dtype"
    SUBCLASS = "subclass"
    NUMBER = "number"
    LAZY = "lazy"
    DEVICE = "device"
    DESTINATION = "destination"
    RANDOM = "random"
    TRACED = "traced"
    NEEDS_GRADIENT = "needs_gradient"


#: Reasons that hold for all calls with arguments of the same dtypes, devices, layouts and numbers.
LASTING = frozenset({Fallback.DTYPE, Fallback.NUMBER, Fallback.LAZY, Fallback.DEVICE, Fallback.RANDOM})

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

#: Packets that ``torch.jit.trace`` does not write down: it does so with what they call, which has to be PyTorch's.
_LOOKED_INTO_BY_JIT = frozenset(
    {
        *("convolution", "conv1d", "conv2d", "conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d"),
        *("lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell"),
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


def special_guard(
    schema: OpSchema, device_type: str
) -> Callable[[tuple[Any, ...], dict[str, Any]], Fallback | None] | None:
    """Guards that few ops need: most are resolved by torch before a backend's kernel is called."""
    lazy = _takes_lazy(schema)
    # On a CPU all tensors are on the CPU, or another device's key would have taken the call.
    several = device_type != "cpu"
    dropout = _position(overload(schema.name), DROPOUT)
    looked_into = schema.packet in _LOOKED_INTO_BY_JIT
    if not (lazy or several or looked_into) and dropout is None:
        return None

    def guard(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fallback | None:
        values = (*args, *kwargs.values()) if kwargs else args
        if dropout is not None and (args[dropout] if dropout < len(args) else kwargs.get(DROPOUT, 0)):
            return Fallback.RANDOM
        if looked_into and torch._C._get_tracing_state() is not None:
            return Fallback.TRACED
        if several and on_several_devices(values):
            return Fallback.DEVICE
        return Fallback.LAZY if lazy and has_lazy(values) else None

    return guard


def bypass_guard(schema: OpSchema, *, under_jit: bool) -> Callable[[list[Tensor]], bool] | None:
    """True for a call of these tensors that must bypass the plans; None if no call ever does.

    A signature does not tell it from a call that a plan serves.

    Args:
        schema: the overload.
        under_jit: whether ``torch.jit.trace`` may reach the kernel.
    """
    looked_into = under_jit and schema.packet in _LOOKED_INTO_BY_JIT
    if not looked_into:
        return has_lazy if _takes_lazy(schema) else None
    traced = torch._C._get_tracing_state
    return lambda _: traced() is not None


def _takes_lazy(schema: OpSchema) -> bool:
    """Whether an op is handed tensors that are negated lazily, or zeros without memory, as they are.

    It has an entry of its own under their keys: what has one for the latter that goes on to a kernel has both.
    """
    return torch._C._dispatch_has_kernel_for_dispatch_key(overload(schema.name).name(), "Negative")


def _position(op: OpOverload, name: str) -> int | None:
    """Where an overload takes an argument of this name, if it does."""
    return next((index for index, argument in enumerate(op._schema.arguments) if argument.name == name), None)
