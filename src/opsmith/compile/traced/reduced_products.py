"""Sums and means of what a product or a convolution returns, taken of its operands instead.

Summing is linear, and so are products: ``sum_n (x W)[m, n]`` is ``x[m] . sum_n W[:, n]``. The left side costs
``2 M K N`` operations and writes ``M N`` elements that only the sum reads, the right side ``2 M K + K N``. Likewise

- a sum over rows is the product of the rows' sum;
- a sum over a convolution's output channels is the convolution with the sum of its filters;
- a sum over a convolution's output positions along one dimension, as in global average pooling, meets every tap of
  the filter with the sum of the inputs that this tap sees. What remains is a convolution of one dimension less,
  whose channels are the input's, once for each tap that sees other inputs than the rest.

Between the product and the sum there may be sums with other tensors, products with what is constant along the summed
dimensions, and a dropout that does nothing.

Accuracy. Let a sum of R products of K factors be computed in either order. Each term ``x w`` then goes through at
most ``K + R - 2`` additions, so with the unit roundoff u both orders are within ``(K + R) u sum |x| |w|`` of the exact
value, to first order in u (Higham, Accuracy and Stability of Numerical Algorithms, section 3.1). In half precision
the written product is rounded to the dtype before it is summed; here everything is float32 up to the result, so the
bound shrinks. A convolution that would have to run in float32 over many positions for that stays as it is.
Where TF32 is allowed, what is multiplied is rounded to it as before: each sum once, instead of each of its terms.

What is infinite may differ: ``inf - inf`` between two columns is NaN in the sum, and ``inf * (w1 + w2)`` may not be.
NaN stays NaN.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F  # noqa: N812 - what everybody calls it
from torch import fx

from opsmith.compile.traced.calls import Call, read, static_size, tensor
from opsmith.compile.traced.convolutions import Convolution, read_convolution
from opsmith.compile.traced.fusion import GraphRecorder, Match, fuse
from opsmith.compile.traced.linear_paths import Step, linear_path

_HALF = (torch.float16, torch.bfloat16)
_PRODUCTS = ("linear", "matmul", "conv", "conv_transpose")
#: Rows whose sum is one row. Below these, the product saves less than the sum of its operand costs; with half
#: precision the other factor has to be copied to float32.
_FEWEST_ROWS, _FEWEST_ROWS_IN_HALF = 4, 64


@dataclass(frozen=True)
class _Reduction:
    """A sum or mean: what of, over which dimensions, of which sizes."""

    input: fx.Node
    sizes: dict[int, int]
    keepdim: bool
    mean: bool


def reduce_before_products(graph: fx.Graph) -> int:
    """Sum the operands of products instead of their results."""
    return fuse(graph, _find)


def _find(node: fx.Node) -> Match | None:
    reduction = _reduction(node)
    like = None if reduction is None else tensor(reduction.input)
    if reduction is None or like is None or torch.is_autocast_enabled(like.device.type):
        return None
    found = linear_path(reduction.input, like, _PRODUCTS, products_along=set(reduction.sizes))
    if found is None:
        return None
    steps, product = found
    reduced = _reduced_product(product, like, reduction.sizes)
    if reduced is None:
        return None
    inside = {product.node, *(step.call.node for step in steps)}
    return Match(inside, lambda graph: _build(GraphRecorder(graph), reduction, steps, reduced))


def _reduction(node: fx.Node) -> _Reduction | None:
    call = read(node, "sum", "mean", "adaptive_avg_pool")
    like = None if call is None else tensor(call["input"])
    if call is None or like is None or like.dim() < 2 or call["dtype"] is not None:
        return None
    if call.name == "adaptive_avg_pool":
        rank = int(str(getattr(node.target, "__name__", ""))[-2])
        wanted = call["output_size"] if isinstance(call["output_size"], (tuple, list)) else (call["output_size"],)
        dims, keepdim = list(range(-rank, 0)) if all(size == 1 for size in wanted) else None, True
    else:
        dims, keepdim = _dims(call["dim"], like.dim()), call["keepdim"] is True
    if dims is None:
        return None
    sizes = {dim % like.dim(): static_size(like.shape[dim]) for dim in dims}
    known = {dim: size for dim, size in sizes.items() if size}
    return _Reduction(call["input"], known, keepdim, call.name != "sum") if len(known) == len(sizes) else None


def _dims(dim: Any, rank: int) -> list[int] | None:
    """The dimensions that an argument names; without one, or with an empty list, all."""
    if dim is None or dim in ((), []):
        return list(range(rank))
    dims = list(dim) if isinstance(dim, (tuple, list)) else [dim]
    return dims if all(type(one) is int for one in dims) else None


# ---------------------------------------------------------------- products


@dataclass(frozen=True)
class _Matrices:
    """``left @ right`` with ``right`` of shape ``[..., K, N]``; a linear layer's weight is transposed."""

    left: fx.Node
    right: fx.Node
    transposed: bool
    bias: fx.Node | None


_Reduced = _Matrices | Convolution


def _reduced_product(call: Call, like: torch.Tensor, sizes: dict[int, int]) -> _Reduced | None:
    """A product that is worth summing before; None for one that is not."""
    operands = [call["input"], call["other"] if call.name == "matmul" else call["weight"]]
    given = [tensor(one) for one in operands]
    if any(one is None or one.dtype != like.dtype for one in given) or not like.is_floating_point():
        return None
    if call.name in {"conv", "conv_transpose"}:
        convolution = read_convolution(call)
        return convolution if convolution is not None and _convolution_pays(convolution, like, set(sizes)) else None
    left, right = operands
    matrices = _Matrices(left, right, call.name == "linear", call["bias"])
    return matrices if _matrices_pay(matrices, like, sizes) else None


def _matrices_pay(matrices: _Matrices, like: torch.Tensor, sizes: dict[int, int]) -> bool:
    left, right = tensor(matrices.left), tensor(matrices.right)
    if left is None or right is None or left.dim() != like.dim() or right.dim() < 2:
        return False
    last, batched = like.dim() - 1, right.dim() > 2
    rows = set(sizes) - {last}
    if batched and not rows <= {last - 1}:
        return False
    if last in sizes:
        return sizes[last] > 1
    half = like.dtype in _HALF
    return math.prod(sizes.values()) >= (_FEWEST_ROWS_IN_HALF if half else _FEWEST_ROWS) and not (half and batched)


def _convolution_pays(convolution: Convolution, like: torch.Tensor, dims: set[int]) -> bool:
    """Whether inputs that are read once for each of their windows are less than the output and its products.

    A GPU computes about 25 products of float32 in the time in which it moves an element of it, or more.
    """
    spatial = {dim - 2 for dim in dims if dim >= 2}
    if like.dtype in _HALF and len(spatial) < convolution.rank:
        return False
    if not spatial:
        return True
    windows = len(set(convolution.windows(max(spatial))))
    inputs, outputs = convolution.input_elements, convolution.output_elements
    return 2 * windows * inputs < inputs + 2 * outputs + outputs * convolution.products_per_output // 25


# ---------------------------------------------------------------- building


def _build(record: GraphRecorder, reduction: _Reduction, steps: Sequence[Step], product: _Reduced) -> fx.Node:
    like = tensor(reduction.input)
    assert like is not None
    wide = torch.float32 if like.dtype in _HALF else like.dtype
    over = _Over(reduction.sizes, like.dim(), wide)
    if isinstance(product, Convolution):
        total = product.summed(record, set(reduction.sizes), wide)
        bias_shape: Sequence[Any] = (like.shape[1], *(1,) * product.rank)
    else:
        total = _summed_matrices(record, product, over)
        bias_shape = like.shape[-1:]
    if product.bias is not None:
        bias = record(product.bias)
        total = total + over.addend(bias if len(bias_shape) == 1 else bias.view(bias_shape), bias_shape)
    for step in reversed(steps):
        total = _after_step(record, total, step, over)
    if reduction.mean:
        total = total / math.prod(reduction.sizes.values())
    if not reduction.keepdim:
        total = total.squeeze(tuple(sorted(reduction.sizes)))
    node: fx.Node = (total if wide == like.dtype else total.to(like.dtype)).node
    return node


def _summed_matrices(record: GraphRecorder, product: _Matrices, over: _Over) -> Any:
    """``[..., M, N]`` summed over some of its dimensions, which are kept with size 1."""
    left, right = record(product.left), record(product.right)
    rows = sorted(set(over.sizes) - {over.rank - 1})
    if rows:
        left = left.sum(rows, keepdim=True, dtype=over.dtype)
    if over.rank - 1 in over.sizes:
        # No product of matrices: the compiler makes one kernel of this and what is around it.
        columns = right.sum(0, dtype=over.dtype) if product.transposed else right.sum(-1, dtype=over.dtype)
        return (left * columns.unsqueeze(-2)).sum(-1, keepdim=True)
    right = over.widened(right, product.right)
    return F.linear(left, right) if product.transposed else torch.matmul(left, right)


def _after_step(record: GraphRecorder, total: Any, step: Step, over: _Over) -> Any:
    """The sum after a step, from the sum before it."""
    name, other = step.call.name, record(step.other)
    if name == "mul":
        return total * other
    if name == "div":
        return total / other
    if name == "dropout":
        return total
    given = tensor(step.other)
    addend = over.addend(other, () if given is None else given.shape)
    if name == "add":
        return total + addend
    return addend - total if step.call["other"] is step.input else total - addend


@dataclass(frozen=True)
class _Over:
    """What is summed over, in which dtype."""

    sizes: dict[int, int]
    rank: int
    dtype: torch.dtype

    def addend(self, other: Any, shape: Sequence[Any]) -> Any:
        """The sum of what is added to every element: numbers, and tensors that broadcast."""
        own = {dim: dim - self.rank + len(shape) for dim in self.sizes}
        real = sorted(place for place in own.values() if place >= 0 and shape[place] != 1)
        times = math.prod(size for dim, size in self.sizes.items() if own[dim] not in real)
        summed = other.sum(real, keepdim=True, dtype=self.dtype) if real else other
        return summed * times if times != 1 else summed

    def widened(self, operand: Any, node: fx.Node) -> Any:
        """An operand in the dtype of the sum."""
        given = tensor(node)
        assert given is not None
        return operand if given.dtype == self.dtype else operand.to(self.dtype)
