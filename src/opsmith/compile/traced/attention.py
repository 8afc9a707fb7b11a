"""softmax(Q K^T * scale + mask) V, spelled out, as one call of scaled_dot_product_attention.

The call keeps scores in float32 and does not write them to memory: for N queries and keys of width D it moves
4 N D elements instead of 4 N D + 4 N^2.

A mask is kept exactly. Where every key of a query is masked by minus infinity the spelled-out form returns NaN,
and implementations of the call return zero; so those rows are set to NaN afterwards, unless the mask is the
causal one, which has no such row.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true, sym_eq

from opsmith.compile.traced.calls import Reader, is_last, number, read, tensor
from opsmith.compile.traced.fusion import Match, fuse
from opsmith.compile.traced.known import Constants, Hidden, hides


@dataclass(frozen=True)
class _Scores:
    query: fx.Node
    key: fx.Node
    key_is_transposed: bool
    scale: float
    mask: fx.Node | None = None
    masked_where: bool = False
    """Whether ``mask`` is boolean and true where a score is minus infinity; else it is added."""


def fuse_attention(graph: fx.Graph) -> int:
    """Replace spelled-out attention."""
    return fuse(graph, functools.partial(_find, Constants(graph)))


def _find(constants: Constants, node: fx.Node) -> Match | None:
    reader = Reader()
    product = _values_product(node)
    if product is None:
        return None
    weights, value = product
    weights = _before_dropout(reader, reader.without_casts(weights))
    softmax = reader.take(reader.without_casts(weights), "softmax")
    given = None if softmax is None else tensor(softmax.node)
    if softmax is None or given is None or given.dtype == torch.float64 or not is_last(softmax["dim"], given):
        return None
    scores = _scores(reader, reader.without_casts(softmax["input"]))
    if scores is None or not _fits(scores, value):
        return None
    return Match(reader.inside, lambda graph: _build(graph, scores, value, constants))


def _values_product(node: fx.Node) -> tuple[Any, fx.Node] | None:
    """Weights and values of the second product."""
    call = read(node, "matmul", "einsum")
    if call is None or not isinstance(call["other"], fx.Node):
        return None
    if call.name == "einsum" and _einsum_form(call["equation"]) != "values":
        return None
    return call["input"], call["other"]


def _before_dropout(reader: Reader, node: Any) -> Any:
    """What dropout was given, where it does nothing."""
    call = read(node, "dropout")
    if call is not None and (call["training"] is False or call["p"] == 0):
        reader.inside.add(call.node)
        return reader.without_casts(call["input"])
    return node


def _scores(reader: Reader, node: Any) -> _Scores | None:
    mask, masked_where = None, False
    if (filled := reader.take(node, "masked_fill")) is not None:
        if number(filled["value"]) != -math.inf or not isinstance(filled["mask"], fx.Node):
            return None
        mask, masked_where, node = filled["mask"], True, filled["input"]
    elif (added := reader.take(node, "add")) is not None:
        operands = reader.operands(added, _leads_to_product)
        if operands is None or not isinstance(operands[1], fx.Node):
            return None
        node, mask = operands
    scale, factors = reader.product(reader.without_casts(node))
    if len(factors) != 1 or scale <= 0:
        return None
    product = reader.take(reader.without_casts(factors[0]), "matmul", "einsum")
    if product is None or not isinstance(product["input"], fx.Node) or not isinstance(product["other"], fx.Node):
        return None
    if product.name == "einsum":
        if _einsum_form(product["equation"]) != "scores":
            return None
        return _Scores(product["input"], product["other"], False, scale, mask, masked_where)
    return _Scores(product["input"], product["other"], True, scale, mask, masked_where)


def _leads_to_product(node: Any) -> bool:
    reader = Reader()
    _, factors = reader.product(reader.without_casts(node))
    return len(factors) == 1 and read(reader.without_casts(factors[0]), "matmul", "einsum") is not None


def _einsum_form(equation: Any) -> str | None:
    """``bhid,bhjd->bhij`` is ``scores``, ``bhij,bhjd->bhid`` is ``values``, whatever the letters."""
    if not isinstance(equation, str) or "." in equation:
        return None
    sides = equation.replace(" ", "").split("->")
    terms = sides[0].split(",")
    if len(sides) != 2 or len(terms) != 2:
        return None
    one, other, result = *terms, sides[1]
    batch = result[:-2]
    if not batch or len({*one, *other}) != len(batch) + 3 or not all(term[:-2] == batch for term in (one, other)):
        return None
    i, inner, j, width = one[-2], one[-1], other[-2], other[-1]
    out = result[-2:]
    if inner == width and out == i + j:
        return "scores"
    return "values" if inner == j and out == i + width else None


def _fits(scores: _Scores, value: fx.Node) -> bool:
    """Whether the call takes these tensors, and means the same by them."""
    query, key, values = tensor(scores.query), tensor(scores.key), tensor(value)
    if query is None or key is None or values is None:
        return False
    if not (query.dim() == key.dim() == values.dim() and query.dim() in {3, 4} and query.is_floating_point()):
        return False
    if not (query.dtype == key.dtype == values.dtype) or query.dtype == torch.float64:
        return False
    batches = (tuple(query.shape[:-2]), tuple(key.shape[:-2]), tuple(values.shape[:-2]))
    if not (statically_known_true(sym_eq(batches[0], batches[1])) and statically_known_true(sym_eq(*batches[1:]))):
        return False
    mask = tensor(scores.mask)
    if scores.mask is None:
        return True
    if mask is None or mask.dim() > query.dim() or mask.requires_grad:
        return False
    return mask.dtype == (torch.bool if scores.masked_where else query.dtype)


def _build(graph: fx.Graph, scores: _Scores, value: fx.Node, constants: Constants) -> fx.Node:
    query, key, mask = scores.query, scores.key, scores.mask
    if scores.key_is_transposed:
        transposed = read(key, "transpose")
        if transposed is not None and _swaps_last_two(transposed["dim0"], transposed["dim1"], key):
            key = transposed["input"]
        else:
            key = graph.call_method("transpose", (key, -2, -1))
    like = tensor(scores.query)
    assert like is not None
    kwargs: dict[str, Any] = {"scale": scores.scale}
    impossible = None
    if mask is not None and hides(mask, constants, where=scores.masked_where) == Hidden(later=True):
        kwargs["is_causal"] = True
    elif mask is not None:
        kwargs["attn_mask"], impossible = _mask(graph, mask, where=scores.masked_where, three=like.dim() == 3)
    if like.dim() == 3:  # The fused implementations take a dimension for heads.
        query, key, value = (graph.call_method("unsqueeze", (one, 1)) for one in (query, key, value))
    result = graph.call_function(F.scaled_dot_product_attention, (query, key, value), kwargs)
    if impossible is not None:
        result = graph.call_method("masked_fill", (result, impossible, math.nan))
    return graph.call_method("squeeze", (result, 1)) if like.dim() == 3 else result


def _swaps_last_two(one: Any, other: Any, node: fx.Node) -> bool:
    like = tensor(node)
    return (
        like is not None
        and type(one) is type(other) is int
        and {one % like.dim(), other % like.dim()}
        == {
            like.dim() - 2,
            like.dim() - 1,
        }
    )


def _mask(graph: fx.Graph, mask: fx.Node, *, where: bool, three: bool) -> tuple[fx.Node, fx.Node]:
    """The call's mask, and where a query has no key."""
    like = tensor(mask)
    assert like is not None
    if three and like.dim() == 3:
        mask = graph.call_method("unsqueeze", (mask, 1))
    if where:
        given = graph.call_method("logical_not", (mask,))
        none_left = graph.call_method("all", (mask,), {"dim": -1, "keepdim": True})
    else:
        given = mask
        closed = graph.call_function(torch.eq, (mask, -math.inf))
        none_left = graph.call_method("all", (closed,), {"dim": -1, "keepdim": True})
    return given, none_left
