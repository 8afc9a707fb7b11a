"""What a graph's nodes return, as fake tensors, kept up to date while the graph is rewritten.

Dynamo and AOTAutograd leave the fake result of every call in its node. After a rewrite only new nodes, changed
ones and what depends on them are run again, without data.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import fx
from torch._dispatch.python import enable_python_dispatcher
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq
from torch.utils._pytree import tree_flatten

from opsmith.compile.graph.aliasing import Memory, storages

_CALLS = {"call_function", "call_method"}


class Values:
    """The results of a graph's nodes from now on.

    Args:
        graph: of Dynamo (results in ``example_value``) or of AOTAutograd (in ``val``).
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._graph = graph
        placeholders = list(graph.find_nodes(op="placeholder"))
        lowered = any("val" in node.meta for node in placeholders) or any(
            "val" in node.meta for node in graph.nodes if not placeholders
        )
        self.key = "val" if lowered else "example_value"
        self._calls = _calls(graph)
        self._fake_mode = _fake_mode(node.meta.get(self.key) for node in graph.nodes)
        self._outputs = [self.of(node) for node in _outputs(graph)]
        self._memory = Memory.of(graph, self.of)

    def of(self, node: Any) -> Any:
        """The fake result of a node, or None where nobody knows; what is no node is itself."""
        return node.meta.get(self.key) if isinstance(node, fx.Node) else node

    def changed(self) -> bool:
        """Whether the graph makes other calls than when its results were stored last."""
        calls = _calls(self._graph)
        return list(calls) != list(self._calls) or calls != self._calls

    def updated(self) -> dict[fx.Node, Any]:
        """Results of nodes that are new, or return something else than before; nothing is stored.

        Raises:
            Exception: a call does not accept its arguments any more.
        """
        found: dict[fx.Node, Any] = {}

        def current(node: fx.Node) -> Any:
            return found[node] if node in found else node.meta.get(self.key)

        with self._evaluation():
            for node in self._graph.nodes:
                if node.op not in _CALLS:
                    continue
                known = self._calls.get(node) == (node.target, node.args, node.kwargs)
                if known and not any(one in found for one in node.all_input_nodes):
                    continue
                result = _call(node, current)
                given = frozenset().union(*(storages(current(one)) for one in node.all_input_nodes))
                if self.key not in node.meta or not _stays(result, node.meta[self.key], given):
                    found[node] = result
        return found

    def complaint(self, updated: dict[fx.Node, Any]) -> str | None:
        """Why the graph, with these results, does not return what it did, or None.

        Shapes, dtypes, strides, devices and the need of a gradient have to be what they were, and so does the use of
        memory: what outputs share, and between which writes memory is read.
        """

        def now(node: Any) -> Any:
            return updated[node] if node in updated else self.of(node)

        after = list(map(now, _outputs(self._graph)))
        if len(after) != len(self._outputs) or not all(map(same, after, self._outputs)):
            return "the graph's outputs changed in shape, dtype, stride, device or need of a gradient"
        return self._memory.complaint(Memory.of(self._graph, now))

    def store(self, updated: dict[fx.Node, Any]) -> None:
        """Keep what :meth:`updated` found, and take the graph as it is now for the one to compare with."""
        for node, value in updated.items():
            node.meta[self.key] = value
        self._calls = _calls(self._graph)
        self._outputs = [self.of(node) for node in _outputs(self._graph)]
        self._memory = Memory.of(self._graph, self.of)

    @contextlib.contextmanager
    def _evaluation(self) -> Iterator[None]:
        with contextlib.ExitStack() as stack:
            if self._fake_mode is not None:
                stack.enter_context(self._fake_mode)
                if self._fake_mode.shape_env is not None:
                    stack.enter_context(self._fake_mode.shape_env.ignore_fresh_unbacked_symbols())
            stack.enter_context(enable_python_dispatcher())
            yield


def _calls(graph: fx.Graph) -> dict[fx.Node, Any]:
    return {node: (node.target, node.args, node.kwargs) for node in graph.nodes}


def _stays(new: Any, old: Any, given: frozenset[int]) -> bool:
    """Whether a result looks the same and shares the same memory with what the call was given."""
    return same(new, old) and storages(new) & given == storages(old) & given


def _call(node: fx.Node, current: Callable[[fx.Node], Any]) -> Any:
    args = fx.map_arg(node.args, current)
    kwargs = fx.map_arg(node.kwargs, current)
    if node.op == "call_method":
        receiver, *rest = args
        return getattr(receiver, str(node.target))(*rest, **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def _fake_mode(values: Iterable[Any]) -> FakeTensorMode | None:
    """The mode of the first fake tensor; Dynamo hands its backends inputs of another one."""
    leaves = (leaf for value in values for leaf in tree_flatten(value)[0])
    return next((leaf.fake_mode for leaf in leaves if isinstance(leaf, FakeTensor)), None)


def _outputs(graph: fx.Graph) -> list[Any]:
    leaves, _ = tree_flatten(graph.output_node().args)
    return leaves


def same(one: Any, other: Any) -> bool:
    """Whether two results look the same: what is unknown of their symbolic sizes counts as different."""
    ones, structure = tree_flatten(one)
    others, other_structure = tree_flatten(other)
    return structure == other_structure and all(map(_alike, ones, others))


def _alike(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor) and isinstance(other, torch.Tensor):
        return (
            (one.dtype, one.device, one.layout, one.requires_grad)
            == (other.dtype, other.device, other.layout, other.requires_grad)
            and _equal(one.shape, other.shape)
            and (one.layout != torch.strided or _equal(one.stride(), other.stride()))
        )
    if isinstance(one, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return type(one) is type(other) and statically_known_true(one == other)
    return type(one) is type(other) and bool(one == other)


def _equal(sizes: Any, others: Any) -> bool:
    return len(sizes) == len(others) and statically_known_true(sym_eq(tuple(sizes), tuple(others)))
