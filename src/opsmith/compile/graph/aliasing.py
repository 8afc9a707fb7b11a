"""Memory that a graph's tensors share: between inputs, constants and outputs, and past each write.

A result that eager makes in memory of its own must stay so: the caller may write to it. And whoever reads memory
that the graph itself writes must read it before or after the same writes. :class:`Sharing` answers both for a rule
that lets one node stand for another. :class:`Memory` describes a whole graph, so that two can be compared.

Of a functional graph that copies into an input at its end, what is copied counts as that input's memory, and so do
the scatters that begin with the input: Inductor computes them there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx
from torch._C._functorch import get_unwrapped, is_functorch_wrapped_tensor
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils._pytree import tree_leaves

from opsmith.compile.graph.effects import written_by

#: The address of a storage of a fake tensor.
Storage: TypeAlias = int
#: A storage that is written, as the place of its first write among all, and how often it has been written by then.
Version: TypeAlias = tuple[int, int]

_GIVEN = {"placeholder", "get_attr"}
_COPY = torch.ops.aten.copy_.default
#: What Inductor makes in the memory of its first argument if that is an input that is copied into
#: (torch/_inductor/fx_passes/reinplace.py).
_IN_PLACE = {
    torch.ops.aten.index_put.default,
    torch.ops.aten._unsafe_index_put.default,
    torch.ops.aten.diagonal_scatter.default,
    torch.ops.aten.select_scatter.default,
    torch.ops.aten.slice_scatter.default,
    torch.ops.aten.as_strided_scatter.default,
}


def storages(value: Any) -> frozenset[Storage]:
    """The storages behind the tensors of a fake result; sparse tensors have none."""
    if isinstance(value, Tensor):
        while is_functorch_wrapped_tensor(value):  # In a graph with a vmap or a gradient in it.
            value = get_unwrapped(value)
        if is_traceable_wrapper_subclass(value):
            names, _ = value.__tensor_flatten__()
            return frozenset().union(*(storages(getattr(value, name)) for name in names))
        return frozenset((value.untyped_storage()._cdata,)) if value.layout == torch.strided else frozenset()
    if isinstance(value, (tuple, list, dict)):
        return frozenset().union(*map(storages, tree_leaves(value)))
    return frozenset()


class Sharing:
    """Which nodes of a graph share memory, kept up to date while some stand in for others.

    Args:
        graph: whose nodes have their fake results in ``meta``.
        key: under which.
    """

    def __init__(self, graph: fx.Graph, key: str = "val") -> None:
        self._key = key
        self._joined: dict[Storage, Storage] = {}
        self._members: dict[Storage, list[fx.Node]] = {}
        self._writes: dict[Storage, list[fx.Node]] = {}
        self._given: set[Storage] = set()
        self._returned: set[Storage] = set()
        self._outputs_in: Counter[Storage] = Counter()
        self._in_inputs: set[Storage] = set()
        for node in graph.nodes:
            self._add(node)
        #: Inputs that are copied into, and the scatters that begin with them.
        self._begun: set[fx.Node] = set()
        for node, source in _made_in_inputs(graph):
            self._in_inputs.update(self._of(node))
            self._begun.add(source)
            if node.target in _IN_PLACE and node.args[0] in self._begun:
                self._begun.add(node)

    def _add(self, node: fx.Node) -> None:
        if node.op == "output":
            for storage in (one for leaf in node.all_input_nodes for one in self._of(leaf)):
                self._returned.add(storage)
                self._outputs_in[storage] += 1
            return
        for storage in self._of(node):
            self._members.setdefault(storage, []).append(node)
            if node.op in _GIVEN:
                self._given.add(storage)
        for target in written_by(node):
            for storage in self._of(target):
                self._writes.setdefault(storage, []).append(node)

    def _of(self, node: fx.Node) -> frozenset[Storage]:
        return frozenset(map(self._root, storages(node.meta.get(self._key))))

    def _root(self, storage: Storage) -> Storage:
        while storage in self._joined:
            storage = self._joined[storage]
        return storage

    def holds_several_outputs(self, node: fx.Node) -> bool:
        """Whether several outputs lie in the memory of a node.

        Inductor keeps them there together only where it has settled the layout of what they are views of, which
        depends on the views between.
        """
        return any(self._outputs_in[storage] > 1 for storage in self._of(node))

    def stand_in(self, node: fx.Node, source: fx.Node) -> bool:
        """Let an earlier node be used instead of ``node``, which goes, if nobody can tell the difference.

        Both return the same numbers. It is refused where an output would share memory that it did not share before,
        where a scatter would be made in an input's memory and returned, and where a write to the source's memory comes
        between ``node`` and the last use of its result.

        Returns:
            Whether ``source`` is used now.
        """
        mine, theirs = self._of(node), self._of(source)
        if mine != theirs and not self._may_join(node, mine, theirs):
            return False
        scatters = set(_scatters_from(node)) if source in self._begun and node not in self._begun else set()
        made_there = frozenset().union(*map(self._of, scatters))
        if made_there & self._returned:
            return False
        self._begun |= scatters
        self._in_inputs |= made_there
        node.replace_all_uses_with(source)
        node.graph.erase_node(node)
        for storage in mine - theirs:
            self._join(storage, next(iter(theirs)))
        return True

    def replace(self, node: fx.Node, new: fx.Node) -> None:
        """Let a call that was just made be used instead of ``node``, which goes; it has memory as ``node`` has it."""
        new.meta.setdefault(self._key, node.meta[self._key])
        node.replace_all_uses_with(new)
        node.graph.erase_node(node)
        for storage in self._of(new):
            self._members.setdefault(storage, []).append(new)

    def _may_join(self, node: fx.Node, mine: frozenset[Storage], theirs: frozenset[Storage]) -> bool:
        if not mine or not theirs:
            return False
        if mine & self._returned and theirs & (self._given | self._returned | self._in_inputs):
            return False
        if mine & self._in_inputs and theirs & self._returned:
            return False
        if any(self._writes.get(storage) for storage in mine):
            return False
        writes = [write for storage in theirs for write in self._writes.get(storage, ()) if node < write]
        if not writes:
            return True
        users = (user for storage in mine for member in self._members[storage] for user in member.users)
        return not any(write <= user for user in users for write in writes)

    def _join(self, storage: Storage, other: Storage) -> None:
        self._joined[storage] = other
        self._members[other] += self._members.pop(storage, [])
        self._outputs_in[other] += self._outputs_in.pop(storage, 0)
        for marked in (self._returned, self._in_inputs):
            if storage in marked:
                marked.add(other)


@dataclass(frozen=True)
class Memory:
    """How a graph uses memory.

    Attributes:
        outputs: for each leaf of the output the memory that it lies in: a placeholder or constant, also an input that
            it may be made in, with the offset there; or the first leaf with the same memory. None for what is no
            strided tensor.
        reads: for each node, which versions of written memory it reads; empty where nothing is written.
        sources: for each node, the nodes that it was given; empty where nothing is written.
        views: nodes that return memory that they were given, and read none.
    """

    outputs: Sequence[Any]
    reads: Mapping[fx.Node, frozenset[Version]]
    sources: Mapping[fx.Node, tuple[fx.Node, ...]]
    views: frozenset[fx.Node] = frozenset()

    @classmethod
    def of(cls, graph: fx.Graph, value_of: Callable[[fx.Node], Any]) -> Memory:
        """Describe a graph.

        Args:
            graph: any.
            value_of: the fake result of a node.
        """
        writes = [(node, written_by(node)) for node in graph.nodes]
        written: dict[Storage, int] = {}
        for place, targets in enumerate(targets for _, targets in writes if targets):
            for storage in _all_storages(map(value_of, targets)):
                written.setdefault(storage, place)
        outputs = _memory_of_outputs(graph, value_of)
        if not written:
            return cls(outputs, {}, {})
        sources = {node: tuple(node.all_input_nodes) for node in graph.nodes}
        views = (
            node
            for node, targets in writes
            if not targets and storages(value_of(node)) & _all_storages(map(value_of, sources[node]))
        )
        return cls(outputs, dict(_reads(writes, written, value_of)), sources, frozenset(views))

    def complaint(self, after: Memory) -> str | None:
        """What is different in a rewritten graph, or None."""
        if len(self.outputs) != len(after.outputs) or not all(map(_same_place, self.outputs, after.outputs)):
            return "the graph's outputs share memory with other tensors than before"
        node = next(_reading_otherwise(self, after), None)
        return None if node is None else f"{node} depends on memory before or after other writes than it did"


def _made_in_inputs(graph: fx.Graph) -> Iterator[tuple[fx.Node, fx.Node]]:
    """What may lie in the memory of an input that is copied into, and that input."""
    copies = [one for one in graph.find_nodes(op="call_function", target=_COPY) if isinstance(one.args[1], fx.Node)]
    yield from ((one.args[1], one.args[0]) for one in copies)
    made_in = {one.args[0]: one.args[0] for one in copies}
    for node in graph.nodes:
        if node.target in _IN_PLACE and node.args[0] in made_in:
            made_in[node] = made_in[node.args[0]]
            yield node, made_in[node]


def _scatters_from(node: fx.Node) -> Iterator[fx.Node]:
    """What begins with a node, and would be made in its memory if that were an input that is copied into."""
    for user in node.users:
        if user.target in _IN_PLACE and user.args[0] is node:
            yield user
            yield from _scatters_from(user)


def _all_storages(values: Iterable[Any]) -> frozenset[Storage]:
    return frozenset().union(*map(storages, values))


def _memory_of_outputs(graph: fx.Graph, value_of: Callable[[fx.Node], Any]) -> list[Any]:
    known: dict[Storage, str] = {}
    for node in (node for node in graph.nodes if node.op in _GIVEN):
        for storage in storages(value_of(node)):
            known.setdefault(storage, f"{node.op} {node.target}")
    for node, source in _made_in_inputs(graph):
        for storage in storages(value_of(node)):
            known.setdefault(storage, f"made in {source}")
    found: list[Any] = []
    made: dict[Storage, int] = {}
    for place, leaf in enumerate(tree_leaves(graph.output_node().args)):
        value = value_of(leaf) if isinstance(leaf, fx.Node) else None
        held = storages(value)
        if not isinstance(value, Tensor) or not held:
            found.append(None)
        elif held & known.keys():
            found.append((sorted(known[one] for one in held & known.keys()), value.storage_offset()))
        else:
            found.append(min(made.setdefault(storage, place) for storage in held))
    return found


def _same_place(one: Any, other: Any) -> bool:
    if isinstance(one, tuple) and isinstance(other, tuple):
        return bool(one[0] == other[0]) and statically_known_true(one[1] == other[1])
    return type(one) is type(other) and bool(one == other)


def _reads(
    writes: Sequence[tuple[fx.Node, Sequence[fx.Node]]],
    written: Mapping[Storage, int],
    value_of: Callable[[fx.Node], Any],
) -> Iterator[tuple[fx.Node, frozenset[Version]]]:
    """Which versions a node reads. A view reads nothing: its users do."""
    versions = dict.fromkeys(written, 0)
    for node, targets in writes:
        own = frozenset() if targets else storages(value_of(node))
        read = _all_storages(map(value_of, node.all_input_nodes)) - own
        yield node, frozenset((written[one], versions[one]) for one in read if one in written)
        for storage in _all_storages(map(value_of, targets)):
            versions[storage] += 1


def _reading_otherwise(before: Memory, after: Memory) -> Iterator[fx.Node]:
    """Nodes of both graphs that depend on other versions of some memory than they did.

    What is compared is read between a node and the nearest ones, but for views, that it depends on in both graphs:
    these are looked at by themselves. The versions of a storage that are read there have to be those that are read in
    the other graph, unless it is not read any more.
    """
    if not before.reads and not after.reads:
        return
    numbers = {node: number for number, node in enumerate(dict.fromkeys((*before.reads, *after.reads)))}
    above, now_above = _ancestors(before, numbers), _ancestors(after, numbers)
    for node in after.reads:
        if node not in before.reads:
            continue
        if before.sources[node] == after.sources[node] and before.reads[node] == after.reads[node]:
            continue
        common = above[node] & now_above[node]
        shared = {one for one, number in numbers.items() if common >> number & 1} - before.views - after.views
        old, new = (_versions(memory, node, shared) for memory in (before, after))
        if any(old.get(storage) != versions for storage, versions in new.items()):
            yield node


def _ancestors(memory: Memory, numbers: Mapping[fx.Node, int]) -> dict[fx.Node, int]:
    """For each node what it depends on, as bits."""
    found: dict[fx.Node, int] = {}
    for node, sources in memory.sources.items():
        bits = 0
        for source in sources:
            bits |= found[source] | 1 << numbers[source]
        found[node] = bits
    return found


def _versions(memory: Memory, node: fx.Node, shared: set[fx.Node]) -> dict[int, set[int]]:
    """The versions that a node reads, and what it depends on up to the nodes that are shared; by storage."""
    found: dict[int, set[int]] = {}
    seen, waiting = {node}, [node]
    while waiting:
        one = waiting.pop()
        for storage, version in memory.reads[one]:
            found.setdefault(storage, set()).add(version)
        further = [source for source in memory.sources[one] if source not in shared and source not in seen]
        seen.update(further)
        waiting.extend(further)
    return found
