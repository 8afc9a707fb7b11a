"""The Cholesky factorization ``A = L L^T`` of batches of small matrices.

Column by column: ``L[:, k] = A[:, k] / sqrt(A[k, k])``, and its outer product is subtracted from the rest. A program
holds a matrix in registers: ``n^2 itemsize`` bytes read and written, n steps over n^2 elements.

Suffixes: ``_I`` rows, ``_J`` columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import offset_of
from ..common.launch import launch, loop_bound, pdl_prologue
from .matrix_batches import Batch, block_of, check_info, empty_columns, require_matrices, require_small, warps_for


@triton.jit
def cholesky_kernel(
    out_ptr: tl.tensor,
    info_ptr: tl.tensor,
    a_ptr: tl.tensor,
    batch_shape: tl.tuple,
    out_batch: tl.tuple,
    out_strides: tl.tuple,
    a_batch: tl.tuple,
    a_strides: tl.tuple,
    n: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Factor the matrix whose lower triangle is given; info is the first leading minor that is not positive, or 0."""
    pdl_prologue()
    batch = tl.program_id(0).to(tl.int64)
    i, j = tl.arange(0, BLOCK).to(tl.int64), tl.arange(0, BLOCK).to(tl.int64)
    lower = (i[:, None] >= j[None, :]) & (i < n)[:, None]
    a_IJ = a_ptr + offset_of(batch, batch_shape, a_batch) + i[:, None] * a_strides[0] + j[None, :] * a_strides[1]
    x_IJ = tl.load(a_IJ, mask=lower, other=0)
    info = tl.zeros([1], tl.int32)
    for k in range(n):
        column_I = tl.sum(tl.where((j == k)[None, :], x_IJ, 0.0), axis=1)
        pivot = tl.sum(tl.where(i == k, column_I, 0.0), axis=0)
        info = tl.where(info == 0, tl.where(pivot > 0, 0, k + 1), info)
        column_I = column_I / tl.sqrt(pivot)
        rest = (i > k)[:, None] & (j > k)[None, :]
        x_IJ = tl.where(rest, x_IJ - column_I[:, None] * column_I[None, :], x_IJ)
        x_IJ = tl.where((j == k)[None, :] & (i >= k)[:, None], column_I[:, None], x_IJ)
    out_IJ = offset_of(batch, batch_shape, out_batch) + i[:, None] * out_strides[0] + j[None, :] * out_strides[1]
    tl.store(out_ptr + out_IJ, tl.where(lower, x_IJ, 0.0), mask=(i < n)[:, None] & (j < n)[None, :])
    tl.store(info_ptr + batch + tl.arange(0, 1), info)


def cholesky_ex(
    self: torch.Tensor, *, upper: bool = False, check_errors: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """L with ``A = L L^T``, or if ``upper`` its transpose, from one triangle of A; and which minor was not positive.

    Raises:
        ValueError: no square matrices.
        NotImplementedError: matrices of more than 128 rows.
        torch.linalg.LinAlgError: ``check_errors``, and a matrix that is not positive definite.
    """
    require_matrices(self, square=True)
    n, lead = self.shape[-1], tuple(self.shape[:-2])
    require_small(n)
    out = empty_columns(self.shape, self)
    info = torch.empty(lead, dtype=torch.int32, device=self.device)
    views = (out.mT, self.mT) if upper else (out, self)
    batch = Batch.of(lead, (views[0], 2), (views[1], 2))
    if batch.matrices:
        block = block_of(n)
        launch(
            cholesky_kernel,
            (batch.matrices,),
            self.device,
            out,
            info,
            self,
            batch.shape_D,
            *batch.layouts(),
            loop_bound(n),
            BLOCK=block,
            num_warps=warps_for(block * block),
        )
    if check_errors:
        check_info(info, "a matrix is not positive definite")
    return out, info


def cholesky(self: torch.Tensor, upper: bool = False) -> torch.Tensor:
    """As :func:`cholesky_ex`; the host waits for the outcome."""
    return cholesky_ex(self, upper=upper, check_errors=True)[0]
