"""Two tensors folded into one number: how far they are apart, whether they are equal, whether they are close.

Each pair of elements becomes a value, and the values are joined as in :mod:`.reductions`, without a tensor of them in
between: ``numel * (itemsize of x + itemsize of y)`` bytes read, and a second launch over partial results where one
program is not enough. Whether tensors are equal is a Python bool, for which the host waits, as in eager.

Suffixes: ``_MT`` one row, columns of a tile.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, served_promotion
from ..common.indexing import converted, expanded_strides, number, widened
from ..common.launch import (
    ELEMENT_TYPE,
    compute_dtype,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    number_bits,
    pdl_prologue,
    pick_device,
    read_count,
    require_served,
)
from ..common.matrix import column_offsets, matrix_of, tile_columns, tiling
from ..common.type_rules import float_result, require_type
from .reductions import ALL, Fold, fold, keep
from .vector_norms import norm_fold


@triton.jit
def paired_fold_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    y_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    y_strides: tl.tuple,
    sizes: tl.tuple,
    a_bits: tl.tensor,
    b_bits: tl.tensor,
    steps: tl.tensor,
    pair: tl.constexpr,
    lift: tl.constexpr,
    join: tl.constexpr,
    across: tl.constexpr,
    finish: tl.constexpr,
    START: tl.constexpr,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``out[p] = finish(lift(pair(x[0], y[0])) join lift(pair(x[1], y[1])) join ...)`` over what program p owns."""
    pdl_prologue()
    program = tl.program_id(0)
    a, b = number(a_bits, COMPUTE), number(b_bits, COMPUTE)
    result_MT = tl.full([1, BLOCK_J * BLOCK_K], START, ACCUMULATE)
    for step in range(steps):
        j, k = tile_columns(program * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_ptr + column_offsets(j, k, shape, x_strides)[None, :], mask=inside, other=0)
        y_MT = tl.load(y_ptr + column_offsets(j, k, shape, y_strides)[None, :], mask=inside, other=0)
        value_MT = pair(widened(converted(x_MT, READ)), widened(converted(y_MT, READ)), a, b)
        result_MT = join(result_MT, tl.where(inside, lift(value_MT, a).to(ACCUMULATE), START).to(ACCUMULATE))
    result_M = converted(finish(across(result_MT), a), out_ptr.dtype.element_ty)
    tl.store(out_ptr + program + tl.arange(0, 1), result_M)


def _paired_fold(
    x: torch.Tensor,
    y: torch.Tensor,
    pair: Any,
    steps: Fold,
    read: torch.dtype,
    result: torch.dtype,
    parameters: tuple[float, float],
) -> torch.Tensor:
    """Fold the pairs of elements, broadcast and converted to ``read``, into a tensor without dimensions.

    ``parameters`` are numbers for ``pair``; the first one is that of the fold, too.
    """
    device = pick_device([x, y])
    shape = tuple(torch.broadcast_shapes(x.shape, y.shape))
    out = torch.empty((), dtype=result, device=device)
    matrix = matrix_of(shape, [expanded_strides(layout_of(tensor), shape) for tensor in (x, y)], set(range(len(shape))))
    tiles = tiling(matrix, device)
    accumulate = torch.int32 if result == torch.bool else compute_dtype(result)
    is_whole = tiles.splits == 1
    partial_S = out if is_whole else torch.empty(tiles.splits, dtype=accumulate, device=device)
    compute = compute_type(read)
    launch(
        paired_fold_kernel,
        (tiles.splits,),
        device,
        partial_S,
        x,
        y,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        *(number_bits(parameter, compute) for parameter in parameters),
        loop_bound(tiles.steps),
        pair=pair,
        lift=steps.lift,
        join=steps.join,
        across=steps.across,
        finish=steps.finish if is_whole else keep,
        START=steps.start,
        READ=ELEMENT_TYPE[read],
        COMPUTE=compute,
        ACCUMULATE=compute_type(accumulate),
        INDEX=matrix.index,
        BLOCK_J=tiles.block_j,
        BLOCK_K=tiles.block_k,
        num_warps=tiles.warps,
    )
    if is_whole:
        return out
    second = steps._replace(lift=keep)
    types = {"read": accumulate, "accumulate": accumulate}
    return fold(partial_S, {0}, False, second, result=result, parameter=parameters[0], **types)


# ---------------------------------------------------------------- functions of values


@triton.jit
def difference_of(x: tl.tensor, y: tl.tensor, _a: tl.tensor, _b: tl.tensor) -> tl.tensor:
    """``x - y``."""
    return x - y


@triton.jit
def same_of(x: tl.tensor, y: tl.tensor, _a: tl.tensor, _b: tl.tensor) -> tl.tensor:
    """Whether the values are equal; NaN is not."""
    return x == y


@triton.jit
def close_of(x: tl.tensor, y: tl.tensor, rtol: tl.tensor, atol: tl.tensor) -> tl.tensor:
    """``|x - y| <= atol + rtol |y|`` where the difference is finite, or equality."""
    error = tl.abs(x - y)
    return (x == y) | ((error < float("inf")) & (error <= atol + tl.abs(rtol * y)))


@triton.jit
def close_or_nan_of(x: tl.tensor, y: tl.tensor, rtol: tl.tensor, atol: tl.tensor) -> tl.tensor:
    """As :func:`close_of`; a NaN is close to a NaN."""
    return close_of(x, y, rtol, atol) | ((x != x) & (y != y))  # noqa: PLR0124 - NaN is what differs from itself.


# ---------------------------------------------------------------- the ops


def dist(self: torch.Tensor, other: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The p-norm of ``self - other``, which broadcast.

    Raises:
        TypeError: the promoted type is not floating point.
    """
    require_served(self, other)
    result = served_promotion([self, other])
    if not result.is_floating_point:
        raise TypeError(f"a distance in {result} is not defined")
    require_type(result, of=FLOATS)
    return _paired_fold(self, other, difference_of, norm_fold(float(p)), result, result, (float(p), 0.0))


def _holds(answer: torch.Tensor) -> bool:
    """Wait for a tensor of one bool."""
    return bool(read_count(answer.view(1)))


def equal(self: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether shapes and all elements are equal.

    Raises:
        TypeError: two types.
    """
    require_served(self, other)
    if self.dtype != other.dtype:
        raise TypeError(f"{self.dtype} and {other.dtype} are not compared")
    if self.shape != other.shape:
        return False
    return _holds(_paired_fold(self, other, same_of, ALL._replace(lift=keep), self.dtype, torch.bool, (0, 0)))


def allclose(
    self: torch.Tensor, other: torch.Tensor, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
) -> bool:
    """Whether ``|self - other| <= atol + rtol |other|`` everywhere; infinities are close to themselves alone.

    Raises:
        TypeError: two types.
        ValueError: a negative tolerance.
    """
    require_served(self, other)
    if self.dtype != other.dtype:
        raise TypeError(f"{self.dtype} and {other.dtype} are not compared")
    if rtol < 0 or atol < 0:
        raise ValueError(f"rtol={rtol} and atol={atol} must not be negative")
    close = close_or_nan_of if equal_nan else close_of
    read = float_result(self.dtype)
    return _holds(_paired_fold(self, other, close, ALL._replace(lift=keep), read, torch.bool, (rtol, atol)))
