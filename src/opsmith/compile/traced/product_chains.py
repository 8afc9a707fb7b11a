"""Products of three matrices, multiplied in the cheaper order.

``(a @ b) @ c`` with a of ``M K``, b of ``K P`` and c of ``P N`` elements costs ``M K P + M P N`` products, and
``a @ (b @ c)`` costs ``K P N + M K N``. For a low-rank update, ``x @ (down @ up)``, or a chain that ends in a vector,
one is a multiple of the other. The order is changed only where that halves the products.

Accuracy: either way an entry is a sum of products of three factors, each rounded once for the inner product and once
for the outer one, and within ``(K + P) u sum |a| |b| |c|`` of the exact value, to first order in the unit roundoff u.
What the inner product is rounded to is the dtype asked for, as before.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opsmith.compile.traced.calls import read, tensor
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse


def order_products(graph: fx.Graph) -> int:
    """Multiply chains of three matrices in the cheaper order."""
    return fuse(graph, _matmul) + fuse(graph, _linear)


def _matmul(node: fx.Node) -> Match | None:
    outer = read(node, "matmul")
    if outer is None:
        return None
    inner = read(outer["input"], "matmul")
    if inner is not None and _halves(node, inner["input"], inner["other"], outer["other"], left_first=True):
        one, two, three = inner["input"], inner["other"], outer["other"]
        return Match({inner.node}, lambda graph: _recorded(graph, one, two, three, left_first=False))
    inner = read(outer["other"], "matmul")
    if inner is not None and _halves(node, outer["input"], inner["input"], inner["other"], left_first=False):
        one, two, three = outer["input"], inner["input"], inner["other"]
        return Match({inner.node}, lambda graph: _recorded(graph, one, two, three, left_first=True))
    return None


def _recorded(graph: fx.Graph, one: fx.Node, two: fx.Node, three: fx.Node, *, left_first: bool) -> fx.Node:
    a, b, c = map(GraphRecorder(graph), (one, two, three))
    node: fx.Node = ((a @ b) @ c if left_first else a @ (b @ c)).node
    return node


def _linear(node: fx.Node) -> Match | None:
    """A layer whose weight is a product: ``linear(x, up @ down)``."""
    layer = read(node, "linear")
    weight = None if layer is None else read(layer["weight"], "matmul")
    x, result = (None, None) if layer is None else (tensor(layer["input"]), tensor(node))
    if layer is None or weight is None or x is None or result is None or x.dtype != result.dtype:
        return None
    up, down = tensor(weight["input"]), tensor(weight["other"])
    if up is None or down is None or not up.dtype == down.dtype == x.dtype or not up.dim() == down.dim() == 2:
        return None
    rows, (outputs, rank), inputs = math.prod(x.shape[:-1]), up.shape, down.shape[1]
    if not _is_half(rows * rank * (inputs + outputs), outputs * rank * inputs + rows * inputs * outputs):
        return None

    def build(graph: fx.Graph) -> fx.Node:
        record = GraphRecorder(graph)
        low: Any = F.linear(record(layer["input"]), record(weight["other"]))
        result: Any = F.linear(low, record(weight["input"]), record(layer["bias"]))
        node: fx.Node = result.node
        return node

    return Match({weight.node}, build)


def _halves(node: fx.Node, one: Any, two: Any, three: Any, *, left_first: bool) -> bool:
    """Whether the other order than ``left_first`` does half of the products."""
    result, (a, b, c) = tensor(node), (tensor(factor) for factor in (one, two, three))
    if result is None or a is None or b is None or c is None or not a.dtype == b.dtype == c.dtype == result.dtype:
        return False
    if not (b.dim() >= 2 and (a.dim() >= 2 or b.dim() == 2) and (c.dim() >= 2 or b.dim() == 2)):
        return False
    counts = [math.prod(factor.shape[:-2]) for factor in (a, b, c)]
    left, right = _broadcast(counts[0], counts[1]), _broadcast(counts[1], counts[2])
    whole = None if left is None or right is None else _broadcast(left, right)
    if whole is None:
        return False
    rows, columns = a.shape[-2] if a.dim() >= 2 else 1, c.shape[-1] if c.dim() >= 2 else 1
    first, second = b.shape[-2:]
    from_left = left * rows * first * second + whole * rows * second * columns
    from_right = right * first * second * columns + whole * rows * first * columns
    return _is_half(from_right, from_left) if left_first else _is_half(from_left, from_right)


def _broadcast(one: Any, other: Any) -> Any:
    """How many matrices two batches make together; None where nobody knows which of them is the larger."""
    if statically_known_true(other == 1) or statically_known_true(one == other):
        return one
    return other if statically_known_true(one == 1) else None


def _is_half(new: Any, old: Any) -> bool:
    return statically_known_true(2 * new <= old)
