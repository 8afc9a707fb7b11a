"""Variance and mean by Welford's update in blocks that are merged, after FlagGems' ``ops/{var_mean,std}.py``."""

import torch
import triton
import triton.language as tl

from .rows import as_rows, normalized, reduced_shape, tile


@triton.jit
def welford_rows(
    x_ptr, var_ptr, mean_ptr, M, N, divisor, ROOT: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr
):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    mean = tl.zeros((TM, TN), tl.float32)
    m2 = tl.zeros((TM, TN), tl.float32)
    count = tl.zeros((TM, TN), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        count += inside.to(tl.float32)
        delta = tl.where(inside, x - mean, 0.0)
        mean += tl.where(inside, delta / tl.where(inside, count, 1.0), 0.0)
        m2 += tl.where(inside, delta * (x - mean), 0.0)
    # The lanes are merged: their means about the row's, and what they deviate by themselves.
    mean_row = tl.sum(mean * count, axis=1) / N
    apart = mean - mean_row[:, None]
    m2_row = tl.sum(m2 + count * apart * apart, axis=1)
    var = m2_row / divisor
    if ROOT:
        var = tl.sqrt(var)
    tl.store(var_ptr + rows, var.to(var_ptr.dtype.element_ty), mask=rows < M)
    tl.store(mean_ptr + rows, mean_row.to(mean_ptr.dtype.element_ty), mask=rows < M)


def _moments(self, dim, correction, keepdim, root):
    dims = normalized(dim, self.dim())
    rows = as_rows(self, dims)
    M, N = rows.shape
    var, mean = (torch.empty(M, dtype=self.dtype, device=self.device) for _ in range(2))
    shape = reduced_shape(self, dims, keepdim)
    if not N:
        return var.fill_(float("nan")).view(shape), mean.fill_(float("nan")).view(shape)
    divisor = max(float(N) - (1.0 if correction is None else float(correction)), 0.0)
    TM, TN = tile(M, N)
    if M:
        welford_rows[(triton.cdiv(M, TM),)](
            rows, var, mean, M, N, divisor, ROOT=root, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN
        )
    return var.view(shape), mean.view(shape)


def var_mean(self, dim=None, *, correction=None, keepdim=False):
    return _moments(self, dim, correction, keepdim, False)


def std(self, dim=None, *, correction=None, keepdim=False):
    return _moments(self, dim, correction, keepdim, True)[0]
