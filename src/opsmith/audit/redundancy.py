"""Does every op of Model do something?

Each ATen call that computes is taken out in two ways, one call at a time: its result is replaced by one of its
arguments of the same shape (what a clamp after a tanh comes to), and by noise (which nobody sees where the result
is thrown away). An op is redundant if Model's answer and its buffers stay within the tolerance that solutions are
granted, for two draws of the inputs and for inputs times -1, 64, a thousandth and zero, where a guard or an epsilon
shows. What libraries do to a few positions besides, whoever leaves it out gains nothing: such calls are not looked at.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

from opsmith.aten.low_precision import is_low
from opsmith.audit.draws import Answer, Draws
from opsmith.core.audit import AuditFinding, Check
from opsmith.evaluation.integrity.policy import computes

#: A call is looked at if it reads and writes this share of the bytes of all calls that compute.
LEAST_SHARE = 1e-3

Replacement = Callable[[Any, tuple[Any, ...], dict[str, Any]], Any]


class SeenCall(NamedTuple):
    """One ATen call of forward.

    Attributes:
        number: its place among all of them.
        op: the overload.
        signature: what equal calls share.
        stand_ins: positions of arguments that could be its result.
        shape: of that.
        moved_bytes: of its arguments and results.
    """

    number: int
    op: str
    signature: str
    stand_ins: tuple[int, ...]
    shape: tuple[int, ...]
    moved_bytes: int


def findings(draws: Draws) -> Iterator[AuditFinding]:
    """The ops that could be left out."""
    calls = _Calls()
    draws.answer(draws.inputs[0], mode=calls)
    sets = draws.sets()
    least_bytes = LEAST_SHARE * sum(call.moved_bytes for call in calls.found)
    for call in _representatives([call for call in calls.found if call.moved_bytes >= least_bytes]):
        for position in call.stand_ins:
            if _unchanged(draws, sets, call, partial(_argument, position)):
                yield _finding(call, f"its argument {position} in its place changes nothing")
                break
        else:
            if _unchanged(draws, sets, call, _noise):
                yield _finding(call, "nobody reads its result")


def _finding(call: SeenCall, what: str) -> AuditFinding:
    shape = "x".join(map(str, call.shape)) or "scalar"
    return AuditFinding(check=Check.REDUNDANT, detail=f"{call.op} of {shape} (call {call.number + 1}): {what}")


def _unchanged(draws: Draws, sets: list[tuple[list[Any], Answer]], call: SeenCall, replacement: Replacement) -> bool:
    return all(draws.is_unchanged(inputs, effects, _Replaced(call.number, replacement)) for inputs, effects in sets)


def _representatives(calls: list[SeenCall]) -> list[SeenCall]:
    """Of calls that are equal in op, shapes and scalars, as in the layers of a network, the first and the last."""
    equal: dict[str, list[SeenCall]] = {}
    for call in calls:
        equal.setdefault(call.signature, []).append(call)
    chosen = {call.number: call for each in equal.values() for call in (each[0], each[-1])}
    return [chosen[number] for number in sorted(chosen)]


class _Numbered(TorchDispatchMode):
    """Counts the ATen calls that reach it."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._next = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        number, self._next = self._next, self._next + 1
        return self._answer(number, func, args, kwargs or {})

    def _answer(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        raise NotImplementedError


class _Calls(_Numbered):
    """Writes down the calls that compute."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[SeenCall] = []
        self._before = ""

    def _answer(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        result = func(*args, **kwargs)
        op = op_name(func)
        first = _first(result)
        # `1 / x` is a reciprocal times one: that is torch's doing.
        is_division = (self._before, op, args[1:]) == ("reciprocal.default", "mul.Tensor", (1,))
        self._before = op
        if computes(op) and isinstance(first, torch.Tensor) and not is_division:
            signature = f"{op} {tree_map(_described, (args, kwargs))}"
            stand_ins = tuple(position for position, value in enumerate(args) if _could_be(value, first))
            moved_bytes = _bytes((args, kwargs)) + _bytes(result)
            self.found.append(SeenCall(number, op, signature, stand_ins, tuple(first.shape), moved_bytes))
        return result


class _Replaced(_Numbered):
    """Answers one call in another way."""

    def __init__(self, number: int, replacement: Replacement) -> None:
        super().__init__()
        self._number, self._replacement = number, replacement

    def _answer(self, number: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return (self._replacement if number == self._number else _called)(func, args, kwargs)


def _called(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _argument(position: int, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """One of the arguments instead of the first result."""
    if writes_itself(func):
        return args[0] if position == 0 else args[0].copy_(args[position])
    result = func(*args, **kwargs)
    stand_in = args[position].clone()
    return stand_in if isinstance(result, torch.Tensor) else type(result)((stand_in, *result[1:]))


def _noise(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Noise instead of every result."""
    result = func(*args, **kwargs)
    if writes_itself(func):
        return args[0].copy_(_noisy(args[0]))
    return tree_map(lambda leaf: _noisy(leaf) if isinstance(leaf, torch.Tensor) else leaf, result)


def _noisy(tensor: torch.Tensor) -> torch.Tensor:
    if is_low(tensor):
        return tensor.view(torch.uint8).flatten().roll(1).view(tensor.shape).view(tensor.dtype)
    if tensor.is_floating_point():
        return torch.rand_like(tensor).mul_(3).add_(1)
    return tensor.logical_not() if tensor.dtype is torch.bool else tensor.flatten().roll(1).add(1).view(tensor.shape)


def op_name(func: Any) -> str:
    """``add.Tensor``; of other namespaces than ATen ``mylib::op.default``."""
    return f"{func._schema.name.removeprefix('aten::')}.{func._schema.overload_name or 'default'}"


def writes_itself(func: Any) -> bool:
    """Whether an overload writes into its first argument."""
    arguments = func._schema.arguments
    return bool(arguments) and arguments[0].alias_info is not None and arguments[0].alias_info.is_write


def _first(result: Any) -> Any:
    return result[0] if isinstance(result, (tuple, list)) and result else result


def _bytes(values: Any) -> int:
    return sum(leaf.nbytes for leaf in tree_leaves(values) if isinstance(leaf, torch.Tensor))


def _could_be(value: Any, result: torch.Tensor) -> bool:
    return isinstance(value, torch.Tensor) and (value.shape, value.dtype) == (result.shape, result.dtype)


def _described(leaf: Any) -> str:
    return f"{leaf.dtype}{list(leaf.shape)}" if isinstance(leaf, torch.Tensor) else repr(leaf)


def has_floats(values: Any) -> bool:
    """Whether there is a float tensor among the leaves."""
    return any(isinstance(leaf, torch.Tensor) and leaf.is_floating_point() for leaf in tree_leaves(values))
