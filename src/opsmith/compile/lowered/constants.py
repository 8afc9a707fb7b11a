"""Constant folding: what does not depend on an input is computed once, and neutral elements go."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx

from opsmith.compile.graph.aliasing import Sharing
from opsmith.compile.lowered.nodes import calls, replace, tensor_of, use_instead

aten = torch.ops.aten

#: Overloads with an operand that leaves the other one as it is, bit for bit. An added 0 is none of them for
#: floating point: it turns -0 into 0.
_NEUTRAL: dict[Any, int] = {
    aten.mul.Tensor: 1,
    aten.div.Tensor: 1,
    aten.sub.Tensor: 0,
    aten.bitwise_or.Scalar: 0,
    aten.bitwise_xor.Scalar: 0,
}
#: Elementwise overloads that are worth computing on one element of a uniform tensor.
_ELEMENTWISE = (
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.neg.default,
    aten.eq.Scalar,
    aten.ne.Scalar,
    aten.lt.Scalar,
    aten.le.Scalar,
    aten.gt.Scalar,
    aten.ge.Scalar,
    aten.logical_not.default,
    aten.bitwise_not.default,
    aten._to_copy.default,
    torch.ops.prims.convert_element_type.default,
)
#: Arguments that say where a result lies, not what it is.
_PLACEMENT = {"device", "layout", "memory_format", "non_blocking", "pin_memory"}


def fold_constants(graph: fx.Graph) -> int:
    """Drop neutral operands, and compute elementwise calls of uniform tensors."""
    return _drop_neutral(graph) + _fold_uniform(graph)


def _drop_neutral(graph: fx.Graph) -> int:
    sharing, fired = Sharing(graph), 0
    for node in calls(graph, *_NEUTRAL):
        operand, other = node.args[:2]
        neutral = type(other) in {int, float} and other == _NEUTRAL[node.target]
        if neutral and isinstance(operand, fx.Node) and tensor_of(operand) is not None and not node.kwargs:
            fired += use_instead(sharing, node, operand)
    return fired


def _fold_uniform(graph: fx.Graph) -> int:
    fired = 0
    for node in calls(graph, *_ELEMENTWISE):
        inputs, result = node.all_input_nodes, tensor_of(node)
        if result is None or not inputs or any(_uniform_value(one) is None for one in inputs):
            continue
        if not all(isinstance(size, int) for size in result.shape) or not result.is_contiguous():
            continue
        value = _on_one_element(node)
        with graph.inserting_before(node):
            new = graph.call_function(
                aten.full.default,
                (list(result.shape), value),
                {"dtype": result.dtype, "layout": torch.strided, "device": result.device, "pin_memory": False},
            )
        replace(node, new)
        fired += 1
    return fired


def _uniform_value(node: fx.Node) -> bool | int | float | None:
    """The value of all elements of ``full``, or None for any other node."""
    if node.op == "call_function" and node.target is aten.full.default:
        value = node.args[1]
        return value if isinstance(value, (bool, int, float)) else None
    return None


def _on_one_element(node: fx.Node) -> bool | int | float:
    def one_element(source: fx.Node) -> torch.Tensor:
        value, like = _uniform_value(source), tensor_of(source)
        assert value is not None
        assert like is not None
        return torch.full((1,) * like.dim(), value, dtype=like.dtype)

    from torch._subclasses.fake_tensor import unset_fake_temporarily

    kwargs: dict[str, Any] = {name: value for name, value in node.kwargs.items() if name not in _PLACEMENT}
    with unset_fake_temporarily():
        args = fx.map_arg(node.args, one_element)
        assert callable(node.target)
        result: bool | int | float = node.target(*args, **kwargs).item()
    return result
