"""Reading and replacing nodes of a lowered graph."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import fx


def calls(graph: fx.Graph, *targets: Any) -> Iterator[fx.Node]:
    """The calls of some overloads, in the order of the graph; nodes may be replaced on the way."""
    wanted = set(targets)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in wanted:
            yield node


def value_of(node: Any) -> Any:
    """The fake result that AOTAutograd left in a node."""
    return node.meta["val"]


def tensor_of(node: Any) -> torch.Tensor | None:
    """The fake tensor that a node returns, or None if it returns something else."""
    value = node.meta.get("val") if isinstance(node, fx.Node) else None
    return value if isinstance(value, torch.Tensor) else None


def replace(node: fx.Node, new: fx.Node) -> None:
    """Let ``new`` be used instead of ``node``, which goes; later rules read the result off a new node too."""
    new.meta.setdefault("val", node.meta["val"])
    node.replace_all_uses_with(new)
    node.graph.erase_node(node)
