"""What is known of a traced graph's tensors that depend on no input."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map_only

from opsmith.compile.graph.aliasing import storages
from opsmith.compile.graph.effects import has_effect, written_by
from opsmith.compile.traced.calls import tensor

#: Elements of a constant that is worth computing: a causal mask of 8,192 tokens.
_LARGEST = 1 << 26


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
    """

    def __init__(self, graph: fx.Graph) -> None:
        self._known: dict[fx.Node, Any] = {}
        written = (target for node in graph.nodes for target in written_by(node))
        self._written = frozenset().union(*(storages(one.meta.get("example_value")) for one in written))

    def of(self, node: Any) -> Any:
        """What a node returns, or None where that is unknown, random, or larger than 2^26 elements."""
        if not isinstance(node, fx.Node):
            return node
        for one in _with_sources(node, self._known):
            self._known[one] = self._computed(one)
        return self._known[node]

    def _computed(self, node: fx.Node) -> Any:
        like = node.meta.get("example_value")
        sizes = like.shape if isinstance(like, Tensor) else (like,)
        if any(isinstance(one, (torch.SymInt, torch.SymFloat, torch.SymBool)) for one in sizes):
            return None
        if isinstance(like, Tensor) and (like.numel() > _LARGEST or storages(like) & self._written):
            return None
        if any(self._known[one] is None for one in node.all_input_nodes):
            return None
        args, kwargs = fx.map_arg((node.args, dict(node.kwargs)), lambda one: self._known[one])
        args, kwargs = tree_map_only(torch.device, lambda _: torch.device("cpu"), (args, kwargs))
        try:
            return _called(node, args, kwargs)
        except Exception:  # noqa: BLE001 - what cannot be computed here, for any reason, is not known
            return None


def hides(mask: Any, constants: Constants, *, where: bool) -> Hidden | None:
    """What a constant mask hides, for every batch and head alike; None for anything else.

    Args:
        mask: a node of a tensor of two or more dimensions, queries and keys last.
        constants: of its graph.
        where: whether a boolean mask is true where a key is hidden, instead of where it is seen. A mask of numbers is
            added to scores.
    """
    like = tensor(mask)
    if like is None or like.dim() < 2 or any(type(size) is not int for size in like.shape):
        return None
    found = constants.of(mask)
    if not isinstance(found, Tensor) or found.shape != like.shape:
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
