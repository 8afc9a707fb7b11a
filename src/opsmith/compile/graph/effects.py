"""What calls of a graph do besides returning a result, and which calls nothing may be moved across."""

from __future__ import annotations

import functools
import inspect
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx
from torch.utils._pytree import tree_leaves

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

#: Named as functions are that write.
_READING_OPERATORS = {operator.and_, operator.or_, operator.not_, operator.is_}

_WRITING_METHODS = {f"__{one.__name__}__" for one in _WRITING_OPERATORS}

#: Functions that write to some arguments if another one, whose default comes last, is true.
_CHANGING: dict[Any, tuple[Sequence[str], str, bool]] = {
    F.batch_norm: (("running_mean", "running_var"), "training", False),
    F.instance_norm: (("running_mean", "running_var"), "use_input_stats", True),
    F.embedding: (("weight",), "max_norm", False),
    F.embedding_bag: (("weight",), "max_norm", False),
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
        return name in _WRITING_METHODS or (name.endswith("_") and not name.endswith("__"))
    if node.op != "call_function":
        return node.op == "call_module"
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        return bool(target._schema.is_mutable)
    if isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator)):
        return True  # One of its overloads, or its body, might.
    name = getattr(target, "__name__", "")
    named_so = name.endswith("_") and not name.endswith("__") and target not in _READING_OPERATORS
    return target in _WRITING_OPERATORS or named_so or _in_place(node) or bool(_statistics(node))


def written_by(node: fx.Node) -> Sequence[fx.Node]:
    """The nodes whose results a call writes to; all that it was given where nobody knows which."""
    if not writes(node):
        return ()
    target: Any = node.target
    if isinstance(target, torch._ops.OpOverload):
        parameters = target._schema.arguments
        places = [place for place, one in enumerate(parameters) if one.alias_info and one.alias_info.is_write]
        given = [node.args[place] for place in places if place < len(node.args)]
        return _nodes([*given, *(node.kwargs.get(parameters[place].name) for place in places)])
    if "out" in node.kwargs:
        return _nodes(node.kwargs["out"])
    name = str(target) if node.op == "call_method" else getattr(target, "__name__", "_")
    opaque = isinstance(target, (torch._ops.OpOverloadPacket, torch._ops.HigherOrderOperator))
    if node.op == "call_module" or opaque or not node.args or (node.op == "call_function" and name.startswith("_")):
        return tuple(node.all_input_nodes)  # torch._foreach_add_ and the like among them.
    return _nodes(_statistics(node) or node.args[0])


def _nodes(arguments: Any) -> tuple[fx.Node, ...]:
    return tuple(leaf for leaf in tree_leaves(arguments) if isinstance(leaf, fx.Node))


def _statistics(node: fx.Node) -> list[fx.Node]:
    """The running statistics, or the table, that a function of ``torch.nn.functional`` changes."""
    if node.op != "call_function" or node.target not in _CHANGING:
        return []
    names, switch, default = _CHANGING[node.target]
    given: dict[str, Any] = {**dict(zip(_parameters(node.target), node.args, strict=False)), **node.kwargs}
    return [given[name] for name in names if given.get(switch, default) and isinstance(given.get(name), fx.Node)]


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
    return writes(node) or changes_state(node) or (bool(node.is_impure()) and not _drops_nothing(node))


def _drops_nothing(node: fx.Node) -> bool:
    """Whether a call could draw random numbers for its dropout, and has none."""
    if not isinstance(node.target, torch._ops.OpOverload):
        return False
    names = [one.name for one in node.target._schema.arguments]
    if "dropout_p" not in names:
        return False
    given: dict[str, Any] = {**dict(zip(names, node.args, strict=False)), **node.kwargs}
    return bool(given.get("dropout_p", 0.0) == 0)


def _in_place(node: fx.Node) -> bool:
    names = _parameters(node.target) if callable(node.target) else []
    place = names.index("inplace") if "inplace" in names else len(node.args)
    return place < len(node.args) and bool(node.args[place])


@functools.cache
def _parameters(function: Callable[..., Any]) -> Sequence[str]:
    """The names of a function's parameters; none where it does not say."""
    try:
        return list(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return []
