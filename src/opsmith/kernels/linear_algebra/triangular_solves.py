"""Systems of equations with triangular matrices, one after the other: forward and back substitution.

``X[k] = (B[k] - sum over m before k of T[k, m] X[m]) / T[k, k]``: once a row of X is known, its product with a column
of T is subtracted from the rows to come. A program holds some columns of X in registers; the columns of T come
from the caches after the first program has read them. With ``B`` absent, X is an inverse.

Suffixes: ``_N`` rows of X, ``_R`` columns.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..common.indexing import offset_of
from ..common.launch import launch, loop_bound, pdl_prologue
from ..copies.rearrangements import copied
from .matrix_batches import Batch, block_of, empty_columns, require_matrices, warps_for

#: Rows of X that a program holds.
MOST_ROWS = 1024
#: What happens to the rows: nothing, row i comes from where an index says, or it goes there.
IN_ORDER, FROM, TO = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)

# ---------------------------------------------------------------- in a kernel


@triton.jit
def substituted(
    x_NR: tl.tensor,
    t_ptr: tl.tensor,
    t_strides: tl.tuple,
    n: tl.tensor,
    i: tl.tensor,
    UPPER: tl.constexpr,
    UNIT: tl.constexpr,
) -> tl.tensor:
    """The solution of ``T X = B``, given B."""
    for step in range(n):
        k = (n - 1 - step) if UPPER else step
        at_N = t_ptr + i * t_strides[0] + tl.cast(k, tl.int64) * t_strides[1]
        column_N = tl.load(at_N, mask=i < n, other=0)
        row_R = tl.sum(tl.where((i == k)[:, None], x_NR, 0.0), axis=0)
        if not UNIT:
            row_R = row_R / tl.sum(tl.where(i == k, column_N, 0.0), axis=0)
        ahead_N = (i < k) if UPPER else (i > k)
        x_NR = tl.where(ahead_N[:, None], x_NR - column_N[:, None] * row_R[None, :], x_NR)
        x_NR = tl.where((i == k)[:, None], row_R[None, :], x_NR)
    return x_NR


@triton.jit
def substitution_kernel(
    out_ptr: tl.tensor,
    b_ptr: tl.tensor,
    first_ptr: tl.tensor,
    second_ptr: tl.tensor,
    places_ptr: tl.tensor,
    batch_shape: tl.tuple,
    out_batch: tl.tuple,
    out_strides: tl.tuple,
    b_batch: tl.tuple,
    b_strides: tl.tuple,
    first_batch: tl.tuple,
    first_strides: tl.tuple,
    second_batch: tl.tuple,
    second_strides: tl.tuple,
    places_batch: tl.tuple,
    n: tl.tensor,
    columns: tl.tensor,
    IDENTITY: tl.constexpr,
    UPPER: tl.constexpr,
    UNIT: tl.constexpr,
    TWICE: tl.constexpr,
    SECOND_UNIT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
) -> None:
    """Solve with the first matrix, then, if TWICE, with the second one, which is triangular the other way."""
    pdl_prologue()
    tiles = tl.cdiv(columns, BLOCK_R)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    r = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    i = tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (i < n)[:, None] & (r < columns)[None, :]
    place_N = i
    if ROWS != IN_ORDER:
        places = places_ptr + offset_of(batch, batch_shape, places_batch)
        place_N = tl.load(places + i, mask=i < n, other=0).to(tl.int64)
    from_N = place_N if ROWS == FROM else i
    to_N = place_N if ROWS == TO else i
    if IDENTITY:
        x_NR = (from_N[:, None] == r[None, :]).to(out_ptr.dtype.element_ty)
    else:
        b_NR = offset_of(batch, batch_shape, b_batch) + from_N[:, None] * b_strides[0] + r[None, :] * b_strides[1]
        x_NR = tl.load(b_ptr + b_NR, mask=inside, other=0)
    first = first_ptr + offset_of(batch, batch_shape, first_batch)
    x_NR = substituted(x_NR, first, first_strides, n, i, UPPER, UNIT)
    if TWICE:
        second = second_ptr + offset_of(batch, batch_shape, second_batch)
        x_NR = substituted(x_NR, second, second_strides, n, i, not UPPER, SECOND_UNIT)
    out_NR = offset_of(batch, batch_shape, out_batch) + to_N[:, None] * out_strides[0] + r[None, :] * out_strides[1]
    tl.store(out_ptr + out_NR, x_NR, mask=inside)


# ---------------------------------------------------------------- the host side


def substitute(
    out: torch.Tensor,
    b: torch.Tensor | None,
    first: torch.Tensor,
    second: torch.Tensor | None = None,
    places: torch.Tensor | None = None,
    **how: Any,
) -> None:
    """Solve triangular systems of equations.

    Args:
        out: ``[.., n, columns]``, what is written.
        b: the right-hand sides, which broadcast to that; None for the identity.
        first: ``[.., n, n]``, of which one triangle is read.
        second: what the result is to be solved with after that, triangular the other way.
        places: an index of rows, ``[.., n]``, whose last dimension is contiguous.
        how: UPPER, UNIT and SECOND_UNIT of the matrices, and ROWS.

    Raises:
        NotImplementedError: more than 1024 rows.
    """
    n, columns = out.shape[-2:]
    if n > MOST_ROWS:
        raise NotImplementedError(f"systems of more than {MOST_ROWS} equations are not served")
    if not out.numel():
        return
    given = [(out if tensor is None else tensor, 2) for tensor in (b, first, second)]
    rows = out.select(-1, 0) if places is None else places
    batch = Batch.of(tuple(out.shape[:-2]), (out, 2), *given, (rows, 1))
    block_n = block_of(n)
    block_r = min(block_of(columns), max(8192 // block_n, 1), 32)
    launch(
        substitution_kernel,
        (batch.matrices * triton.cdiv(columns, block_r),),
        out.device,
        out,
        b,
        first,
        second,
        places,
        batch.shape_D,
        *batch.layouts()[:-1],
        loop_bound(n),
        columns,
        IDENTITY=b is None,
        TWICE=second is not None,
        BLOCK_N=block_n,
        BLOCK_R=block_r,
        num_warps=warps_for(block_n * block_r),
        **({"UPPER": False, "UNIT": False, "SECOND_UNIT": False, "ROWS": IN_ORDER.value} | how),
    )


def _batch_shape(*tensors: torch.Tensor) -> tuple[int, ...]:
    return tuple(torch.broadcast_shapes(*(tensor.shape[:-2] for tensor in tensors)))


def solve_triangular(
    self: torch.Tensor, B: torch.Tensor, *, upper: bool, left: bool = True, unitriangular: bool = False
) -> torch.Tensor:
    """X of ``self X = B``, or unless ``left`` of ``X self = B``, reading one triangle; batches broadcast.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: two types.
        NotImplementedError: more than 1024 equations.
    """
    require_matrices(self, B)
    n = self.shape[-1]
    if self.shape[-2] != n or B.shape[-2 if left else -1] != n:
        raise ValueError(f"a matrix of shape {list(self.shape)} and sides of {list(B.shape)} do not fit")
    out = empty_columns((*_batch_shape(self, B), *B.shape[-2:]), self)
    if left:
        substitute(out, B, self, UPPER=upper, UNIT=unitriangular)
    else:
        substitute(out.mT, B.mT, self.mT, UPPER=not upper, UNIT=unitriangular)
    return out


def triangular_solve(
    self: torch.Tensor, A: torch.Tensor, upper: bool = True, transpose: bool = False, unitriangular: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """X of ``A X = self``, or if ``transpose`` of ``A^T X = self``; and a copy of A, expanded to the batch.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: two types.
        NotImplementedError: more than 1024 equations.
    """
    require_matrices(self, A)
    n = A.shape[-1]
    if A.shape[-2] != n or self.shape[-2] != n:
        raise ValueError(f"a matrix of shape {list(A.shape)} and sides of {list(self.shape)} do not fit")
    lead = _batch_shape(self, A)
    out = empty_columns((*lead, *self.shape[-2:]), self)
    if transpose:
        substitute(out, self, A.mT, UPPER=not upper, UNIT=unitriangular)
    else:
        substitute(out, self, A, UPPER=upper, UNIT=unitriangular)
    return out, copied(A.mT.expand(*lead, n, n)).mT


def cholesky_solve(self: torch.Tensor, input2: torch.Tensor, upper: bool = False) -> torch.Tensor:
    """X of ``A X = self``, given the Cholesky factor of A; batches broadcast.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: two types.
        NotImplementedError: more than 1024 equations.
    """
    require_matrices(self, input2)
    n = input2.shape[-1]
    if input2.shape[-2] != n or self.shape[-2] != n:
        raise ValueError(f"a factor of shape {list(input2.shape)} and sides of {list(self.shape)} do not fit")
    out = empty_columns((*_batch_shape(self, input2), *self.shape[-2:]), self)
    factor = input2.mT if upper else input2
    substitute(out, self, factor, factor.mT)
    return out


def cholesky_inverse(self: torch.Tensor, upper: bool = False) -> torch.Tensor:
    """The inverse of A, given its Cholesky factor.

    Raises:
        ValueError: no square matrices.
        NotImplementedError: more than 1024 rows.
    """
    require_matrices(self, square=True)
    out = empty_columns(self.shape, self)
    factor = self.mT if upper else self
    substitute(out, None, factor, factor.mT)
    return out
