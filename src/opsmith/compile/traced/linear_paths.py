"""Calls between a product and what sums or averages its result, which may as well come after that."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from opsmith.compile.traced.calls import Call, number, plain, read, same_shape, tensor


@dataclass(frozen=True)
class Step:
    """A sum, product or idle dropout: ``input`` comes from the product, ``other`` is a number, a tensor or None."""

    call: Call
    input: fx.Node
    other: Any


def linear_path(
    node: Any,
    like: torch.Tensor,
    names: Sequence[str],
    *,
    products_along: Collection[int],
    sums_along: Collection[int] = (),
) -> tuple[list[Step], Call] | None:
    """The steps from a node down to a call of one of ``names``, the last one first.

    Args:
        node: what is summed or averaged.
        like: its fake result; those on the way have its shape and dtype.
        names: as :func:`~opsmith.compile.traced.calls.read`.
        products_along: dimensions of ``like`` along which factors and divisors have to be constant.
        sums_along: those along which what is added has to be.
    """
    result = tensor(node)
    if result is None or result.dtype != like.dtype or not same_shape(result, like):
        return None
    product = read(node, *names)
    if product is not None:
        return [], product
    for step in _steps(node, like, products_along, sums_along):
        found = linear_path(step.input, like, names, products_along=products_along, sums_along=sums_along)
        if found is not None:
            return [step, *found[0]], found[1]
    return None


def _steps(node: Any, like: torch.Tensor, products_along: Collection[int], sums_along: Collection[int]) -> list[Step]:
    """How a call may be a step: with one of its operands on the way, or the other."""
    dropout = read(node, "dropout")
    if dropout is not None:
        does_nothing = dropout["training"] is False or dropout["p"] == 0
        return [Step(dropout, dropout["input"], None)] if does_nothing else []
    call = plain(node, "add", "sub", "mul", "div")
    if call is None:
        return []
    sides = [(call["input"], call["other"])]
    if call.name != "div":
        sides.append((call["other"], call["input"]))
    constant = sums_along if call.name in {"add", "sub"} else products_along
    return [
        Step(call, side, other)
        for side, other in sides
        if isinstance(side, fx.Node) and _may_be_other(other, like, constant)
    ]


def _may_be_other(other: Any, like: torch.Tensor, constant: Collection[int]) -> bool:
    """Whether an operand is a number, or a tensor that is the same all along some dimensions."""
    if number(other) is not None:
        return True
    given = tensor(other)
    if given is None or given.dtype != like.dtype or given.device != like.device or given.dim() > like.dim():
        return False
    places = (dim - like.dim() + given.dim() for dim in constant)
    return all(place < 0 or given.shape[place] == 1 for place in places)
