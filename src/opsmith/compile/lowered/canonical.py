"""One spelling for what has several, so that later passes, and common subexpressions, find it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import fx

from opsmith.compile.graph.aliasing import Sharing
from opsmith.compile.lowered.nodes import calls, use_instead, value_of

aten = torch.ops.aten

#: The value of an integer or float tensor is the same in each of these, and in every one above it.
_WIDENING = (
    (torch.bool, torch.uint8, torch.int16, torch.int32, torch.int64),
    (torch.bool, torch.int8, torch.int16, torch.int32, torch.int64),
    (torch.float16, torch.float32, torch.float64),
    (torch.bfloat16, torch.float32, torch.float64),
)


def canonicalise(graph: fx.Graph) -> int:
    """Rewrite casts, squares and double negations to their shortest exact form."""
    rules: dict[Any, Callable[[fx.Node], fx.Node | None]] = {
        aten.pow.Tensor_Scalar: _square,
        aten.neg.default: _double_negation,
        torch.ops.prims.convert_element_type.default: _cast,
        aten._to_copy.default: _cast,
    }
    sharing, fired = Sharing(graph), 0
    for node in calls(graph, *rules):
        new = rules[node.target](node)
        if new is not None:
            fired += use_instead(sharing, node, new)
    return fired


def _square(node: fx.Node) -> fx.Node | None:
    """``x ** 2`` is ``x * x``, and ``x ** 1`` is ``x``."""
    base, exponent = node.args
    if not isinstance(base, fx.Node) or not isinstance(exponent, (int, float)):
        return None
    if exponent == 1 and value_of(base).dtype == value_of(node).dtype:
        return base
    if exponent != 2 or value_of(base).dtype != value_of(node).dtype or not value_of(base).is_floating_point():
        return None
    with node.graph.inserting_before(node):
        return node.graph.call_function(aten.mul.Tensor, (base, base))


def _double_negation(node: fx.Node) -> fx.Node | None:
    inner = node.args[0]
    return inner.args[0] if isinstance(inner, fx.Node) and inner.target is aten.neg.default else None  # type: ignore[return-value]


def _cast(node: fx.Node) -> fx.Node | None:
    """A cast to what the tensor is already, and one back from a dtype that holds every value of it."""
    if node.target is aten._to_copy.default and set(node.kwargs) != {"dtype"}:
        return None
    source, wide = node.args[0], value_of(node.args[0]).dtype
    target = value_of(node).dtype
    if not isinstance(source, fx.Node):
        return None
    if target == wide:
        return source
    if source.target is not node.target or set(source.kwargs) != set(node.kwargs):
        return None
    first = source.args[0]
    narrow = value_of(first).dtype
    lossless = any(narrow in chain and wide in chain[chain.index(narrow) :] for chain in _WIDENING)
    return first if isinstance(first, fx.Node) and narrow == target and lossless else None
