"""Householder reflections of batches of small matrices: QR, and products with its orthogonal factor.

A reflection ``H = I - tau v v^T`` maps a column to a multiple of a unit vector, as LAPACK chooses it: v begins with 1,
and the entry that is left has the sign that cancels nothing. A program holds a matrix, or some of its columns, in
registers; a step is a product ``v^T X``, summed over the rows, and an outer product that is subtracted.

Suffixes: ``_I`` rows, ``_J`` columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import offset_of
from ..common.launch import launch, loop_bound, pdl_prologue
from ..copies.rearrangements import fill
from ..copies.triangles import tril
from .matrix_batches import MOST_ELEMENTS, Batch, block_of, empty_columns, require_matrices, require_small, warps_for

#: Rows of the columns that a program holds.
_MOST_ROWS = 1024

# ---------------------------------------------------------------- the kernels


@triton.jit
def qr_kernel(
    out_ptr: tl.tensor,
    tau_ptr: tl.tensor,
    a_ptr: tl.tensor,
    batch_shape: tl.tuple,
    out_batch: tl.tuple,
    out_strides: tl.tuple,
    a_batch: tl.tuple,
    a_strides: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    steps: tl.tensor,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:
    """R from the diagonal on, below it each reflection's v without its 1, and the reflections' tau."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK_I).to(tl.int64), tl.arange(0, BLOCK_J).to(tl.int64)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    a_IJ = offset_of(batch, batch_shape, a_batch) + i[:, None] * a_strides[0] + j[None, :] * a_strides[1]
    x_IJ = tl.load(a_ptr + a_IJ, mask=inside, other=0)
    for k in range(steps):
        column_I = tl.sum(tl.where((j == k)[None, :], x_IJ, 0.0), axis=1)
        first = tl.sum(tl.where(i == k, column_I, 0.0), axis=0)
        rest = tl.sum(tl.where(i > k, column_I * column_I, 0.0), axis=0)
        norm = tl.sqrt(first * first + rest)
        left = tl.where(first > 0, -norm, norm)
        # A column that is a multiple of the unit vector stays as it is.
        is_done = rest == 0
        left = tl.where(is_done, first, left)
        tau = tl.where(is_done, 0.0, (left - first) / tl.where(is_done, 1.0, left))
        v_I = tl.where(i > k, column_I / tl.where(is_done, 1.0, first - left), (i == k).to(column_I.dtype))
        product_J = tau * tl.sum(v_I[:, None] * x_IJ, axis=0)
        x_IJ = tl.where((j > k)[None, :], x_IJ - v_I[:, None] * product_J[None, :], x_IJ)
        kept_I = tl.where(i > k, v_I, tl.where(i == k, left, column_I))
        x_IJ = tl.where((j == k)[None, :], kept_I[:, None], x_IJ)
        tl.store(tau_ptr + batch * steps + k, tau)
    out_IJ = offset_of(batch, batch_shape, out_batch) + i[:, None] * out_strides[0] + j[None, :] * out_strides[1]
    tl.store(out_ptr + out_IJ, x_IJ, mask=inside)


@triton.jit
def reflect_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    v_ptr: tl.tensor,
    tau_ptr: tl.tensor,
    batch_shape: tl.tuple,
    out_batch: tl.tuple,
    out_strides: tl.tuple,
    x_batch: tl.tuple,
    x_strides: tl.tuple,
    v_batch: tl.tuple,
    v_strides: tl.tuple,
    tau_batch: tl.tuple,
    tau_strides: tl.tuple,
    rows: tl.tensor,
    columns: tl.tensor,
    steps: tl.tensor,
    IDENTITY: tl.constexpr,
    FORWARD: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_J: tl.constexpr,
) -> None:
    """Apply the reflections to some columns of X, or of the identity: the last one first, or if FORWARD the first."""
    pdl_prologue()
    tiles = tl.cdiv(columns, BLOCK_J)
    batch = (tl.program_id(0) // tiles).to(tl.int64)
    i = tl.arange(0, BLOCK_I).to(tl.int64)
    j = (tl.program_id(0) % tiles).to(tl.int64) * BLOCK_J + tl.arange(0, BLOCK_J)
    inside = (i < rows)[:, None] & (j < columns)[None, :]
    if IDENTITY:
        x_IJ = (i[:, None] == j[None, :]).to(out_ptr.dtype.element_ty)
    else:
        x_IJ = offset_of(batch, batch_shape, x_batch) + i[:, None] * x_strides[0] + j[None, :] * x_strides[1]
        x_IJ = tl.load(x_ptr + x_IJ, mask=inside, other=0)
    v = v_ptr + offset_of(batch, batch_shape, v_batch)
    taus = tau_ptr + offset_of(batch, batch_shape, tau_batch)
    for step in range(steps):
        k = tl.cast(step if FORWARD else steps - 1 - step, tl.int64)
        v_I = tl.load(v + i * v_strides[0] + k * v_strides[1], mask=(i > k) & (i < rows), other=0)
        v_I = tl.where(i == k, 1.0, v_I)
        tau = tl.load(taus + k * tau_strides[0])
        product_J = tau * tl.sum(v_I[:, None] * x_IJ, axis=0)
        x_IJ = x_IJ - v_I[:, None] * product_J[None, :]
    out_IJ = offset_of(batch, batch_shape, out_batch) + i[:, None] * out_strides[0] + j[None, :] * out_strides[1]
    tl.store(out_ptr + out_IJ, x_IJ, mask=inside)


# ---------------------------------------------------------------- the host side


def _reflect(
    out: torch.Tensor, x: torch.Tensor | None, v: torch.Tensor, tau: torch.Tensor, *, forward: bool = False
) -> None:
    """Write ``H1 H2 .. X``, or ``.. H2 H1 X`` if ``forward``; X of None is the identity.

    Raises:
        NotImplementedError: more than 1024 rows.
    """
    rows, columns = out.shape[-2:]
    if rows > _MOST_ROWS:
        raise NotImplementedError(f"reflections of more than {_MOST_ROWS} rows are not served")
    if not out.numel():
        return
    batch = Batch.of(tuple(out.shape[:-2]), (out, 2), (out if x is None else x, 2), (v, 2), (tau, 1))
    block_i = block_of(rows)
    block_j = min(block_of(columns), max(MOST_ELEMENTS // 2 // block_i, 1), 32)
    launch(
        reflect_kernel,
        (batch.matrices * triton.cdiv(columns, block_j),),
        out.device,
        out,
        x,
        v,
        tau,
        batch.shape_D,
        *batch.layouts(),
        rows,
        columns,
        loop_bound(tau.shape[-1]),
        IDENTITY=x is None,
        FORWARD=forward,
        BLOCK_I=block_i,
        BLOCK_J=block_j,
        num_warps=warps_for(block_i * block_j),
    )


def geqrf(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """R from the diagonal on, below it the reflections without their leading 1; and their tau, ``[.., min(m, n)]``.

    Raises:
        ValueError: no matrices.
        NotImplementedError: matrices of more than 128 rows or columns.
    """
    require_matrices(self)
    rows, columns = self.shape[-2:]
    require_small(rows, columns)
    lead, steps = tuple(self.shape[:-2]), min(rows, columns)
    out = empty_columns(self.shape, self)
    tau = torch.empty((*lead, steps), dtype=self.dtype, device=self.device)
    batch = Batch.of(lead, (out, 2), (self, 2))
    if out.numel():
        block_i, block_j = block_of(rows), block_of(columns)
        launch(
            qr_kernel,
            (batch.matrices,),
            self.device,
            out,
            tau,
            self,
            batch.shape_D,
            *batch.layouts(),
            rows,
            columns,
            loop_bound(steps),
            BLOCK_I=block_i,
            BLOCK_J=block_j,
            num_warps=warps_for(block_i * block_j),
        )
    return out, tau


def householder_product(input: torch.Tensor, tau: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """The first columns of ``H1 H2 ..``, as many as ``input[.., m, n]`` has, which holds the reflections.

    Raises:
        ValueError: more columns than rows, or more reflections than columns.
        TypeError: two types.
        NotImplementedError: more than 1024 rows.
    """
    require_matrices(input, tau.unsqueeze(-1))
    rows, columns = input.shape[-2:]
    if rows < columns or columns < tau.shape[-1] or tau.shape[:-1] != input.shape[:-2]:
        raise ValueError(f"{list(tau.shape)} reflections do not fit matrices of shape {list(input.shape)}")
    out = empty_columns(input.shape, input)
    _reflect(out, None, input, tau)
    return out


def linalg_qr(A: torch.Tensor, mode: str = "reduced") -> tuple[torch.Tensor, torch.Tensor]:
    """Q and R with ``A = Q R``: of ``min(m, n)`` columns and rows, or all ("complete"), or R alone ("r").

    Raises:
        ValueError: no matrices, or another mode.
        NotImplementedError: matrices of more than 128 rows or columns.
    """
    if mode not in ("reduced", "complete", "r"):
        raise ValueError(f"the mode is 'reduced', 'complete' or 'r', not {mode!r}")
    reflections, tau = geqrf(A)
    rows, columns = A.shape[-2:]
    width = rows if mode == "complete" else min(rows, columns)
    R = tril(reflections.narrow(-2, 0, width).mT).mT
    if mode == "r":
        return torch.empty(0, dtype=A.dtype, device=A.device), R
    Q = empty_columns((*A.shape[:-1], width), A)
    if columns:
        _reflect(Q, None, reflections, tau)
    else:
        fill(Q, 0)
        fill(Q.diagonal(dim1=-2, dim2=-1), 1)
    return Q, R


def ormqr(
    self: torch.Tensor, input2: torch.Tensor, input3: torch.Tensor, left: bool = True, transpose: bool = False
) -> torch.Tensor:
    """``Q C`` with the reflections ``self`` and tau ``input2`` of Q, and ``C = input3``; or Q^T, or from the right.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: several types.
        NotImplementedError: more than 1024 rows.
    """
    require_matrices(self, input2.unsqueeze(-1), input3)
    if input3.shape[-2 if left else -1] != self.shape[-2] or input2.shape[-1] > self.shape[-1]:
        raise ValueError(f"reflections of shape {list(self.shape)} do not fit matrices of {list(input3.shape)}")
    out = empty_columns(input3.shape, input3)
    if left:
        _reflect(out, input3, self, input2, forward=transpose)
    else:
        _reflect(out.mT, input3.mT, self, input2, forward=not transpose)
    return out
