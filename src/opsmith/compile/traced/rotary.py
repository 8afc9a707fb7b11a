"""Rotary embeddings that are written with complex numbers, in real ones.

Inductor generates no code for complex numbers: their product is a call of ATen between two copies. In real numbers
it is part of the kernel around it. Each product is the same sum of two products that complex multiplication is.
"""

from __future__ import annotations

import torch
from torch import fx

from opsmith.compile.traced.calls import Reader, read, tensor
from opsmith.compile.traced.fusion import Match, fuse


def make_rotary_real(graph: fx.Graph) -> int:
    """``view_as_real(view_as_complex(x) * turns)`` without complex numbers but ``turns``."""
    return fuse(graph, _rotary)


def _rotary(node: fx.Node) -> Match | None:
    reader, real = Reader(), read(node, "view_as_real")
    product = None if real is None else reader.take(real["input"], "mul")
    if product is None:
        return None
    operands = reader.operands(product, lambda side: read(side, "view_as_complex") is not None)
    if operands is None or not isinstance(operands[1], fx.Node):
        return None
    pairs, turns = read(operands[0], "view_as_complex"), operands[1]
    like = tensor(turns)
    # Two inputs with gradients would need complex ones; a table of turns has none.
    if pairs is None or like is None or not like.is_complex() or like.requires_grad:
        return None
    reader.inside.add(pairs.node)
    return Match(reader.inside, lambda graph: _turned(graph, pairs["input"], turns))


def _turned(graph: fx.Graph, pairs: fx.Node, turns: fx.Node) -> fx.Node:
    angles = graph.call_function(torch.view_as_real, (turns,))
    x, y = (graph.call_method("select", (pairs, -1, place)) for place in (0, 1))
    cosine, sine = (graph.call_method("select", (angles, -1, place)) for place in (0, 1))

    def call(function: object, one: fx.Node, other: fx.Node) -> fx.Node:
        return graph.call_function(function, (one, other))  # type: ignore[arg-type]

    turned_x = call(torch.sub, call(torch.mul, x, cosine), call(torch.mul, y, sine))
    turned_y = call(torch.add, call(torch.mul, x, sine), call(torch.mul, y, cosine))
    return graph.call_function(torch.stack, ([turned_x, turned_y], -1))
