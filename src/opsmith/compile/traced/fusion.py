"""Replacing a pattern of a traced graph by one call, safely.

A pattern is replaced where its inner results are used nowhere else, where nothing between its first and its last
call writes to a tensor or switches autocast or gradients, and where the graph, run again on fake tensors, returns
what it did: shapes, dtypes, strides, devices and the need of a gradient. The gradient of a replacement remembers other
tensors than that of the pattern, so with one nothing that the result depends on may be written later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from opsmith.compile.graph.aliasing import Storage, storages
from opsmith.compile.graph.effects import changes_state, has_effect, writes, written_by
from opsmith.compile.graph.values import Values
from opsmith.compile.traced.calls import tensor


@dataclass(frozen=True)
class Match:
    """A pattern that was found.

    Attributes:
        inside: its nodes but the last: nobody else may use them. A node that the replacement takes as an
            input is none of them.
        build: makes the replacement, before the last node.
    """

    inside: set[fx.Node]
    build: Callable[[fx.Graph], fx.Node]


Find = Callable[[fx.Node], Match | None]


class GraphRecorder:
    """Makes tensors of nodes to compute with: every call on one is recorded where the graph inserts nodes.

    Args:
        graph: that grows.
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._tracer = fx.proxy.GraphAppendingTracer(graph)

    def __call__(self, node: Any) -> Any:
        """A node as a tensor; what is no node is itself."""
        return fx.Proxy(node, self._tracer) if isinstance(node, fx.Node) else node


def fuse(graph: fx.Graph, find: Find) -> int:
    """Replace what ``find`` finds for a last node, from the end of the graph to its beginning."""
    values, barriers = Values(graph), _Barriers(graph)
    fired = 0
    for node in reversed(list(graph.nodes)):
        if node.op not in {"call_function", "call_method"} or tensor(node) is None or node._erased:
            continue
        match = find(node)
        if match is None or not _private(node, match.inside) or not barriers.free(node, match.inside):
            continue
        fired += _replace(graph, node, match, values)
    return fired


class _Barriers:
    """Where in a graph something is written or switched, as counts up to each node."""

    def __init__(self, graph: fx.Graph) -> None:
        self._before: dict[fx.Node, int] = {}
        self._writes: list[fx.Node] = []
        count = 0
        for node in graph.nodes:
            self._before[node] = count
            called = node.op in {"call_function", "call_method", "call_module"}
            written = called and writes(node)
            count += written or (called and changes_state(node))
            if written:
                self._writes.append(node)
        self._switched = _switched(graph)

    def free(self, last: fx.Node, inside: set[fx.Node]) -> bool:
        """Whether nothing happens between a pattern's first and last node; and it isn't in a switched region.

        With a gradient, nothing may be written afterwards that it could read: the result, or what that depends on, of
        which the partitioner may compute a part once more in the backward graph.
        """
        counts = {self._before.get(node) for node in (last, *inside)}
        if len(counts) != 1 or None in counts or last in self._switched:
            return False
        result = tensor(last)
        return result is None or not result.requires_grad or not self._changed_after(last)

    def _changed_after(self, last: fx.Node) -> bool:
        written = _memory(target for write in self._writes if last < write for target in written_by(write))
        return bool(written) and bool(written & _memory(_with_ancestors(last)))


def _with_ancestors(node: fx.Node) -> set[fx.Node]:
    found, waiting = {node}, [node]
    while waiting:
        new = [one for one in waiting.pop().all_input_nodes if one not in found]
        found.update(new)
        waiting.extend(new)
    return found


def _memory(nodes: Iterable[fx.Node]) -> frozenset[Storage]:
    return frozenset().union(*(storages(node.meta.get("example_value")) for node in nodes))


def _switched(graph: fx.Graph) -> set[fx.Node]:
    """Nodes for which autocast, gradients or transforms are not what they are around the graph.

    Fake tensors are run as things are around it.
    """
    found: set[fx.Node] = set()
    regions, grad, unknown = 0, torch.is_grad_enabled(), False
    for node in graph.nodes:
        if node.op == "call_function" and changes_state(node):
            name = getattr(node.target, "__name__", "")
            if name == "_enter_autocast":
                regions += 1
            elif name == "_exit_autocast":
                regions -= 1
            elif name == "_set_grad_enabled":
                grad = bool(node.args[0])
            else:
                unknown = True
        if regions or unknown or grad != torch.is_grad_enabled():
            found.add(node)
    return found


def _private(last: fx.Node, inside: set[fx.Node]) -> bool:
    known = {last, *inside}
    return all(user in known for node in inside for user in node.users)


def _replace(graph: fx.Graph, node: fx.Node, match: Match, values: Values) -> int:
    before = node.prev
    with graph.inserting_before(node):
        new = match.build(graph)
    accepted = _accepted(node, new, values) or _accepted_contiguous(graph, node, new, values)
    if accepted:
        _drop(node, match.inside)
        return 1
    for one in reversed(list(_between(before, node))):
        graph.erase_node(one)
    return 0


def _accepted_contiguous(graph: fx.Graph, node: fx.Node, new: fx.Node, values: Values) -> bool:
    """The same with the layout of before, if that was contiguous: the copy is part of the next kernel, or small."""
    old = tensor(node)
    if old is None or not old.is_contiguous():
        return False
    with graph.inserting_before(node):
        contiguous = graph.call_method("contiguous", (new,))
    return _accepted(node, contiguous, values)


def _between(first: fx.Node, last: fx.Node) -> Iterator[fx.Node]:
    node = first.next
    while node is not last:
        yield node
        node = node.next


def _accepted(node: fx.Node, new: fx.Node, values: Values) -> bool:
    """Let ``new`` stand for ``node`` if the graph then returns what it did; else leave all as it was."""
    users = list(node.users)
    node.replace_all_uses_with(new)
    try:
        updated = values.updated()
        kept = _fits(updated.get(new), values.of(node)) and values.complaint(updated) is None
    except Exception:  # noqa: BLE001 - a call that refuses the new layout: any error of torch's
        kept = False
    if kept:
        values.store(updated)
        return True
    for user in users:
        user.replace_input_with(new, node)
    return False


def _fits(new: Any, old: Any) -> bool:
    """Whether two results differ in their strides at most."""
    if not (isinstance(new, torch.Tensor) and isinstance(old, torch.Tensor)):
        return False
    return (
        (new.dtype, new.device, new.requires_grad) == (old.dtype, old.device, old.requires_grad)
        and new.dim() == old.dim()
        and statically_known_true(sym_eq(tuple(new.shape), tuple(old.shape)))
    )


def _drop(last: fx.Node, inside: set[fx.Node]) -> None:
    """Erase a pattern that nobody uses any more, from its end."""
    waiting = [last]
    while waiting:
        node = waiting.pop()
        if node._erased or node.users or has_effect(node):
            continue
        sources = [source for source in node.all_input_nodes if source in inside]
        node.graph.erase_node(node)
        waiting.extend(sources)
