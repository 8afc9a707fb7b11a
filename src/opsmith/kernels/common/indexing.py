"""Where an element lies: strides as eager gives them, merged dimensions, and offsets in a kernel.

A kernel numbers elements along a flat index and walks the dimensions fastest first. Merging
dimensions that lie seamlessly behind each other in every operand leaves one for the common
contiguous call, so that its loads are plain 16-byte accesses.

Suffixes: ``_D`` one entry per dimension, ``_I`` one per operand.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from .launch import INTERPRETED

Ints = tuple[int, ...]
#: Shape and strides of a tensor.
Layout = tuple[Ints, Ints]


@triton.jit
def offset_of(index: tl.tensor, shape_D: tl.tuple, strides_D: tl.tuple) -> tl.tensor:
    """Offset, in elements, of the element with flat ``index``; the first dimension runs fastest."""
    offset = index * 0
    for d in tl.static_range(len(shape_D)):
        if d + 1 < len(shape_D):
            offset += (index % shape_D[d]) * strides_D[d]
            index = index // shape_D[d]
        else:
            offset += index * strides_D[d]
    return offset


@triton.jit
def number(bits: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """A scalar that came as :func:`launch.number_bits`."""
    wide = tl.full([1], bits, tl.int64)
    if TYPE.primitive_bitwidth == 16 and TYPE.is_floating():
        value = converted(wide.to(tl.float64, bitcast=True).to(tl.float32), TYPE)
    elif TYPE.is_floating():
        value = wide.to(tl.float64, bitcast=True).to(TYPE)
    else:
        value = wide.to(TYPE)
    return value


#: Triton's interpreter cuts float32 to bfloat16 where a device rounds to nearest even, and loses denormal numbers.
IS_INTERPRETED = tl.constexpr(INTERPRETED)


@triton.jit
def converted(x: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """``x`` as ``TYPE``, rounded once; to a half type by way of float32, as eager converts integers."""
    if x.dtype == TYPE:
        result = x
    elif TYPE.is_floating() and TYPE.primitive_bitwidth == 16:
        result = widened(x).to(tl.float32)
        if IS_INTERPRETED and TYPE.is_bf16():
            bits = result.to(tl.int32, bitcast=True)
            nearest = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
            # NaN keeps its upper bits, of which one is set for sure.
            nearest = tl.where(result == result, nearest, (bits >> 16) | 1)  # noqa: PLR0124 - false for NaN
            result = nearest.to(tl.int16).to(TYPE, bitcast=True)
        else:
            result = result.to(TYPE)
    elif x.dtype.is_floating() and TYPE.is_int() and TYPE.primitive_bitwidth > 1 and TYPE.primitive_bitwidth <= 16:
        # A number outside a short type wraps, as it does in C++ by way of int.
        result = widened(x).to(tl.int32).to(TYPE)
    else:
        result = widened(x).to(TYPE)
    return result


@triton.jit
def widened(x: tl.tensor) -> tl.tensor:
    """``x`` in float32 if it is of a half type."""
    if IS_INTERPRETED and x.dtype.is_bf16():
        result = (x.to(tl.int16, bitcast=True).to(tl.int32) << 16).to(tl.float32, bitcast=True)
    elif x.dtype.is_floating() and x.dtype.primitive_bitwidth == 16:
        result = x.to(tl.float32)
    else:
        result = x
    return result


class Geometry(NamedTuple):
    """Merged dimensions, fastest first: at least one, and the strides of every operand in them."""

    shape_D: Ints
    strides_ID: tuple[Ints, ...]

    def numel(self) -> int:
        """The number of elements that the dimensions span."""
        return math.prod(self.shape_D)

    def reach(self) -> int:
        """No flat index and no offset of any operand exceeds this."""
        spans = [
            sum(size * abs(step) for size, step in zip(self.shape_D, strides_D, strict=True))
            for strides_D in self.strides_ID
        ]
        return max([self.numel(), *spans])


def index_type(*parts: Geometry) -> tl.dtype:
    """int32 where indices and offsets that are sums over the parts fit, with room for the last block; else int64."""
    return tl.int32 if sum(part.reach() for part in parts) < (1 << 31) - (1 << 20) else tl.int64


def merge_dims(shape: Ints, strides_I: Sequence[Ints], order: Iterable[int]) -> Geometry:
    """Merge the dimensions ``order`` (fastest first) of operands with the same ``shape``."""
    sizes: list[int] = []
    merged: list[list[int]] = [[] for _ in strides_I]
    for dim in order:
        if shape[dim] == 1:
            continue
        if sizes and all(s[dim] == m[-1] * sizes[-1] for s, m in zip(strides_I, merged, strict=True)):
            sizes[-1] *= shape[dim]
            continue
        sizes.append(shape[dim])
        for strides, kept in zip(strides_I, merged, strict=True):
            kept.append(strides[dim])
    if not sizes:
        # Stride 0, not 1, which would tell the compiler that the other part's addresses lose their alignment.
        return Geometry((1,), tuple((0,) for _ in strides_I))
    return Geometry(tuple(sizes), tuple(tuple(kept) for kept in merged))


def normalized_dims(dim: Sequence[int] | int | None, ndim: int) -> set[int]:
    """The dimensions as a set of non-negative numbers, all for None or none; a 0-dim tensor has the dimension 0.

    Raises:
        IndexError: a dimension out of range.
        ValueError: a dimension given twice.
    """
    dims = [dim] if isinstance(dim, int) else list(dim or range(ndim))
    room = max(ndim, 1)
    for given in dims:
        if not -room <= given < room:
            raise IndexError(f"dimension {given} is out of range for a tensor of {ndim} dimensions")
    normalized = {given % room for given in dims}
    if len(normalized) < len(dims):
        raise ValueError(f"a dimension appears twice in {dims}")
    return normalized


def contiguous_strides(shape: Ints) -> Ints:
    """Row-major strides; as torch has it, an empty dimension counts as one element."""
    return dense_strides(tuple(max(size, 1) for size in shape), range(len(shape) - 1, -1, -1))


def dense_strides(shape: Ints, order: Iterable[int]) -> Ints:
    """Strides of a tensor without gaps whose dimensions are ``order``, fastest first."""
    strides = [0] * len(shape)
    step = 1
    for dim in order:
        strides[dim] = step
        step *= shape[dim]
    return tuple(strides)


@functools.lru_cache(maxsize=4096)
def output_layout(operands: tuple[Layout, ...]) -> Layout:
    """Shape and strides that eager gives the result of an elementwise op.

    The strides that all operands share where they do, else dense strides in the operands' order.

    Raises:
        RuntimeError: the shapes do not broadcast.
    """
    shape = tuple(torch.broadcast_shapes(*(own for own, _ in operands)))
    strides_I = [expanded_strides(layout, shape) for layout in operands]
    same_shape = all(own == shape for own, _ in operands)
    shared = _shared_strides(shape, strides_I) if same_shape else None
    return shape, shared or _ordered_strides(shape, strides_I)


@functools.lru_cache(maxsize=4096)
def elementwise_geometry(output: Layout, operands: tuple[Layout, ...]) -> Geometry:
    """Merged dimensions of an elementwise call in the output's order; the output's strides come first."""
    shape, strides = output
    order = sorted(range(len(shape)), key=lambda dim: strides[dim])
    return merge_dims(shape, [strides, *(expanded_strides(layout, shape) for layout in operands)], order)


def expanded_strides(layout: Layout, shape: Ints) -> Ints:
    """Strides of a tensor expanded to ``shape``: zero along what is broadcast."""
    own, strides = layout
    missing = len(shape) - len(own)
    pairs = zip(own, strides, shape[missing:], strict=True)
    return (0,) * missing + tuple(0 if size == 1 and size != full else stride for size, stride, full in pairs)


def _shared_strides(shape: Ints, strides_I: Sequence[Ints]) -> Ints | None:
    """The dense strides that all operands of one shape have in common, or None.

    Row-major and channels-last win over equality, since strides of size-1 dimensions may differ.
    """
    candidates = [contiguous_strides(shape)]
    if len(shape) == 4:
        candidates.append(dense_strides(shape, (1, 3, 2, 0)))
    for dense in candidates:
        if all(_same_places(shape, strides, dense) for strides in strides_I):
            return dense
    first = strides_I[0]
    by_stride = sorted(range(len(shape)), key=lambda dim: (first[dim], shape[dim]))
    is_dense = _same_places(shape, first, dense_strides(shape, by_stride))
    return first if is_dense and all(strides == first for strides in strides_I) else None


def _same_places(shape: Ints, strides: Ints, others: Ints) -> bool:
    """Whether two stridings put every element at the same offset."""
    differ = (size > 1 and a != b for size, a, b in zip(shape, strides, others, strict=True))
    return 0 in shape or not any(differ)


def _ordered_strides(shape: Ints, strides_I: Sequence[Ints]) -> Ints:
    """Dense strides in the order of the operands' own, as TensorIterator finds it.

    An insertion sort from row-major order, in which the first operand that tells two dimensions
    apart decides; the order is not total, so the algorithm is part of the rule.
    """
    order = list(reversed(range(len(shape))))
    for start in range(1, len(order)):
        moving = start
        for other in reversed(range(start)):
            verdict = _compare(order[other], order[moving], shape, strides_I)
            if verdict > 0:
                order[other], order[moving] = order[moving], order[other]
                moving = other
            elif verdict < 0:
                break
    row_major = all(faster > slower for faster, slower in itertools.pairwise(order))
    return contiguous_strides(shape) if row_major else dense_strides(shape, order)


def _compare(inner: int, outer: int, shape: Ints, strides_I: Sequence[Ints]) -> int:
    """1 where ``inner`` should run slower than ``outer``, -1 where it should not, 0 where nothing tells."""
    for strides in strides_I:
        a, b = strides[inner], strides[outer]
        if a == 0 or b == 0:
            continue
        if a != b:
            return 1 if a > b else -1
        if shape[inner] > shape[outer]:
            return 1
    return 0
