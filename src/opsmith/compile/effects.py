"""What calls of a graph do besides returning a result, and which calls nothing may be moved across."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable
from typing import Any

import torch
from torch import fx

_WRITING_OPERATORS = {
    operator.setitem,
    operator.delitem,
    operator.iadd,
    operator.iand,
    operator.ifloordiv,
    operator.ilshift,
    operator.imatmul,
    operator.imod,
    operator.imul,
    operator.ior,
    operator.ipow,
    operator.irshift,
    operator.isub,
    operator.itruediv,
    operator.ixor,
}

#: Functions of the modules below that only report what is used.
_HARMLESS = {"_log_api_usage_once"}
#: Modules whose functions switch autocast, gradients or transforms on and off in the middle of a graph.
_STATE_MODULES = ("torch._C", "torch.amp", "torch._functorch", "torch.autograd", "torch.func")


def writes(node: fx.Node) -> bool:
    """Whether a call writes to a tensor that it was given, or may do so."""
    if "out" in node.kwargs or node.kwargs.get("inplace"):
        return True
    if node.op == "call_method":
        name = str(node.target)
        return name.endswith("_") and not name.endswith("__")
    if node.op != "call_function":
        return node.op == "call_module"
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    if isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return True  # One of its overloads, or its body, might.
    name = getattr(target, "__name__", "")
    return target in _WRITING_OPERATORS or (name.endswith("_") and not name.endswith("__")) or _in_place(node)


def changes_state(node: fx.Node) -> bool:
    """Whether a call switches what later calls mean: autocast, gradients, transforms."""
    module = getattr(node.target, "__module__", None) or ""
    switching = any(module == one or module.startswith(f"{one}.") for one in _STATE_MODULES)
    builtin = isinstance(node.target, type(torch.add)) and module.startswith("torch._C")
    tensor_op = builtin and hasattr(torch.ops.aten, getattr(node.target, "__name__", ""))
    harmless = tensor_op or getattr(node.target, "__name__", "") in _HARMLESS
    return node.op == "call_function" and switching and not harmless


def has_effect(node: fx.Node) -> bool:
    """Whether a call has to stay although nobody uses its result: it writes, draws random numbers or checks."""
    return writes(node) or changes_state(node) or bool(node.is_impure())


def _in_place(node: fx.Node) -> bool:
    place = _place_of_inplace(node.target) if callable(node.target) else None
    return place is not None and len(node.args) > place and bool(node.args[place])


@functools.cache
def _place_of_inplace(function: Callable[..., Any]) -> int | None:
    try:
        names = list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return None
    return names.index("inplace") if "inplace" in names else None
