"""Products with a diagonal matrix, as products with its diagonal.

``diag(d) @ x`` adds up K products for each element, of which all but one are with zero; ``d[:, None] * x`` is the one
that is left, exactly. Zeros times what is not finite, which are NaN, are left out too: an infinity in x stays in its
row.
"""

from __future__ import annotations

from typing import Any

from torch import fx

from opsmith.compile.traced.calls import read, tensor
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse


def scale_by_diagonals(graph: fx.Graph) -> int:
    """``diag(d) @ x`` and ``x @ diag(d)`` as scaled rows and columns."""
    return fuse(graph, _scaled)


def _scaled(node: fx.Node) -> Match | None:
    product, result = read(node, "matmul"), tensor(node)
    if product is None or result is None:
        return None
    for place, other in (("input", product["other"]), ("other", product["input"])):
        diagonal, x = _diagonal(product[place]), tensor(other)
        given = tensor(diagonal)
        if diagonal is None or x is None or given is None or x.dim() < 2 or not given.dtype == x.dtype == result.dtype:
            continue
        return Match({product[place]}, lambda graph, d=diagonal, x=other, place=place: _build(graph, d, x, place))  # type: ignore[misc]
    return None


def _diagonal(node: Any) -> fx.Node | None:
    """The vectors that a node is the diagonal matrices of."""
    diag, embedded = read(node, "diag"), read(node, "diag_embed")
    if diag is not None and not diag["diagonal"]:
        vector = tensor(diag["input"])
        return diag["input"] if vector is not None and vector.dim() == 1 else None
    if embedded is not None and not embedded["offset"] and embedded["dim1"] is None and embedded["dim2"] is None:
        return embedded["input"]  # type: ignore[no-any-return]
    return None


def _build(graph: fx.Graph, diagonal: fx.Node, x: fx.Node, place: str) -> fx.Node:
    d, given = map(GraphRecorder(graph), (diagonal, x))
    scaled = d.unsqueeze(-1) * given if place == "input" else given * d.unsqueeze(-2)
    node: fx.Node = scaled.node
    return node
