"""Sums, means, products and extremes over segments that lie behind each other along one dimension, and their gradients.

Data of shape (O, N, I), the dimensions before, at and behind the axis, give results of (O, S, I). A program owns some
results and walks along their segments together, so its time is that of the longest one. Traffic: the data read
once and the results written; backward the data twice where the gradient depends on them, and the gradient written
after it was filled with zeros, for what belongs to no segment.

Suffixes: as above.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import Geometry, converted, index_type, number
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_type,
    launch,
    layout_of,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import copied, fill
from ..pointwise.basic import maximum_of, minimum_of
from .scans import cumsum

_BLOCK = 256
#: What a reduction starts from unless the caller says else.
_STARTS = {"sum": 0.0, "mean": 0.0, "prod": 1.0, "max": -math.inf, "min": math.inf}


@triton.jit
def segments_of(
    ends_ptr: tl.tensor,
    O: tl.tensor,  # noqa: E741 - A suffix of this file.
    N: tl.tensor,
    S: tl.tensor,
    I: tl.tensor,  # noqa: E741 - A suffix of this file.
    FIRST: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Of this program's results their numbers, which exist, where their data begin, and how long their segments are."""
    result = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    mask = result < O * S * I
    i, s, o = result % I, result // I % S, result // I // S
    end_ptr = ends_ptr + o * (S + FIRST) + s + FIRST
    end = tl.load(end_ptr, mask=mask, other=0).to(INDEX)
    begin = tl.load(end_ptr - 1, mask=mask & (s + FIRST > 0), other=0).to(INDEX)
    return result, mask, (o * N + begin) * I + i, tl.where(mask, end - begin, 0)


@triton.jit
def combined(total: tl.tensor, x: tl.tensor, REDUCE: tl.constexpr) -> tl.tensor:
    """One more element; an extreme with NaN is NaN."""
    if REDUCE == "max":
        result = maximum_of(total, x)
    elif REDUCE == "min":
        result = minimum_of(total, x)
    elif REDUCE == "prod":
        result = total * x
    else:
        result = total + x
    return result


@triton.jit
def segment_reduce_kernel(
    out_ptr: tl.tensor,
    data_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    O: tl.tensor,  # noqa: E741 - A suffix of this file.
    N: tl.tensor,
    S: tl.tensor,
    I: tl.tensor,  # noqa: E741 - A suffix of this file.
    start_bits: tl.tensor,
    REDUCE: tl.constexpr,
    IS_GIVEN: tl.constexpr,
    FIRST: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[o, s, i] = reduction of data[o, n, i]`` over the n of the segment, and the start."""
    pdl_prologue()
    result, mask, first, length = segments_of(ends_ptr, O, N, S, I, FIRST, INDEX, BLOCK)
    total = tl.zeros([BLOCK], COMPUTE) + number(start_bits, COMPUTE)
    longest = tl.max(length, axis=0)
    n = longest * 0
    while n < longest:
        x = tl.load(data_ptr + first + n * I, mask=n < length, other=0).to(COMPUTE)
        total = tl.where(n < length, combined(total, x, REDUCE), total)
        n += 1
    if REDUCE == "mean":
        mean = total / tl.maximum(length, 1).to(COMPUTE)
        total = mean if IS_GIVEN else tl.where(length > 0, mean, float("nan"))
    tl.store(out_ptr + result, converted(total, out_ptr.dtype.element_ty), mask=mask)


@triton.jit
def is_special(x: tl.tensor) -> tl.tensor:
    """What a product cannot be divided by to leave it out: 0 and NaN."""
    return (x == 0.0) | (x != x)  # noqa: PLR0124 - true for NaN


@triton.jit
def segment_reduce_backward_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    output_ptr: tl.tensor,
    data_ptr: tl.tensor,
    ends_ptr: tl.tensor,
    O: tl.tensor,  # noqa: E741 - A suffix of this file.
    N: tl.tensor,
    S: tl.tensor,
    I: tl.tensor,  # noqa: E741 - A suffix of this file.
    start_bits: tl.tensor,
    REDUCE: tl.constexpr,
    TWICE: tl.constexpr,
    FIRST: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """The gradient of each element of some segments.

    The gradient of an extreme goes to the elements that equal it and to NaNs. For a product it is the product of the
    others: the quotient, or, for what is 0 or NaN, the product of all that are neither, unless another is one. TWICE:
    the gradient depends on all elements, which are looked at first.
    """
    pdl_prologue()
    result, mask, first, length = segments_of(ends_ptr, O, N, S, I, FIRST, INDEX, BLOCK)
    grad = tl.load(grad_ptr + result, mask=mask, other=0).to(COMPUTE)
    output = tl.load(output_ptr + result, mask=mask, other=0).to(COMPUTE)
    longest = tl.max(length, axis=0)
    # Elements that share the extreme, or of a product the rest of it, and how many zeros and NaNs it has.
    hits = tl.zeros([BLOCK], tl.int32)
    nans = tl.zeros([BLOCK], tl.int32)
    rest = tl.zeros([BLOCK], COMPUTE) + number(start_bits, COMPUTE)
    if TWICE:
        n = longest * 0
        while n < longest:
            x = tl.load(data_ptr + first + n * I, mask=n < length, other=0).to(COMPUTE)
            is_nan = (n < length) & (x != x)  # noqa: PLR0124 - true for NaN
            nans += is_nan.to(tl.int32)
            if REDUCE == "prod":
                hits += ((n < length) & (x == 0.0)).to(tl.int32)
                rest = tl.where((n < length) & (is_special(x) == 0), rest * x, rest)
            else:
                hits += ((n < length) & ((x == output) | is_nan)).to(tl.int32)
            n += 1
    n = longest * 0
    while n < longest:
        inside = n < length
        x = tl.load(data_ptr + first + n * I, mask=inside, other=0).to(COMPUTE)
        if REDUCE == "sum":
            own = grad
        elif REDUCE == "mean":
            own = grad / tl.maximum(length, 1).to(COMPUTE)
        elif REDUCE == "prod":
            other_zeros, other_nans = hits - (x == 0.0).to(tl.int32), nans - (x != x).to(tl.int32)  # noqa: PLR0124
            others = tl.where(other_nans > 0, float("nan"), tl.where(other_zeros > 0, rest * 0.0, rest))
            own = tl.where(is_special(x), grad * others, grad * output / x)
        else:
            is_hit = (x == output) | (x != x)  # noqa: PLR0124 - true for NaN
            # As in ATen, a gradient that is not positive goes to each of them undivided.
            own = tl.where(is_hit, tl.where(grad > 0.0, grad / tl.maximum(hits, 1).to(COMPUTE), grad), 0.0)
        tl.store(out_ptr + first + n * I, converted(own, out_ptr.dtype.element_ty), mask=inside)
        n += 1


class Segments(NamedTuple):
    """Where segments end, and the sizes of the call.

    Attributes:
        ends: contiguous; with a 0 before each row's if ``first`` is 1.
        first: 0 or 1.
        sizes: O, N, S and I.
    """

    ends: torch.Tensor
    first: int
    sizes: tuple[int, int, int, int]


def segment_reduce(
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    indices: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    unsafe: bool = False,  # noqa: ARG001 - Lengths are not looked at either way.
    initial: float | None = None,
) -> torch.Tensor:
    """Reduce segments of ``data`` along ``axis``.

    Args:
        data: floating point.
        reduce: sum, mean, max, min or prod.
        lengths: of the segments, of the dimensions of ``data`` up to ``axis`` and as many as there are segments.
        indices: none are served.
        offsets: instead of lengths, where segments begin and the last one ends.
        axis: whose elements are divided into segments.
        unsafe: lengths and offsets may not fit; they must not reach beyond the data here.
        initial: what a reduction starts from.

    Raises:
        NotImplementedError: what is not served.
        ValueError: shapes that do not fit, or another reduction.
    """
    if indices is not None:
        raise NotImplementedError("segments by indices are not served")
    segments = _segments(data, lengths, offsets, axis)
    start = _start(reduce, initial)
    shape = (*data.shape[:axis], segments.sizes[2], *data.shape[axis + 1 :])
    out = torch.empty(shape, dtype=data.dtype, device=data.device)
    if out.numel():
        _launch(
            segment_reduce_kernel, (out, _dense(data)), segments, start, REDUCE=reduce, IS_GIVEN=initial is not None
        )
    return out


def segment_reduce_backward(
    grad: torch.Tensor,
    output: torch.Tensor,
    data: torch.Tensor,
    reduce: str,
    *,
    lengths: torch.Tensor | None = None,
    offsets: torch.Tensor | None = None,
    axis: int = 0,
    initial: float | None = None,
) -> torch.Tensor:
    """The gradient of the data of :func:`segment_reduce`, out of that of its result and the result itself.

    Raises:
        NotImplementedError: what is not served.
        ValueError: shapes that do not fit, or another reduction.
    """
    require_served(grad, output, dtypes=FLOATS)
    segments = _segments(data, lengths, offsets, axis)
    start = _start(reduce, initial)
    shape = (*data.shape[:axis], segments.sizes[2], *data.shape[axis + 1 :])
    if grad.shape != shape or output.shape != shape:
        raise ValueError("the gradient and the result have a place for each segment")
    out = torch.empty(data.shape, dtype=data.dtype, device=data.device)
    fill(out, 0)
    if out.numel() and grad.numel():
        tensors = (out, _dense(grad), _dense(output), _dense(data))
        _launch(
            segment_reduce_backward_kernel, tensors, segments, start, REDUCE=reduce, TWICE=reduce not in ("sum", "mean")
        )
    return out


def _start(reduce: str, initial: float | None) -> float:
    if reduce not in _STARTS:
        raise ValueError(f"segments are reduced by {', '.join(_STARTS)}, not by {reduce!r}")
    return _STARTS[reduce] if initial is None else initial


def _segments(data: torch.Tensor, lengths: torch.Tensor | None, offsets: torch.Tensor | None, axis: int) -> Segments:
    """The segments that lengths or offsets describe.

    Raises:
        NotImplementedError: a tensor that is not served.
        ValueError: neither or both are given, or their shape does not fit.
    """
    require_served(data, dtypes=FLOATS)
    require_served(lengths, offsets, dtypes=(torch.int32, torch.int64))
    given = offsets if lengths is None else lengths
    if given is None or (lengths is not None and offsets is not None):
        raise ValueError("segments need lengths or offsets")
    first = int(lengths is None)
    if not 0 <= axis < data.ndim or given.ndim != axis + 1 or given.shape[:axis] != data.shape[:axis]:
        raise ValueError(f"lengths or offsets have the dimensions of the data up to axis {axis}")
    count = given.shape[axis] - first
    if count < 0:
        raise ValueError("offsets end with the end of the last segment")
    sizes = (math.prod(data.shape[:axis]), data.shape[axis], count, math.prod(data.shape[axis + 1 :]))
    return Segments(_dense(given) if first else cumsum(given, axis), first, sizes)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor.is_contiguous() else copied(tensor)


def _launch(kernel: Any, tensors: tuple[torch.Tensor, ...], segments: Segments, start: float, **constants: Any) -> None:
    outer, _, count, inner = segments.sizes
    results = outer * count * inner
    compute = compute_type(tensors[0].dtype)
    block = min(triton.next_power_of_2(results), INTERPRETED_TILE) if INTERPRETED else _BLOCK
    reach = [Geometry(shape, (strides,)) for shape, strides in map(layout_of, tensors)]
    launch(
        kernel,
        (triton.cdiv(results, block),),
        tensors[0].device,
        *tensors,
        segments.ends,
        *segments.sizes,
        number_bits(start, compute),
        FIRST=segments.first,
        COMPUTE=compute,
        INDEX=max((index_type(part) for part in reach), key=lambda index: index.primitive_bitwidth),
        BLOCK=block,
        **constants,
    )
