"""The factorization ``A = P L U`` of batches of small matrices, and what it gives: solutions, inverses, determinants.

Column by column: the row whose entry is the greatest is exchanged with the k-th one, the entries below are divided by
it, and what they times its row comes to is subtracted from the rest. A program holds a matrix in registers:
``n^2 itemsize`` bytes read and written, n steps over n^2 elements.

Eager factors the transpose of a row-major matrix for its determinant, and the gradient counts on it; so do these.
Complex matrices are in complex_lu.py.

Suffixes: ``_I`` rows, ``_J`` columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_into
from ..common.indexing import offset_of
from ..common.launch import launch, loop_bound, pdl_prologue, require_served
from ..copies.rearrangements import fill
from ..copies.sequences import arange
from ..copies.triangles import tril, triu
from ..pointwise.comparisons import eq_of
from ..reductions.reductions import times
from . import complex_lu
from .matrix_batches import Batch, block_of, check_info, empty_columns, require_matrices, require_small, warps_for
from .triangular_solves import FROM, TO, substitute

_SINGULAR = "a matrix is singular"
#: Since this version eager solves with the matrix itself, row-major or not, and the gradient takes LU for that.
_SOLVES_WITH_THE_MATRIX = "2.13"
#: Pivots that a program holds.
_MOST_PIVOTS = 8192

# ---------------------------------------------------------------- the kernels


@triton.jit
def lu_kernel(
    lu_ptr: tl.tensor,
    pivots_ptr: tl.tensor,
    info_ptr: tl.tensor,
    a_ptr: tl.tensor,
    batch_shape: tl.tuple,
    lu_batch: tl.tuple,
    lu_strides: tl.tuple,
    a_batch: tl.tuple,
    a_strides: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    steps: tl.tensor,
    PIVOT: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:
    """L below the diagonal and U from it on, the row exchanged at each step, and the first pivot that is 0, from 1."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_I).to(tl.int64), tl.arange(0, BLOCK_J).to(tl.int64)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    a_IJ = offset_of(batch, batch_shape, a_batch) + i[:, None] * a_strides[0] + j[None, :] * a_strides[1]
    x_IJ = tl.load(a_ptr + a_IJ, mask=inside, other=0)
    info = tl.zeros([1], tl.int32)
    for k in range(steps):
        column_I = tl.sum(tl.where((j == k)[None, :], x_IJ, 0.0), axis=1)
        row_J = tl.sum(tl.where((i == k)[:, None], x_IJ, 0.0), axis=0)
        if PIVOT:
            size_I = tl.where((i >= k) & (i < rows), tl.abs(column_I), -1.0)
            chosen = tl.min(tl.where(size_I == tl.max(size_I, axis=0), i, BLOCK_I), axis=0)
            chosen = tl.where(chosen < rows, chosen, k)  # Nothing is equal to NaN.
            other_J = tl.sum(tl.where((i == chosen)[:, None], x_IJ, 0.0), axis=0)
            x_IJ = tl.where((i == chosen)[:, None], row_J[None, :], x_IJ)
            x_IJ = tl.where((i == k)[:, None], other_J[None, :], x_IJ)
            replaced = tl.sum(tl.where(i == k, column_I, 0.0), axis=0)
            pivot = tl.sum(tl.where(i == chosen, column_I, 0.0), axis=0)
            column_I = tl.where(i == chosen, replaced, column_I)
            row_J = other_J
            tl.store(pivots_ptr + batch * steps + k, (chosen + 1).to(tl.int32))
        else:
            pivot = tl.sum(tl.where(i == k, column_I, 0.0), axis=0)
            tl.store(pivots_ptr + batch * steps + k, k + 1)
        info = tl.where(info == 0, tl.where(pivot == 0, k + 1, 0), info)
        factor_I = column_I / tl.where(pivot == 0, 1.0, pivot)
        below = (i > k)[:, None]
        x_IJ = tl.where(below & (j > k)[None, :], x_IJ - factor_I[:, None] * row_J[None, :], x_IJ)
        x_IJ = tl.where(below & (j == k)[None, :], factor_I[:, None], x_IJ)
    lu_IJ = offset_of(batch, batch_shape, lu_batch) + i[:, None] * lu_strides[0] + j[None, :] * lu_strides[1]
    tl.store(lu_ptr + lu_IJ, x_IJ, mask=inside)
    tl.store(info_ptr + batch + tl.arange(0, 1), info)


@triton.jit
def permutation_kernel(
    out_ptr: tl.tensor,
    pivots_ptr: tl.tensor,
    batch_shape: tl.tuple,
    pivots_batch: tl.tuple,
    pivots_strides: tl.tuple,
    rows: tl.tensor,
    steps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Which row comes to each place when rows are exchanged one pair after another."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK)
    pivots = pivots_ptr + offset_of(batch, batch_shape, pivots_batch)
    place_I = i
    for k in range(steps):
        chosen = tl.load(pivots + tl.cast(k, tl.int64) * pivots_strides[0]).to(tl.int32) - 1
        a = tl.sum(tl.where(i == k, place_I, 0), axis=0)
        b = tl.sum(tl.where(i == chosen, place_I, 0), axis=0)
        place_I = tl.where(i == k, b, tl.where(i == chosen, a, place_I))
    tl.store(out_ptr + batch * rows + i, place_I, mask=i < rows)


@triton.jit
def determinant_kernel(
    sign_ptr: tl.tensor,
    size_ptr: tl.tensor,
    lu_ptr: tl.tensor,
    pivots_ptr: tl.tensor,
    batch_shape: tl.tuple,
    lu_batch: tl.tuple,
    lu_strides: tl.tuple,
    n: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """The determinant, or its sign and, if ``size_ptr`` is there, the logarithm of its magnitude."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i = tl.arange(0, BLOCK).to(tl.int64)
    lu_I = lu_ptr + offset_of(batch, batch_shape, lu_batch) + i * (lu_strides[0] + lu_strides[1])
    diagonal_I = tl.load(lu_I, mask=i < n, other=1)
    chosen_I = tl.load(pivots_ptr + batch * n + i, mask=i < n, other=0)
    exchanges = tl.sum(((i < n) & (chosen_I != i + 1)).to(tl.int32), axis=0)
    sign = (1 - 2 * (exchanges % 2)).to(diagonal_I.dtype)
    if size_ptr is None:
        tl.store(sign_ptr + batch, sign * tl.reduce(diagonal_I, 0, times))
    else:
        signs_I = (diagonal_I > 0).to(diagonal_I.dtype) - (diagonal_I < 0).to(diagonal_I.dtype)
        tl.store(sign_ptr + batch, sign * tl.reduce(signs_I, 0, times))
        tl.store(size_ptr + batch, tl.sum(tl.log(tl.abs(diagonal_I)), axis=0))


# ---------------------------------------------------------------- the factorization


def _factor(a: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """LU, column-major; the pivots; the first of them that is 0."""
    rows, columns = a.shape[-2:]
    require_small(rows, columns)
    lead, steps = tuple(a.shape[:-2]), min(rows, columns)
    lu = empty_columns(a.shape, a)
    pivots = torch.empty((*lead, steps), dtype=torch.int32, device=a.device)
    info = torch.empty(lead, dtype=torch.int32, device=a.device)
    if a.is_complex():
        complex_lu.factor(lu, pivots, info, a, pivot=pivot)
        return lu, pivots, info
    batch = Batch.of(lead, (lu, 2), (a, 2))
    if batch.matrices:
        block_i, block_j = block_of(rows), block_of(columns)
        launch(
            lu_kernel,
            (batch.matrices,),
            a.device,
            lu,
            pivots,
            info,
            a,
            batch.shape_D,
            *batch.layouts(),
            rows,
            columns,
            loop_bound(steps),
            PIVOT=pivot,
            BLOCK_I=block_i,
            BLOCK_J=block_j,
            num_warps=warps_for(block_i * block_j),
        )
    return lu, pivots, info


def _permutation(pivots: torch.Tensor, rows: int) -> torch.Tensor:
    """The row of the matrix that is row i of ``L U``, ``[.., rows]``."""
    require_served(pivots, dtypes=(torch.int32,))
    if rows > _MOST_PIVOTS:
        raise NotImplementedError(f"permutations of more than {_MOST_PIVOTS} rows are not served")
    lead = tuple(pivots.shape[:-1])
    places = torch.empty((*lead, rows), dtype=torch.int32, device=pivots.device)
    batch = Batch.of(lead, (pivots, 1))
    if places.numel():
        launch(
            permutation_kernel,
            (batch.matrices,),
            pivots.device,
            places,
            pivots,
            batch.shape_D,
            *batch.layouts(),
            rows,
            loop_bound(pivots.shape[-1]),
            BLOCK=block_of(rows),
            num_warps=1 if rows <= 128 else 4,
        )
    return places


def lu_factor_ex(
    A: torch.Tensor, *, pivot: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """L below the diagonal and U from it on, the row exchanged at each step, and the first pivot that is 0, from 1.

    Raises:
        ValueError: no matrices.
        NotImplementedError: matrices of more than 128 rows or columns.
        torch.linalg.LinAlgError: ``check_errors``, and a pivot that is 0.
    """
    require_matrices(A, complex_too=True)
    results = _factor(A, pivot=pivot)
    if check_errors:
        check_info(results[2], _SINGULAR)
    return results


def lu_unpack(
    LU_data: torch.Tensor, LU_pivots: torch.Tensor, unpack_data: bool = True, unpack_pivots: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """P, L and U of a factorization; what is not asked for is empty.

    Raises:
        ValueError: no matrices.
        NotImplementedError: a type that is not served.
    """
    require_matrices(LU_data)
    P, L, U = (torch.empty(0, dtype=LU_data.dtype, device=LU_data.device) for _ in range(3))
    rows, columns = LU_data.shape[-2:]
    steps = min(rows, columns)
    if unpack_pivots:
        places = _permutation(LU_pivots, rows)
        P = torch.empty((*LU_data.shape[:-2], rows, rows), dtype=LU_data.dtype, device=LU_data.device)
        numbers = arange(rows, dtype=torch.int32, device=LU_data.device)
        map_into(P, eq_of, [places.unsqueeze(-2), numbers.unsqueeze(-1)], [torch.int32] * 2)
    if unpack_data:
        L, U = tril(LU_data.narrow(-1, 0, steps), -1), triu(LU_data.narrow(-2, 0, steps))
        fill(L.diagonal(dim1=-2, dim2=-1), 1)
    return P, L, U


def linalg_lu(A: torch.Tensor, *, pivot: bool = True) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """P, L and U with ``A = P L U``; without ``pivot`` P is empty.

    Raises:
        ValueError: no matrices.
        NotImplementedError: matrices of more than 128 rows or columns.
    """
    require_matrices(A)
    lu, pivots, _ = _factor(A, pivot=pivot)
    return lu_unpack(lu, pivots, unpack_pivots=pivot)


# ---------------------------------------------------------------- what it gives


def _substitute(
    out: torch.Tensor,
    b: torch.Tensor | None,
    lu: torch.Tensor,
    pivots: torch.Tensor,
    *,
    transposed: bool,
    conjugated: bool = False,
) -> None:
    """Write X of ``A X = B``, or of the same with A's transpose, conjugate or adjoint; B of None is the identity."""
    places = _permutation(pivots, lu.shape[-1])
    if lu.is_complex():
        complex_lu.substitute(out, b, lu, places, transposed=transposed, conjugated=conjugated)
    elif transposed:
        substitute(out, b, lu.mT, lu.mT, places, SECOND_UNIT=True, ROWS=TO.value)
    else:
        substitute(out, b, lu, lu, places, UNIT=True, ROWS=FROM.value)


def lu_solve(
    LU: torch.Tensor, pivots: torch.Tensor, B: torch.Tensor, *, left: bool = True, adjoint: bool = False
) -> torch.Tensor:
    """X of ``A X = B``, or unless ``left`` of ``X A = B``, given A factored; ``adjoint``: of its conjugate transpose.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: two types.
        NotImplementedError: more than 1024 equations.
    """
    require_matrices(LU, B, complex_too=True)
    n = LU.shape[-1]
    if LU.shape[-2] != n or B.shape[-2 if left else -1] != n:
        raise ValueError(f"a matrix of shape {list(LU.shape)} and sides of {list(B.shape)} do not fit")
    shape = (*torch.broadcast_shapes(LU.shape[:-2], B.shape[:-2]), *B.shape[-2:])
    if left:
        out = empty_columns(shape, B)
        _substitute(out, B, LU, pivots, transposed=adjoint, conjugated=adjoint)
    else:
        out = torch.empty(shape, dtype=B.dtype, device=B.device)
        _substitute(out.mT, B.mT, LU, pivots, transposed=not adjoint, conjugated=adjoint)
    return out


def solve_ex(
    A: torch.Tensor, B: torch.Tensor, *, left: bool = True, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """X of ``A X = B``, or unless ``left`` of ``X A = B``; LU, pivots and info of A.

    B holds vectors if it has one dimension, or the shape of A without the last one.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: two types.
        NotImplementedError: matrices of more than 128 rows.
        torch.linalg.LinAlgError: ``check_errors``, and a singular matrix.
    """
    require_matrices(A, square=True, complex_too=True)
    is_vector = B.ndim == 1 or (B.ndim == A.ndim - 1 and B.shape == A.shape[:-1])
    if is_vector and not left:
        raise ValueError("vectors are solved for on the right of a matrix only")
    sides = B.unsqueeze(-1) if is_vector else B
    require_matrices(A, sides, complex_too=True)
    if sides.shape[-2 if left else -1] != A.shape[-1]:
        raise ValueError(f"matrices of shape {list(A.shape)} and sides of {list(B.shape)} do not fit")
    # Earlier releases factor the transpose of some of these, on a GPU not of all.
    if A.is_contiguous() and not A.is_complex() and torch.__version__ < _SOLVES_WITH_THE_MATRIX:
        raise NotImplementedError("row-major matrices are solved with from torch 2.13 on")
    lu, pivots, info = _factor(A)
    if check_errors:
        check_info(info, _SINGULAR)
    if not is_vector:
        return lu_solve(lu, pivots, sides, left=left), lu, pivots, info
    # Eager takes the last two dimensions for a matrix here, too.
    X = empty_columns(B.shape, B) if B.ndim > 1 else torch.empty_like(B)
    _substitute(X.unsqueeze(-1), sides, lu, pivots, transposed=False)
    return X, lu, pivots, info


def inv_ex(A: torch.Tensor, *, check_errors: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The inverse, and of a singular matrix its first pivot that is 0, from 1.

    Raises:
        ValueError: no square matrices.
        NotImplementedError: matrices of more than 128 rows.
        torch.linalg.LinAlgError: ``check_errors``, and a singular matrix.
    """
    require_matrices(A, square=True, complex_too=True)
    lu, pivots, info = _factor(A)
    if check_errors:
        check_info(info, _SINGULAR)
    out = empty_columns(A.shape, A)
    _substitute(out, None, lu, pivots, transposed=False)
    return out, info


def _determinant(
    A: torch.Tensor, *, logarithm: bool
) -> tuple[torch.Tensor, torch.Tensor | None, torch.Tensor, torch.Tensor]:
    require_matrices(A, square=True)
    lu, pivots, _ = _factor(A.mT if A.is_contiguous() else A)
    lead = tuple(A.shape[:-2])
    sign = torch.empty(lead, dtype=A.dtype, device=A.device)
    size = torch.empty_like(sign) if logarithm else None
    batch = Batch.of(lead, (lu, 2))
    if batch.matrices:
        n = A.shape[-1]
        arguments = (sign, size, lu, pivots, batch.shape_D, *batch.layouts(), n)
        launch(determinant_kernel, (batch.matrices,), A.device, *arguments, BLOCK=block_of(n), num_warps=1)
    return sign, size, lu, pivots


def det(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The determinant; LU and pivots of A or, if row-major, of its transpose.

    Raises:
        ValueError: no square matrices.
        NotImplementedError: matrices of more than 128 rows.
    """
    result, _, lu, pivots = _determinant(A, logarithm=False)
    return result, lu, pivots


def slogdet(A: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """The determinant's sign and the logarithm of its magnitude; LU and pivots as in :func:`det`.

    Raises:
        ValueError: no square matrices.
        NotImplementedError: matrices of more than 128 rows.
    """
    sign, size, lu, pivots = _determinant(A, logarithm=True)
    assert size is not None
    return sign, size, lu, pivots
