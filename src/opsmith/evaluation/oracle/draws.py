"""Random numbers of a Model on wide inputs: eager's own.

A generator gives other numbers in float64 than in float32, and a Model that draws is another function for each draw.
So every run of the oracle begins with the random state that eager's began with, and draws in the type in which eager
drew.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import is_low
from opsmith.aten.schemas import aten_schemas
from opsmith.calls.seeding import seed_generators
from opsmith.core.op import TaskKind
from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.criteria.rules import ATTENTION, rule_for

_NARROW = {torch.float64: torch.float32, torch.complex128: torch.complex64}


@contextmanager
def drawn_as_eager(call: JudgedCall) -> Iterator[None]:
    """Within, a Model draws what it drew for eager; of a call without a seed, the same each time."""
    if call.schema.kind is not TaskKind.MODULE:
        yield
        return
    tensors = [leaf for leaf in tree_leaves((call.args, call.kwargs)) if isinstance(leaf, torch.Tensor)]
    device = next((each.device for each in tensors if each.device.type != "cpu"), torch.device("cpu"))
    floats = [each.dtype for each in tensors if each.is_floating_point() and not is_low(each)]
    narrow = _NarrowDraws(min(floats, key=lambda dtype: dtype.itemsize, default=torch.float32))
    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        seed_generators(call.seed or 0, device)
        with narrow:
            yield


class _NarrowDraws(TorchDispatchMode):
    """Draws in the type of a call's narrowest floats what would be drawn in float64."""

    def __init__(self, narrow: torch.dtype) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._narrow = narrow

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if torch.Tag.nondeterministic_seeded not in func.tags or not is_draw(str(func).removeprefix("aten.")):
            return func(*args, **kwargs)
        arguments = func._schema.arguments
        if any(each.name == "dtype" and each.default_value is None for each in arguments) and "_like" not in str(func):
            # Of numbers without a type of their own the default decides, which was float32.
            kwargs = {**kwargs, "dtype": _NARROW.get(kwargs.get("dtype") or torch.float64, kwargs.get("dtype"))}
        drawn = func(*tree_map(self._narrowed, args), **tree_map(self._narrowed, kwargs))
        if arguments and arguments[0].alias_info is not None and isinstance(args[0], torch.Tensor):
            return args[0].copy_(drawn)
        if func.overloadpacket is torch.ops.aten.native_dropout:
            kept = 1.0 - args[1]
            return args[0] * drawn[1] * (1.0 / kept if kept else 0.0), drawn[1]
        return tree_map(_widened, drawn)

    def _narrowed(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor) and leaf.dtype is torch.float64:
            return leaf.to(self._narrow)
        return leaf


def _widened(leaf: Any) -> Any:
    return leaf.double() if isinstance(leaf, torch.Tensor) and leaf.is_floating_point() else leaf


@cache
def is_draw(op: str) -> bool:
    """Whether what an overload returns is drawn and not computed."""
    schema = aten_schemas().get(op)
    if schema is None:
        return False
    rule = rule_for(schema)
    return rule.kind == "distribution" and rule.stem not in ATTENTION
