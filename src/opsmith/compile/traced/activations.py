"""GELU that is spelled out, as one call.

The call's gradient needs its input only, where the formula's keeps a tensor for each of its steps.
"""

from __future__ import annotations

import math
from typing import Any

import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Reader, close_to, number, plain, read, tensor
from opsmith.compile.traced.fusion import Match, fuse

_CUBIC = 0.044715


def fuse_gelu(graph: fx.Graph) -> int:
    """``0.5 x (1 + erf(x / sqrt(2)))``, and the form with tanh."""
    return fuse(graph, _gelu)


def _gelu(node: fx.Node) -> Match | None:
    if plain(node, "mul", "div") is None:
        return None
    reader = Reader()
    half, factors = reader.product(node)
    like = tensor(node)
    if not close_to(half, 0.5) or len(factors) != 2 or like is None or not like.is_floating_point():
        return None
    for gate, x in (factors, reversed(factors)):
        form = _form(reader, gate, x)
        if form is not None:
            return _match(reader.inside - {node, x}, x, form)
    return None


def _match(inside: set[fx.Node], x: fx.Node, form: str) -> Match:
    return Match(inside, lambda graph: graph.call_function(F.gelu, (x,), {"approximate": form}))


def _form(reader: Reader, gate: Any, x: Any) -> str | None:
    """Which GELU has the gate ``1 + ...``; None where it is no gate, or one of another tensor than ``x``."""
    added = reader.take(gate, "add")
    operands = None if added is None else reader.operands(added, lambda side: number(side) == 1)
    curve = None if operands is None else reader.take(operands[1], "erf", "tanh")
    if curve is None:
        return None
    scale, factors = reader.product(curve["input"])
    if curve.name == "erf":
        return "none" if close_to(scale, math.sqrt(0.5)) and factors == [x] else None
    if not close_to(scale, math.sqrt(2 / math.pi)):
        return None
    if len(factors) == 1:
        return "tanh" if _is_cubic(reader, factors[0], x, degree=1) else None
    if len(factors) == 2 and x in factors:
        polynomial = factors[1] if factors[0] is x else factors[0]
        return "tanh" if _is_cubic(reader, polynomial, x, degree=0) else None
    return None


def _is_cubic(reader: Reader, node: Any, x: Any, *, degree: int) -> bool:
    """``x + 0.044715 x^3``, or that divided by x where ``degree`` is 0."""
    added = reader.take(node, "add")
    first = (lambda side: side is x) if degree else (lambda side: number(side) == 1)
    operands = None if added is None else reader.operands(added, first)
    if operands is None:
        return False
    scale, factors = reader.product(operands[1])
    return close_to(scale, _CUBIC) and _power(reader, factors, x) == degree + 2


def _power(reader: Reader, factors: list[Any], x: Any) -> float:
    """The power of x that a product is; not a number where it is none."""
    total = 0.0
    for factor in factors:
        raised = read(factor, "pow", "square")
        if factor is x:
            total += 1
        elif raised is not None and raised["input"] is x:
            reader.inside.add(raised.node)
            total += 2 if raised.name == "square" else number(raised["exponent"]) or math.nan
        else:
            return math.nan
    return total
