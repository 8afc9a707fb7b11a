"""Reductions over any dimensions: sums, means, products, counts, any and all.

The input is seen as a matrix, see :mod:`matrix`: its rows are the kept positions, its columns the reduced ones.
Traffic: ``numel * itemsize`` bytes read, ``M * itemsize`` written; where M alone gives a device too few
programs, the columns are split and ``2 * M * splits * itemsize`` bytes of partial results are written and read again.

Sums and means of complex numbers are those of both parts, seen as one more dimension that is kept.

Suffixes: ``_M`` kept, ``_T`` columns of a tile, ``_S`` splits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, load_dense
from ..common.indexing import Geometry, converted, dense_strides, normalized_dims, number, widened
from ..common.launch import (
    ELEMENT_TYPE,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    number_bits,
    pdl_prologue,
    require_served,
)
from ..common.matrix import (
    Matrix,
    Tiling,
    column_offsets,
    matrix_of,
    row_offsets,
    row_strides,
    tile_columns,
    tile_rows,
    tiling,
)

# ---------------------------------------------------------------- the kernel


@triton.jit
def fold_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    parameter_bits: tl.tensor,
    steps: tl.tensor,
    lift: tl.constexpr,
    join: tl.constexpr,
    across: tl.constexpr,
    finish: tl.constexpr,
    START: tl.constexpr,
    READ: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    RAGGED: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``out[m] = finish(lift(x[m, 0]) join lift(x[m, 1]) join ...)`` over the ``steps`` tiles that a split owns.

    Every lane of the tile keeps its own running result and the lanes are joined as a tree at the end, so
    the rounding error of a sum grows with the number of steps and the logarithm of a tile's width.
    Split s of S writes to ``out + s * M``; with more than one, ``out_strides`` are those of one split.
    RAGGED: there is one row, of which whole tiles are read without a mask, see :func:`.elementwise.load_dense`.
    """
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    parameter = number(parameter_bits, ACCUMULATE)
    row_M = x_ptr + row_offsets(m, shape, x_strides)
    result_MT = tl.full([BLOCK_M, BLOCK_J * BLOCK_K], START, ACCUMULATE)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        whole = (split * steps + step).to(INDEX) * BLOCK_K <= sizes[2] - BLOCK_K
        x_MT = load_dense(row_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :], inside, whole, RAGGED)
        lifted_MT = lift(widened(converted(x_MT, READ)), parameter).to(ACCUMULATE)
        result_MT = join(result_MT, tl.where(inside, lifted_MT, START).to(ACCUMULATE))
    result_M = converted(finish(across(result_MT), parameter), out_ptr.dtype.element_ty)
    tl.store(out_ptr + split.to(INDEX) * sizes[0] + row_offsets(m, shape, out_strides), result_M, mask=m < sizes[0])


class Fold(NamedTuple):
    """What is done with the elements, as functions of a kernel.

    ``lift`` takes an element as it was read and a parameter, such as a count; ``finish`` the result and the parameter.
    """

    lift: Any
    join: Any
    across: Any
    finish: Any
    #: What joins with any value to that value.
    start: float


def fold(
    x: torch.Tensor,
    dims: set[int],
    keepdim: bool,
    steps: Fold,
    *,
    result: torch.dtype,
    read: torch.dtype | None = None,
    accumulate: torch.dtype | None = None,
    parameter: float = 0,
) -> torch.Tensor:
    """Reduce ``x`` over ``dims``.

    Args:
        result: the dtype of the row-major tensor that is returned.
        read: what every element is converted to first, as eager does: ``result`` if not given.
        accumulate: the dtype of the running results: what ``result`` is computed in if not given.
        parameter: for ``lift`` and ``finish``.
    """
    require_few_dims(x)
    full_shape = [1 if d in dims else size for d, size in enumerate(x.shape)]
    shape = full_shape if keepdim else [size for d, size in enumerate(x.shape) if d not in dims]
    out = torch.empty(shape, dtype=result, device=x.device)
    if not out.numel():
        return out
    matrix = matrix_of(x.shape, [x.stride(), row_strides(x.shape, dims)], dims)
    types = read or result, accumulate or compute_dtype(result)
    tiles = tiling(matrix, x.device)
    if tiles.splits == 1:
        _launch_fold(out, x, matrix, tiles, steps, types, parameter)
        return out
    partial_SM = torch.empty((tiles.splits, matrix.sizes[0]), dtype=types[1], device=x.device)
    first, second = split_matrix(matrix, tiles.splits)
    _launch_fold(partial_SM, x, first, tiles, steps._replace(finish=keep), types, parameter)
    across = tiling(second, x.device, split=False)
    _launch_fold(out, partial_SM, second, across, steps._replace(lift=keep), (types[1],) * 2, parameter)
    return out


def split_matrix(matrix: Matrix, splits: int) -> tuple[Matrix, Matrix]:
    """Two matrices for that of input and output: input and partial results ``p_SM``; ``p_SM`` and output."""
    rows = matrix.rows
    M = rows.numel()
    packed_D = dense_strides(rows.shape_D, range(len(rows.shape_D)))
    first = matrix._replace(rows=Geometry(rows.shape_D, (rows.strides_ID[0], packed_D)))
    columns = Geometry((splits,), ((M,), (0,)))
    second = Matrix(Geometry(rows.shape_D, (packed_D, rows.strides_ID[1])), Geometry((1,), ((0,), (0,))), columns)
    return first, second


def _launch_fold(
    out: torch.Tensor,
    x: torch.Tensor,
    matrix: Matrix,
    tiles: Tiling,
    steps: Fold,
    types: tuple[torch.dtype, torch.dtype],
    parameter: float,
) -> None:
    read, accumulate = types
    element = compute_type(accumulate)
    M, J, K = matrix.sizes
    # Triton tells multiples of 16 apart from other numbers.
    ragged = M == J == matrix.strides(0)[2] == 1 and K % 16 != 0 and tiles.block_k < K
    # As many splits as multiprocessors hold with 32 registers a thread; with the 38 that are taken otherwise, a quarter
    # would run when the others are done. Wider sums, and the two loads of a ragged row, would spill.
    narrow = tiles.warps == 8 and accumulate.itemsize == 4 and matrix.index == tl.int32 and not ragged
    limits = {"maxnreg": 32} if tiles.splits > 1 and narrow else {}
    launch(
        fold_kernel,
        (triton.cdiv(M, tiles.block_m), tiles.splits),
        x.device,
        out,
        x,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        number_bits(parameter, element),
        loop_bound(tiles.steps),
        lift=steps.lift,
        join=steps.join,
        across=steps.across,
        finish=steps.finish,
        START=steps.start,
        READ=ELEMENT_TYPE[read],
        ACCUMULATE=element,
        RAGGED=ragged,
        INDEX=matrix.index,
        **tiles.blocks(),
        **limits,
    )


# ---------------------------------------------------------------- functions of values


@triton.jit
def keep(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """The value itself."""
    return x


@triton.jit
def plus(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x + y``."""
    return x + y


@triton.jit
def times(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x y``."""
    return x * y


@triton.jit
def greater(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The greater one of two that are not NaN."""
    return tl.maximum(x, y)


@triton.jit
def smaller(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The smaller one of two that are not NaN."""
    return tl.minimum(x, y)


@triton.jit
def total(x_MT: tl.tensor) -> tl.tensor:
    """The sum of a row."""
    return tl.sum(x_MT, axis=1)


@triton.jit
def product(x_MT: tl.tensor) -> tl.tensor:
    """The product of a row."""
    return tl.reduce(x_MT, 1, times)


@triton.jit
def greatest(x_MT: tl.tensor) -> tl.tensor:
    """The maximum of a row without NaN."""
    return tl.max(x_MT, axis=1)


@triton.jit
def smallest(x_MT: tl.tensor) -> tl.tensor:
    """The smallest of a row without NaN."""
    return tl.min(x_MT, axis=1)


@triton.jit
def quotient(x: tl.tensor, count: tl.tensor) -> tl.tensor:
    """``x / count``."""
    return x / count


@triton.jit
def or_zero(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """``x``, or 0 for NaN."""
    return tl.where(x == x, x, tl.zeros_like(x))  # noqa: PLR0124 - NaN is what differs from itself.


@triton.jit
def is_nonzero(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """1 for what counts as true, such as NaN; else 0."""
    return (x != 0).to(x.dtype)


SUM = Fold(keep, plus, total, keep, 0)
MEAN = SUM._replace(finish=quotient)
NANSUM = SUM._replace(lift=or_zero)
COUNT = SUM._replace(lift=is_nonzero)
PRODUCT = Fold(keep, times, product, keep, 1)
ANY = Fold(is_nonzero, greater, greatest, keep, 0)
ALL = Fold(is_nonzero, smaller, smallest, keep, 1)

# ---------------------------------------------------------------- the ops


def sum_default(self: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The sum of all elements."""
    return sum_dim(self, None, dtype=dtype)


def sum_dim(
    self: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The sum over ``dim`` (None or empty: all); integers and bools add up as int64 unless ``dtype`` says else."""
    if self.is_complex():
        return _of_parts(sum_dim, self, dim, keepdim, dtype)
    require_served(self)
    return fold(self, normalized_dims(dim, self.ndim), keepdim, SUM, result=sum_dtype(self, dtype))


def _of_parts(
    reduce: Any, x: torch.Tensor, dim: Sequence[int] | None, keepdim: bool, dtype: torch.dtype | None
) -> torch.Tensor:
    """A sum or mean of complex numbers: that of the real parts beside that of the imaginary ones.

    Raises:
        NotImplementedError: another type than that of ``x``, or a tensor that is conjugated lazily.
    """
    require_served(x, dtypes=[x.dtype])
    if dtype not in (None, x.dtype):
        raise NotImplementedError(f"{x.dtype} as {dtype} is not served")
    dims = sorted(normalized_dims(dim, x.ndim))
    pairs = torch.view_as_real(x)
    # A tensor without dimensions is its own sum; an empty list of dimensions would stand for all, the pairs' too.
    parts = reduce(pairs, dims, keepdim) if x.ndim else reduce(pairs.unsqueeze(0), [0])
    return torch.view_as_complex(parts)


def nansum(
    self: torch.Tensor,
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """As :func:`sum_dim`, with NaN as zero."""
    require_served(self)
    return fold(self, normalized_dims(dim, self.ndim), keepdim, NANSUM, result=sum_dtype(self, dtype))


def mean_default(self: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The mean of all elements."""
    return mean_dim(self, None, dtype=dtype)


def mean_dim(
    self: torch.Tensor,
    dim: Sequence[int] | None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The mean over ``dim`` (None or empty: all); NaN over nothing.

    Raises:
        TypeError: neither the input nor ``dtype`` is of a floating type.
    """
    if self.is_complex():
        return _of_parts(mean_dim, self, dim, keepdim, dtype)
    result = dtype or self.dtype
    require_served(self)
    if result not in FLOATS:
        raise TypeError(f"a mean in {result} is not defined")
    dims = normalized_dims(dim, self.ndim)
    count = math.prod(self.shape[d] for d in dims if self.ndim)
    return fold(self, dims, keepdim, MEAN, result=result, parameter=count)


def prod_default(self: torch.Tensor, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The product of all elements."""
    require_served(self)
    return fold(self, normalized_dims(None, self.ndim), False, PRODUCT, result=sum_dtype(self, dtype))


def prod_dim(self: torch.Tensor, dim: int, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> torch.Tensor:
    """The product along ``dim``."""
    require_served(self)
    return fold(self, normalized_dims(dim, self.ndim), keepdim, PRODUCT, result=sum_dtype(self, dtype))


def trace(self: torch.Tensor) -> torch.Tensor:
    """The sum of a matrix's diagonal, in the type of :func:`sum_default`.

    Raises:
        ValueError: no matrix.
    """
    require_served(self)
    if self.ndim != 2:
        raise ValueError(f"a trace is of a matrix, not of {self.ndim} dimensions")
    return fold(self.diagonal(), {0}, False, SUM, result=sum_dtype(self, None))


def count_nonzero(self: torch.Tensor, dim: int | None = None) -> torch.Tensor:
    """How many elements along ``dim`` (None: of all) are not zero."""
    return count_nonzero_dims(self, [] if dim is None else [dim])


def count_nonzero_dims(self: torch.Tensor, dim: Sequence[int]) -> torch.Tensor:
    """How many elements over ``dim`` (empty: of all) are not zero."""
    require_served(self)
    return fold(self, normalized_dims(dim, self.ndim), False, COUNT, result=torch.int64, read=self.dtype)


def any_default(self: torch.Tensor) -> torch.Tensor:
    """Whether any element is not zero."""
    return _truth(self, normalized_dims(None, self.ndim), False, ANY)


def any_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    """Whether any element along ``dim`` is not zero."""
    return _truth(self, normalized_dims(dim, self.ndim), keepdim, ANY)


def any_dims(self: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """Whether any element over ``dim`` (None: all) is not zero; over no dimensions, each element for itself."""
    return _truth(self, _some_dims(dim, self.ndim), keepdim, ANY)


def all_default(self: torch.Tensor) -> torch.Tensor:
    """Whether no element is zero."""
    return _truth(self, normalized_dims(None, self.ndim), False, ALL)


def all_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> torch.Tensor:
    """Whether no element along ``dim`` is zero."""
    return _truth(self, normalized_dims(dim, self.ndim), keepdim, ALL)


def all_dims(self: torch.Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> torch.Tensor:
    """Whether no element over ``dim`` (None: all) is zero; over no dimensions, each element for itself."""
    return _truth(self, _some_dims(dim, self.ndim), keepdim, ALL)


def _truth(x: torch.Tensor, dims: set[int], keepdim: bool, steps: Fold) -> torch.Tensor:
    """A bool tensor; uint8 for uint8, as in eager."""
    require_served(x)
    result = torch.uint8 if x.dtype == torch.uint8 else torch.bool
    return fold(x, dims, keepdim, steps, result=result, read=x.dtype, accumulate=torch.int32)


def _some_dims(dim: Sequence[int] | None, ndim: int) -> set[int]:
    """As :func:`normalized_dims`, but an empty list means no dimensions."""
    return set() if dim is not None and not dim else normalized_dims(dim, ndim)


def sum_dtype(x: torch.Tensor, asked: torch.dtype | None) -> torch.dtype:
    """The dtype of a sum or product: int64 for integers and bools unless asked for another.

    Raises:
        NotImplementedError: no kernel computes in it.
    """
    result = asked or (x.dtype if x.dtype.is_floating_point else torch.int64)
    if result not in ELEMENT_TYPE:
        raise NotImplementedError(f"a result of {result} is not served")
    return result


def require_few_dims(x: torch.Tensor) -> None:
    """Refuse what eager refuses.

    Raises:
        ValueError: more than 64 dimensions.
    """
    if x.ndim > 64:
        raise ValueError(f"a tensor of {x.ndim} dimensions is not reduced, 64 are the most")
