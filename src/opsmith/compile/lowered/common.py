"""Common subexpressions: a call that was made before, with the same arguments, is not made again."""

from __future__ import annotations

from typing import Any

import torch
from torch import fx
from torch.utils._pytree import tree_flatten

from opsmith.compile.graph.aliasing import Sharing
from opsmith.compile.graph.effects import has_effect

#: Results that somebody may write to later, or that are different each time.
_OWN_RESULT = (torch.Tag.nondeterministic_seeded, torch.Tag.inplace_view)


def share_common_calls(graph: fx.Graph) -> int:
    """Use the earlier of two equal calls for both."""
    seen: dict[Any, fx.Node] = {}
    sharing, fired = Sharing(graph), 0
    written = _written(graph)
    for node in list(graph.nodes):
        if not _sharable(node) or node in written:
            continue
        key = _key(node)
        earlier = seen.setdefault(key, node) if key is not None else node
        if earlier is not node:
            fired += sharing.stand_in(node, earlier)
    return fired


def _sharable(node: fx.Node) -> bool:
    target = node.target
    if node.op != "call_function" or has_effect(node):
        return False
    if not isinstance(target, torch._ops.OpOverload):
        return getattr(target, "__module__", "") == "_operator"
    created = target.namespace == "aten" and str(target).startswith(("aten.empty", "aten.new_empty"))
    return not created and not any(tag in target.tags for tag in _OWN_RESULT)


def _written(graph: fx.Graph) -> set[fx.Node]:
    """Calls whose results a later call writes to: sharing them would share the writing."""
    return {source for node in graph.nodes if has_effect(node) for source in node.all_input_nodes}


def _key(node: fx.Node) -> Any:
    leaves, structure = tree_flatten((node.args, node.kwargs))
    key = (node.target, tuple((type(leaf), leaf) for leaf in leaves), structure)
    try:
        hash(key)
    except TypeError:  # A symbolic size as it stands, not as a node.
        return None
    # 0.0 and -0.0 are equal and not the same.
    return (key, tuple(str(leaf) for leaf in leaves if isinstance(leaf, float)))
