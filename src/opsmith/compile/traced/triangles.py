"""Products of which only a triangle counts, in strips that leave the rest out.

- ``tril(a @ b)`` keeps the entries below the diagonal: strip i of S needs its columns up to the diagonal only.
- ``tril(a) @ b`` has zeros above it: strip i needs that much of the inner dimension only.
- ``x @ x.T`` is symmetric: strip i is computed up to the diagonal, and what is right of it is a transposed copy.

So do their counterparts with ``triu``. S strips do ``(S + 1) / 2 S`` of the work: 3/4 with two, 5/8 with four. They are
products of torch's own, each large enough to keep a GPU busy.

Accuracy: every entry is the same sum of products; what is left out is products with zero, and entries nobody sees.
A symmetric product becomes exactly symmetric. Products of zero with what is not finite, NaN, are left out as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx
from torch.fx.experimental.symbolic_shapes import statically_known_true

from opsmith.compile.traced.calls import read, static_size, tensor
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse

#: Entries of a strip's smallest square that keep a GPU busy: two tiles of 128 by 128 for each of its 132 processors.
_FEWEST_ENTRIES = 2 * 128 * 128 * 128
#: Products for each entry of the result, from which on a quarter of them costs eight times what copying the result
#: does, at 50 (float32) and 700 (half precision) TFLOP/s and 4 TB/s. With half of that a CPU does not win.
_FEWEST_PRODUCTS, _FEWEST_PRODUCTS_IN_HALF = 2048, 12288


def halve_products(graph: fx.Graph) -> int:
    """Leave out the half that does not count."""
    return fuse(graph, _masked_product) + fuse(graph, _product_of_triangle) + fuse(graph, _gram_matrix)


def _masked_product(node: fx.Node) -> Match | None:
    mask = read(node, "tril", "triu")
    product = None if mask is None else _product(mask["input"])
    size = _square_size(node)
    if mask is None or product is None or size is None or not _strict(mask["diagonal"], lower=mask.name == "tril"):
        return None
    strips, lower, diagonal = _strips(size, _batch(node)), mask.name == "tril", mask["diagonal"] or 0
    if strips is None:
        return None

    def build(graph: fx.Graph) -> fx.Node:
        left, right = map(GraphRecorder(graph), product)
        parts = []
        for first, last in strips:
            rows = left[..., first:last, :]
            if lower:
                part = torch.tril(rows @ right[..., :last], diagonal + first)
                parts.append(F.pad(part, (0, size - last)))
            else:
                parts.append(F.pad(torch.triu(rows @ right[..., first:], diagonal), (first, 0)))
        return _node(torch.cat(parts, -2))

    return Match({mask["input"]}, build)


def _product_of_triangle(node: fx.Node) -> Match | None:
    product = _product(node)
    if product is None:
        return None
    for place, operand in enumerate(product):
        mask = read(operand, "tril", "triu")
        if mask is not None and _strict(mask["diagonal"], lower=mask.name == "tril"):
            return _in_strips_of(node, product, place, lower=mask.name == "tril")
    return None


def _in_strips_of(node: fx.Node, product: Sequence[fx.Node], place: int, *, lower: bool) -> Match | None:
    """Rows of the first factor, or columns of the second, with as much of the inner dimension as is not zero."""
    size, like = _square_size(product[place]), tensor(node)
    if size is None or like is None or not _worth_a_copy(like, size):
        return None
    strips = _strips(size, _batch(node))
    if strips is None:
        return None

    def build(graph: fx.Graph) -> fx.Node:
        left, right = map(GraphRecorder(graph), product)
        parts = []
        for first, last in strips:
            inner = slice(None, last) if lower == (place == 0) else slice(first, None)
            if place == 0:
                parts.append(left[..., first:last, inner] @ right[..., inner, :])
            else:
                parts.append(left[..., inner] @ right[..., inner, first:last])
        return _node(torch.cat(parts, -2 if place == 0 else -1))

    return Match(set(), build)


def _gram_matrix(node: fx.Node) -> Match | None:
    product = _product(node)
    if product is None or not (_is_transpose(product[1], product[0]) or _is_transpose(product[0], product[1])):
        return None
    size, given = _square_size(node), tensor(product[0])
    inner = None if given is None else static_size(given.shape[-1])
    if size is None or given is None or inner is None or not _worth_a_copy(given, inner):
        return None
    strips = _strips(size, _batch(node))
    if strips is None:
        return None

    def build(graph: fx.Graph) -> fx.Node:
        left, right = map(GraphRecorder(graph), product)
        rows = [left[..., first:last, :] @ right[..., :last] for first, last in strips]
        whole = []
        for place, (first, last) in enumerate(strips):
            mirrored = [row[..., first:last].transpose(-2, -1) for row in rows[place + 1 :]]
            whole.append(torch.cat([rows[place], *mirrored], -1))
        return _node(torch.cat(whole, -2))

    return Match(set(), build)


# ---------------------------------------------------------------- conditions


def _node(recorded: Any) -> fx.Node:
    node: fx.Node = recorded.node
    return node


def _product(node: Any) -> tuple[fx.Node, fx.Node] | None:
    """The two factors of a product of matrices, in one dtype and with the same batch."""
    call = read(node, "matmul")
    one, other, result = tensor(node), None, tensor(node)
    if call is not None:
        one, other = tensor(call["input"]), tensor(call["other"])
    if call is None or one is None or other is None or result is None:
        return None
    plain = one.dtype == other.dtype == result.dtype and one.is_floating_point()
    return (call["input"], call["other"]) if plain and one.dim() == other.dim() >= 2 else None


def _strict(diagonal: Any, *, lower: bool) -> bool:
    """Whether everything right of a strip's own square is left out (or left of it)."""
    return diagonal is None or (type(diagonal) is int and (diagonal <= 0 if lower else diagonal >= 0))


def _square_size(node: Any) -> int | None:
    like = tensor(node)
    if like is None or like.dim() < 2 or not statically_known_true(like.shape[-1] == like.shape[-2]):
        return None
    return static_size(like.shape[-1])


def _batch(node: fx.Node) -> int:
    """How many matrices there are; 1 where that is a symbol."""
    like, count = tensor(node), 1
    for size in () if like is None else like.shape[:-2]:
        count *= static_size(size) or 1
    return count


def _strips(size: int, batch: int) -> list[tuple[int, int]] | None:
    """First and last row of each, four or two; None if these would be small."""
    for count in (4, 2):
        height = -(-size // count)
        if batch * height * height >= _FEWEST_ENTRIES:
            return [(first, min(first + height, size)) for first in range(0, size, height)]
    return None


def _worth_a_copy(like: torch.Tensor, products: int) -> bool:
    half = like.dtype in {torch.float16, torch.bfloat16}
    return products >= (_FEWEST_PRODUCTS_IN_HALF if half else _FEWEST_PRODUCTS)


def _is_transpose(node: Any, of: fx.Node) -> bool:
    """Whether a node is the other one with its last two dimensions exchanged."""
    call = read(node, "transpose", "t", "getattr")
    if call is None or call["input"] is not of:
        return False
    if call.name == "getattr":
        like = tensor(of)
        return call["name"] == "mT" or (call["name"] == "T" and like is not None and like.dim() == 2)
    if call.name == "t":
        return True
    like = tensor(of)
    return like is not None and {call["dim0"] % like.dim(), call["dim1"] % like.dim()} == {
        like.dim() - 2,
        like.dim() - 1,
    }
