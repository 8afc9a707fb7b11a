"""What is known of a traced graph's tensors that depend on no input.

Where sizes are symbols a mask is computed for several of their values. Its pattern counts if it is the same for each
and positions are compared and shifted by two at most: a window of 4,096 tokens looks causal for all shorter texts.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from opsmith.compile.graph.aliasing import storages
from opsmith.compile.graph.effects import has_effect, written_by
from opsmith.compile.traced.calls import tensor

#: Elements of a constant that is worth computing: a causal mask of 8,192 tokens.
_LARGEST = 1 << 26
#: Values of symbolic sizes that a mask is computed for.
_SAMPLES = (5, 33, 130)
#: What positions may be shifted by, for these to stand for all sizes.
_LITTLE = 2
#: Functions whose numbers are sizes and dimensions.
_SHAPING = {"expand", "view", "reshape", "ones", "zeros", "new_ones", "unsqueeze", "size"}


@dataclass(frozen=True)
class Hidden:
    """Which keys a mask hides from which queries.

    Attributes:
        later: whether those after each query.
        before: those that are at least so many before each query; None where none are.
    """

    later: bool = False
    before: int | None = None


class Constants:
    """The constants of one graph, computed on the CPU, each once.

    A tensor is constant if it depends on no input, parameter or random number, and if nobody writes to it: masks that
    are made of positions, as transformers makes them, are.

    Args:
        graph: of Dynamo.
        sizes: values to compute with for symbolic sizes.
    """

    def __init__(self, graph: fx.Graph, sizes: Mapping[Any, int] | None = None) -> None:
        self._graph, self._sizes = graph, sizes or {}
        self._known: dict[fx.Node, Any] = {}
        written = (target for node in graph.nodes for target in written_by(node))
        self._written = frozenset().union(*(storages(one.meta.get("example_value")) for one in written))

    def with_sizes(self, sizes: Mapping[Any, int]) -> Constants:
        """The same graph's, with values for symbolic sizes."""
        return Constants(self._graph, sizes)

    def of(self, node: Any) -> Any:
        """What a node returns, or None where that is unknown, random, or larger than 2^26 elements."""
        if not isinstance(node, fx.Node):
            return node
        for one in _with_sources(node, self._known):
            self._known[one] = self._computed(one)
        return self._known[node]

    def _computed(self, node: fx.Node) -> Any:
        like = node.meta.get("example_value")
        if isinstance(like, torch.SymInt):
            return self.size(like)
        if isinstance(like, Tensor):
            shape = self.shape(like)
            if shape is None or math.prod(shape) > _LARGEST or storages(like) & self._written:
                return None
        if any(self._known[one] is None for one in node.all_input_nodes):
            return None
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda one: self._known[one])
        args, kwargs = tree_map_only((torch.device, str), _on_the_cpu, (args, kwargs))
        try:
            return _called(node, args, kwargs)
        except Exception:  # noqa: BLE001 - what cannot be computed here, for any reason, is not known
            return None

    def size(self, size: int | torch.SymInt) -> int | None:
        """A size as a number, or None where it has none."""
        if not isinstance(size, torch.SymInt):
            return size
        number = size.node.expr.subs(self._sizes)
        return int(number) if number.is_Integer else None

    def shape(self, tensor: Tensor) -> tuple[int, ...] | None:
        """All sizes of a tensor as numbers, or None."""
        sizes = [self.size(one) for one in tensor.shape]
        return None if None in sizes else tuple(sizes)  # type: ignore[arg-type]


def hides(mask: Any, constants: Constants, *, where: bool) -> Hidden | None:
    """What a constant mask hides, for every batch and head alike; None for anything else.

    Args:
        mask: a node of a tensor of two or more dimensions, queries and keys last.
        constants: of its graph.
        where: whether a boolean mask is true where a key is hidden, instead of where it is seen. A mask of numbers is
            added to scores.
    """
    like = tensor(mask)
    if like is None or like.dim() < 2:
        return None
    sizes: Sequence[Any] = [one for one in like.shape if isinstance(one, torch.SymInt)]
    symbols = set().union(*(one.node.expr.free_symbols for one in sizes))
    if not symbols:
        return _hidden(mask, like, constants, where=where)
    if not _shifts_little(mask):
        return None
    ordered = sorted(symbols, key=str)
    samples = ({symbol: first + 3 * place for place, symbol in enumerate(ordered)} for first in _SAMPLES)
    found = {_hidden(mask, like, constants.with_sizes(sample), where=where) for sample in samples}
    return found.pop() if len(found) == 1 else None


def _shifts_little(mask: fx.Node) -> bool:
    """Whether no number of the graph that a mask is computed with is more than two, but for sizes and dimensions."""
    numbers = [number for one in _with_sources(mask, {}) if not _makes_a_shape(one) for number in _numbers(one)]
    return all(abs(number) <= _LITTLE or math.isinf(number) for number in numbers)


def _makes_a_shape(node: fx.Node) -> bool:
    """Whether a call's numbers are sizes and dimensions, and none of them becomes a position that is shifted."""
    name = str(getattr(node.target, "__name__", node.target))
    return name in _SHAPING or (name == "arange" and len(node.args) == 1)


def _numbers(node: fx.Node) -> Iterator[float]:
    for leaf in tree_leaves((node.args, node.kwargs)):
        bounds = (leaf.start, leaf.stop, leaf.step) if isinstance(leaf, slice) else (leaf,)
        yield from (one for one in bounds if type(one) in (int, float))


def _hidden(mask: fx.Node, like: Tensor, constants: Constants, *, where: bool) -> Hidden | None:
    found = constants.of(mask)
    if not isinstance(found, Tensor) or found.shape != constants.shape(like):
        return None
    if found.dtype == torch.bool:
        hidden = found if where else ~found
    elif found.is_floating_point() and bool(((found == 0) | (found == -torch.inf)).all()):
        hidden = found == -torch.inf
    else:
        return None
    return _pattern(hidden)


def _pattern(hidden: Tensor) -> Hidden | None:
    """What the same rows and columns of all matrices hide; None where that has no name."""
    if not hidden.any():
        return Hidden()
    queries, keys = hidden.shape[-2:]
    first = hidden.reshape(-1, queries, keys)[0]
    # Of the last query the keys that are seen are the last ones, as many as the window is wide.
    seen = int((~first[-1]).sum())
    for found in (Hidden(later=True), Hidden(later=True, before=seen)):
        if bool((hidden == band(queries, keys, found)).all()):
            return found
    return None


def band(queries: int, keys: int, pattern: Hidden) -> Tensor:
    """True where a key is hidden, ``[queries, keys]`` on the CPU; the first query is beside the first key."""
    distance = torch.arange(queries)[:, None] - torch.arange(keys)
    hidden = distance < 0
    return hidden if pattern.before is None else hidden | (distance >= pattern.before)


def _on_the_cpu(value: torch.device | str) -> torch.device | str:
    """A device, or its name, as the CPU's; any other text as it is."""
    if isinstance(value, str):
        try:
            torch.device(value)
        except RuntimeError:
            return value
    return torch.device("cpu")


def _with_sources(node: fx.Node, known: dict[fx.Node, Any]) -> list[fx.Node]:
    """The node and what it depends on, sources first, without what is known."""
    order: dict[fx.Node, None] = {}
    waiting = [node]
    while waiting:
        one = waiting[-1]
        missing = [source for source in one.all_input_nodes if source not in known and source not in order]
        if one in known or one in order or not missing:
            order.setdefault(waiting.pop())
        else:
            waiting.extend(missing)
    return [one for one in order if one not in known]


def _called(node: fx.Node, args: Any, kwargs: Any) -> Any:
    from torch._subclasses.fake_tensor import unset_fake_temporarily

    if node.op not in {"call_function", "call_method"} or has_effect(node):
        return None
    with unset_fake_temporarily(), torch.no_grad(), _Pure():  # type: ignore[no-untyped-call]
        if node.op == "call_method":
            receiver, *rest = args
            return getattr(receiver, str(node.target))(*rest, **kwargs)
        assert callable(node.target)
        return node.target(*args, **kwargs)


class _VariesError(Exception):
    """A call returns something else each time; caught where its result is called unknown."""


class _Pure(TorchDispatchMode):
    """Refuses calls that draw random numbers, return memory as it is found, or belong to another library."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        random = torch.Tag.nondeterministic_seeded in func.tags
        if random or "empty" in func.name() or func.namespace not in {"aten", "prims", "prim"}:
            raise _VariesError(func.name())
        return func(*args, **(kwargs or {}))
