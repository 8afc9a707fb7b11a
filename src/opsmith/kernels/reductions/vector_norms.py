"""Vector norms over any dimensions: ``(sum |x|^p)^(1/p)``, the greatest or smallest ``|x|``, the count of non-zeros.

They are folds, see :mod:`reductions`, each with its own function of an element and of the sum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims, number
from ..common.launch import compute_type, launch, loop_bound, number_bits, pdl_prologue, require_served
from ..common.matrix import column_offsets, matrix_of, row_offsets, tile_columns, tile_rows, tiling
from ..pointwise.basic import maximum_of, minimum_of
from .extrema import greatest_or_nan, is_nan, smallest_or_nan
from .reductions import Fold, fold, is_nonzero, keep, plus, total

# ---------------------------------------------------------------- functions of values


@triton.jit
def magnitude(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """``|x|``."""
    return tl.abs(x)


@triton.jit
def square(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """``x^2``."""
    return x * x


@triton.jit
def root(x: tl.tensor, _parameter: tl.tensor) -> tl.tensor:
    """``x^(1/2)``, rounded to nearest."""
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@triton.jit
def raised(x: tl.tensor, exponent: tl.tensor) -> tl.tensor:
    """``x^exponent`` for ``x >= 0``, by way of float64: in float32 the logarithm's error grows with the exponent."""
    return tl.exp(exponent.to(tl.float64) * tl.log(x.to(tl.float64))).to(x.dtype)


@triton.jit
def magnitude_raised(x: tl.tensor, exponent: tl.tensor) -> tl.tensor:
    """``|x|^exponent``."""
    return raised(tl.abs(x), exponent)


@triton.jit
def raised_back(x: tl.tensor, exponent: tl.tensor) -> tl.tensor:
    """``x^(1 / exponent)`` for ``x >= 0``."""
    return raised(x, 1.0 / exponent.to(tl.float64))


def norm_fold(p: float) -> Fold:
    """The fold whose result is the p-norm; p is its parameter."""
    if p == math.inf:
        return Fold(magnitude, maximum_of, greatest_or_nan, keep, 0)
    if p == -math.inf:
        return Fold(magnitude, minimum_of, smallest_or_nan, keep, math.inf)
    if p == 0:
        return Fold(is_nonzero, plus, total, keep, 0)
    if p == 1:
        return Fold(magnitude, plus, total, keep, 0)
    if p == 2:
        return Fold(square, plus, total, root, 0)
    return Fold(magnitude_raised, plus, total, raised_back, 0)


# ---------------------------------------------------------------- the ops


def linalg_vector_norm(
    self: torch.Tensor,
    ord: float = 2,  # noqa: A002
    dim: Sequence[int] | None = None,
    keepdim: bool = False,
    *,
    dtype: torch.dtype | None = None,
) -> torch.Tensor:
    """The norm of order ``ord`` over ``dim`` (None: all), computed in ``dtype`` if given.

    Raises:
        TypeError: a type that has no norm, or a ``dtype`` that cannot hold it.
        IndexError: an extreme, or a negative power, of nothing.
    """
    require_served(self, dtypes=FLOATS)
    result = dtype or self.dtype
    if result not in FLOATS:
        raise NotImplementedError(f"a norm in {result} is not served")
    if torch.promote_types(self.dtype, result) != result:
        raise TypeError(f"a norm in {result} would narrow {self.dtype}")
    dims = normalized_dims(dim, self.ndim)
    needs_elements = ord < 0 or ord == math.inf
    if needs_elements and any(self.shape[d] == 0 for d in dims if self.ndim):
        raise IndexError(f"a norm of order {ord} over nothing is not defined")
    return fold(self, dims, keepdim, norm_fold(float(ord)), result=result, parameter=float(ord))


def norm(self: torch.Tensor, p: float = 2) -> torch.Tensor:
    """The p-norm of all elements."""
    return linalg_vector_norm(self, p)


def norm_dim(self: torch.Tensor, p: float | None, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """The p-norm, 2 if p is None, over ``dim`` (empty: all)."""
    return linalg_vector_norm(self, 2 if p is None else p, dim, keepdim)


def norm_dim_dtype(
    self: torch.Tensor, p: float | None, dim: Sequence[int], keepdim: bool, *, dtype: torch.dtype
) -> torch.Tensor:
    """As :func:`norm_dim`, computed in ``dtype``."""
    return linalg_vector_norm(self, 2 if p is None else p, dim, keepdim, dtype=dtype)


def norm_dtype(self: torch.Tensor, p: float | None, *, dtype: torch.dtype) -> torch.Tensor:
    """As :func:`norm`, 2 if p is None, computed in ``dtype``."""
    return linalg_vector_norm(self, 2 if p is None else p, dtype=dtype)


# ---------------------------------------------------------------- slices of limited norm


@triton.jit
def renorm_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    p_bits: tl.tensor,
    most_bits: tl.tensor,
    steps: tl.tensor,
    lift: tl.constexpr,
    join: tl.constexpr,
    across: tl.constexpr,
    finish: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Scale the rows whose norm exceeds a limit down to it; a row is read for its norm, and again."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    p, most = number(p_bits, COMPUTE), number(most_bits, COMPUTE)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    norm_MT = tl.zeros([BLOCK_M, BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        norm_MT = join(norm_MT, tl.where(inside, lift(x_MT, p), 0).to(COMPUTE))
    norm_M = finish(across(norm_MT), p)
    # Eager adds the same small number.
    factor_M = tl.where((norm_M > most) | is_nan(norm_M), most / (norm_M + 1e-7), 1)
    for step in range(steps):
        j, k = tile_columns(step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :], mask=inside, other=0).to(COMPUTE)
        at_MT = row_offsets(m, shape, out_strides)[:, None] + column_offsets(j, k, shape, out_strides)[None, :]
        tl.store(out_ptr + at_MT, converted(x_MT * factor_M[:, None], out_ptr.dtype.element_ty), mask=inside)


def renorm(self: torch.Tensor, p: float, dim: int, maxnorm: float) -> torch.Tensor:
    """Every slice along ``dim``, scaled down where its p-norm exceeds ``maxnorm``.

    Raises:
        ValueError: p is not positive, ``maxnorm`` is negative, or the tensor has less than two dimensions.
    """
    require_served(self, dtypes=FLOATS)
    if p <= 0 or maxnorm < 0 or self.ndim < 2:
        raise ValueError("renorm needs two dimensions, a positive p and a limit that is not negative")
    kept = normalized_dims(dim, self.ndim)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if not self.numel():
        return out
    matrix = matrix_of(self.shape, [self.stride(), out.stride()], set(range(self.ndim)) - kept)
    tiles = tiling(matrix, self.device, split=False)
    steps = norm_fold(float(p))
    compute = compute_type(self.dtype)
    launch(
        renorm_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m),),
        self.device,
        out,
        self,
        matrix.shape,
        matrix.strides(0),
        matrix.strides(1),
        matrix.sizes,
        number_bits(p, compute),
        number_bits(maxnorm, compute),
        loop_bound(tiles.steps),
        lift=steps.lift,
        join=steps.join,
        across=steps.across,
        finish=steps.finish,
        COMPUTE=compute,
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return out
