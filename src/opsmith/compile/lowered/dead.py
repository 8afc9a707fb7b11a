"""Dead code: calls that nobody uses and that do nothing else."""

from __future__ import annotations

from torch import fx

from opsmith.compile.graph.effects import has_effect


def drop_dead_code(graph: fx.Graph) -> int:
    """Erase what does not reach an output or an effect."""
    fired = 0
    for node in reversed(list(graph.nodes)):
        if node.op in {"call_function", "get_attr"} and not node.users and not has_effect(node):
            graph.erase_node(node)
            fired += 1
    return fired
