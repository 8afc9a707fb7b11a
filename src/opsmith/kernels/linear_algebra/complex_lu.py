"""The factorization ``A = P L U`` of batches of small complex matrices, and substitution with it.

As for real matrices (lu_factorization.py and triangular_solves.py), with a tile for each part: ``n^2 itemsize`` bytes
read and written, n steps over n^2 elements. Rows are chosen by ``|re| + |im|``, as LAPACK does. Tensors come to the
kernels as real ones with a last dimension of two parts, the imaginary one behind the real one.

Suffixes: ``_I`` rows, ``_J`` columns of a matrix; ``_N`` rows, ``_R`` columns of a solution.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import offset_of
from ..common.launch import launch, loop_bound, pdl_prologue
from ..pointwise.complex_arithmetic import product_of, quotient_by_ratio
from .matrix_batches import Batch, block_of, warps_for
from .triangular_solves import MOST_ROWS

# ---------------------------------------------------------------- the kernels


@triton.jit
def row_of(x_IJ: tl.tensor, i: tl.tensor, k: tl.tensor) -> tl.tensor:
    """Row k."""
    return tl.sum(tl.where((i == k)[:, None], x_IJ, 0.0), axis=0)


@triton.jit
def column_of(x_IJ: tl.tensor, j: tl.tensor, k: tl.tensor) -> tl.tensor:
    """Column k."""
    return tl.sum(tl.where((j == k)[None, :], x_IJ, 0.0), axis=1)


@triton.jit
def entry_of(x_I: tl.tensor, i: tl.tensor, k: tl.tensor) -> tl.tensor:
    """Entry k, of shape ``[1]``: the interpreter has no "and" of scalars."""
    return tl.sum(tl.where(i == k, x_I, 0.0), axis=0, keep_dims=True)


@triton.jit
def exchanged(x_IJ: tl.tensor, i: tl.tensor, k: tl.tensor, chosen: tl.tensor) -> tl.tensor:
    """The matrix with these two rows exchanged."""
    row_J, other_J = row_of(x_IJ, i, k), row_of(x_IJ, i, chosen)
    x_IJ = tl.where((i == chosen)[:, None], row_J[None, :], x_IJ)
    return tl.where((i == k)[:, None], other_J[None, :], x_IJ)


@triton.jit
def complex_lu_kernel(
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
    """L below the diagonal and U from it on, which row was exchanged with the k-th one, and the first pivot of 0."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_I).to(tl.int64), tl.arange(0, BLOCK_J).to(tl.int64)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    a_IJ = a_ptr + offset_of(batch, batch_shape, a_batch) + i[:, None] * a_strides[0] + j[None, :] * a_strides[1]
    x_IJ, y_IJ = tl.load(a_IJ, mask=inside, other=0), tl.load(a_IJ + 1, mask=inside, other=0)
    info = tl.zeros([1], tl.int32)
    for k in range(steps):
        if PIVOT:
            size_I = tl.abs(column_of(x_IJ, j, k)) + tl.abs(column_of(y_IJ, j, k))
            size_I = tl.where((i >= k) & (i < rows), size_I, -1.0)
            chosen = tl.min(tl.where(size_I == tl.max(size_I, axis=0), i, BLOCK_I), axis=0)
            chosen = tl.where(chosen < rows, chosen, k)  # Nothing is equal to NaN.
            x_IJ, y_IJ = exchanged(x_IJ, i, k, chosen), exchanged(y_IJ, i, k, chosen)
            tl.store(pivots_ptr + batch * steps + k, (chosen + 1).to(tl.int32))
        else:
            tl.store(pivots_ptr + batch * steps + k, k + 1)
        u_I, v_I = column_of(x_IJ, j, k), column_of(y_IJ, j, k)
        p, q = entry_of(u_I, i, k), entry_of(v_I, i, k)
        is_zero = (p == 0.0) & (q == 0.0)
        info = tl.where((info == 0) & is_zero, k + 1, info)
        u_I, v_I = quotient_by_ratio(u_I, v_I, tl.where(is_zero, 1.0, p), q)
        real_IJ, imaginary_IJ = product_of(
            u_I[:, None], v_I[:, None], row_of(x_IJ, i, k)[None, :], row_of(y_IJ, i, k)[None, :]
        )
        below, right, here = (i > k)[:, None], (j > k)[None, :], (j == k)[None, :]
        x_IJ = tl.where(below & right, x_IJ - real_IJ, tl.where(below & here, u_I[:, None], x_IJ))
        y_IJ = tl.where(below & right, y_IJ - imaginary_IJ, tl.where(below & here, v_I[:, None], y_IJ))
    lu_IJ = lu_ptr + offset_of(batch, batch_shape, lu_batch) + i[:, None] * lu_strides[0] + j[None, :] * lu_strides[1]
    tl.store(lu_IJ, x_IJ, mask=inside)
    tl.store(lu_IJ + 1, y_IJ, mask=inside)
    tl.store(info_ptr + batch + tl.arange(0, 1), info)


@triton.jit
def substituted(
    x_NR: tl.tensor,
    y_NR: tl.tensor,
    t_ptr: tl.tensor,
    t_strides: tl.tuple,
    n: tl.tensor,
    i: tl.tensor,
    UPPER: tl.constexpr,
    UNIT: tl.constexpr,
    SIGN: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor]:
    """Both parts of the solution of ``T X = B``, given those of B; SIGN is that of the imaginary part of T."""
    for step in range(n):
        k = (n - 1 - step) if UPPER else step
        t_N = t_ptr + i * t_strides[0] + tl.cast(k, tl.int64) * t_strides[1]
        u_N, v_N = tl.load(t_N, mask=i < n, other=0), SIGN * tl.load(t_N + 1, mask=i < n, other=0)
        p_R, q_R = row_of(x_NR, i, k), row_of(y_NR, i, k)
        if not UNIT:
            p_R, q_R = quotient_by_ratio(p_R, q_R, entry_of(u_N, i, k), entry_of(v_N, i, k))
        real_NR, imaginary_NR = product_of(u_N[:, None], v_N[:, None], p_R[None, :], q_R[None, :])
        ahead, here = ((i < k) if UPPER else (i > k))[:, None], (i == k)[:, None]
        x_NR = tl.where(here, p_R[None, :], tl.where(ahead, x_NR - real_NR, x_NR))
        y_NR = tl.where(here, q_R[None, :], tl.where(ahead, y_NR - imaginary_NR, y_NR))
    return x_NR, y_NR


@triton.jit
def complex_substitution_kernel(
    out_ptr: tl.tensor,
    b_ptr: tl.tensor,
    lu_ptr: tl.tensor,
    places_ptr: tl.tensor,
    batch_shape: tl.tuple,
    out_batch: tl.tuple,
    out_strides: tl.tuple,
    b_batch: tl.tuple,
    b_strides: tl.tuple,
    lu_batch: tl.tuple,
    lu_strides: tl.tuple,
    places_batch: tl.tuple,
    n: tl.tensor,
    columns: tl.tensor,
    IDENTITY: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    SIGN: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_R: tl.constexpr,
) -> None:
    """Solve with L, then with U, the rows of B exchanged; if TRANSPOSED with those of LU's transpose, those of X."""
    pdl_prologue()
    tiles = tl.cdiv(columns, BLOCK_R)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    r = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_R + tl.arange(0, BLOCK_R)
    i = tl.arange(0, BLOCK_N).to(tl.int64)
    inside = (i < n)[:, None] & (r < columns)[None, :]
    places = places_ptr + offset_of(batch, batch_shape, places_batch)
    place_N = tl.load(places + i, mask=i < n, other=0).to(tl.int64)
    from_N = i if TRANSPOSED else place_N
    to_N = place_N if TRANSPOSED else i
    if IDENTITY:
        x_NR = (from_N[:, None] == r[None, :]).to(out_ptr.dtype.element_ty)
        y_NR = tl.zeros_like(x_NR)
    else:
        b_NR = offset_of(batch, batch_shape, b_batch) + from_N[:, None] * b_strides[0] + r[None, :] * b_strides[1]
        x_NR = tl.load(b_ptr + b_NR, mask=inside, other=0)
        y_NR = tl.load(b_ptr + b_NR + 1, mask=inside, other=0)
    lu = lu_ptr + offset_of(batch, batch_shape, lu_batch)
    x_NR, y_NR = substituted(x_NR, y_NR, lu, lu_strides, n, i, False, not TRANSPOSED, SIGN)
    x_NR, y_NR = substituted(x_NR, y_NR, lu, lu_strides, n, i, True, TRANSPOSED, SIGN)
    out_NR = offset_of(batch, batch_shape, out_batch) + to_N[:, None] * out_strides[0] + r[None, :] * out_strides[1]
    tl.store(out_ptr + out_NR, x_NR, mask=inside)
    tl.store(out_ptr + out_NR + 1, y_NR, mask=inside)


# ---------------------------------------------------------------- the host side


def factor(lu: torch.Tensor, pivots: torch.Tensor, info: torch.Tensor, a: torch.Tensor, *, pivot: bool) -> None:
    """Write the factorization of ``a``, matrices of up to 128 rows and columns."""
    rows, columns = a.shape[-2:]
    lu, a = torch.view_as_real(lu), torch.view_as_real(a)
    batch = Batch.of(tuple(a.shape[:-3]), (lu, 3), (a, 3))
    if not batch.matrices:
        return
    block_i, block_j = block_of(rows), block_of(columns)
    launch(
        complex_lu_kernel,
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
        loop_bound(min(rows, columns)),
        PIVOT=pivot,
        BLOCK_I=block_i,
        BLOCK_J=block_j,
        num_warps=warps_for(2 * block_i * block_j),
    )


def substitute(
    out: torch.Tensor,
    b: torch.Tensor | None,
    lu: torch.Tensor,
    places: torch.Tensor,
    *,
    transposed: bool,
    conjugated: bool,
) -> None:
    """Write X of ``A X = B``, given A factored, or of its transpose, its conjugate, or both; B of None is the identity.

    Args:
        out: ``[.., n, columns]``, what is written.
        b: the right-hand sides, which broadcast to that.
        lu: ``[.., n, n]``.
        places: where the rows come from, or go to if transposed, ``[.., n]``.
        transposed: solve with the transpose of A.
        conjugated: solve with the conjugate of A.

    Raises:
        NotImplementedError: more than 1024 rows.
    """
    n, columns = out.shape[-2:]
    if n > MOST_ROWS:
        raise NotImplementedError(f"systems of more than {MOST_ROWS} equations are not served")
    if not out.numel():
        return
    out, lu = torch.view_as_real(out), torch.view_as_real(lu.mT if transposed else lu)
    sides = out if b is None else torch.view_as_real(b)
    batch = Batch.of(tuple(out.shape[:-3]), (out, 3), (sides, 3), (lu, 3), (places, 1))
    block_n = block_of(n)
    block_r = min(block_of(columns), max(4096 // block_n, 1), 32)
    launch(
        complex_substitution_kernel,
        (batch.matrices * triton.cdiv(columns, block_r),),
        out.device,
        out,
        None if b is None else sides,
        lu,
        places,
        batch.shape_D,
        *batch.layouts()[:-1],
        loop_bound(n),
        columns,
        IDENTITY=b is None,
        TRANSPOSED=transposed,
        SIGN=-1.0 if conjugated else 1.0,
        BLOCK_N=block_n,
        BLOCK_R=block_r,
        num_warps=warps_for(2 * block_n * block_r),
    )
