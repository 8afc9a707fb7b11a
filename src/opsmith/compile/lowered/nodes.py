"""Reading and replacing nodes of a lowered graph."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_map_only

from opsmith.compile.graph.aliasing import Sharing
from opsmith.compile.graph.values import same


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


def use_instead(sharing: Sharing, node: fx.Node, other: fx.Node) -> bool:
    """Let what a rule found be used instead of ``node``.

    Args:
        sharing: of the graph.
        node: goes, unless it stays.
        other: a call that the rule has just made, or an earlier node, which has to look the same and may have to share
            no memory: see :meth:`~opsmith.compile.graph.aliasing.Sharing.stand_in`.

    Returns:
        Whether ``other`` is used now.
    """
    if "val" not in other.meta:
        sharing.replace(node, other)
        return True
    return same(value_of(other), value_of(node)) and sharing.stand_in(node, other)


def replace_by_calls(node: fx.Node, function: Callable[[Sequence[Any], Mapping[str, Any]], Any]) -> bool:
    """Let the calls of a function of the node's arguments stand in its place, if they return what looks the same.

    Args:
        node: on fake tensors.
        function: of positional and named arguments, made of calls of torch; it returns one tensor, as the node does.

    Returns:
        Whether they do: shapes, dtypes, strides and devices.
    """
    sources = node.all_input_nodes

    def on_tensors(*tensors: torch.Tensor) -> Any:
        given = dict(zip(sources, tensors, strict=True))
        args, kwargs = tree_map_only(fx.Node, given.__getitem__, (node.args, dict(node.kwargs)))
        return function(args, kwargs)

    calls_alone = make_fx(on_tensors)(*map(value_of, sources)).graph
    (result,) = calls_alone.output_node().all_input_nodes
    if not same(value_of(result), value_of(node)):
        return False
    placeholders = calls_alone.find_nodes(op="placeholder")
    with node.graph.inserting_before(node):
        copied = node.graph.graph_copy(calls_alone, dict(zip(placeholders, sources, strict=True)))
    assert isinstance(copied, fx.Node)
    replace(node, copied)
    return True
