"""Reductions, after FlagGems' ``ops/{sum,mean,prod,amax,max,argmax,min,any,all,vector_norm,count_nonzero}.py``.

A whole tensor is reduced by two kernels: blocks give partial results, one program reduces those. Along dimensions each
program loops over a tile of rows.
"""

import math

import torch
import triton
import triton.language as tl

from .rows import as_rows, normalized, reduced_shape, tile

BLOCK = 1024


@triton.jit
def sum_blocks(x_ptr, mid_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    tl.store(mid_ptr + tl.program_id(0), tl.sum(x, axis=0))


@triton.jit
def sum_last(mid_ptr, y_ptr, n, scale, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    mid = tl.load(mid_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, (tl.sum(mid, axis=0) / scale).to(y_ptr.dtype.element_ty))


def _summed(self, dtype, divisor):
    x = self.contiguous()
    y = torch.empty((), dtype=dtype or self.dtype, device=self.device)
    n = x.numel()
    blocks = triton.cdiv(n, BLOCK)
    mid = torch.empty(max(blocks, 1), dtype=torch.float32, device=self.device)
    if n:
        sum_blocks[(blocks,)](x, mid, n, SIZE=BLOCK)
    sum_last[(1,)](mid, y, blocks, float(divisor), SIZE=triton.next_power_of_2(max(blocks, 1)))
    return y


def _float(*dtypes):
    if any(dtype not in (None, torch.float32, torch.bfloat16, torch.float16) for dtype in dtypes):
        raise NotImplementedError("floats of up to 32 bits only")


def sum_all(self, *, dtype=None):
    _float(self.dtype, dtype)
    return _summed(self if dtype is None else self.to(dtype), dtype, 1)


def mean_all(self, *, dtype=None):
    """The mean of nothing is NaN: zero by zero."""
    _float(self.dtype, dtype)
    return _summed(self if dtype is None else self.to(dtype), dtype, self.numel())


@triton.jit
def sum_rows(x_ptr, y_ptr, M, N, scale, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        total += tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
    result = tl.sum(total, axis=1) / scale
    tl.store(y_ptr + rows, result.to(y_ptr.dtype.element_ty), mask=rows < M)


def _along(self, dim, keepdim, dtype, by_count):
    _float(self.dtype, dtype)
    x = self if dtype is None else self.to(dtype)
    dims = normalized(dim, x.dim())
    rows = as_rows(x, dims)
    M, N = rows.shape
    y = torch.empty(M, dtype=x.dtype, device=x.device)
    TM, TN = tile(M, N)
    if M:
        sum_rows[(triton.cdiv(M, TM),)](
            rows, y, M, N, float(N) if by_count else 1.0, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN
        )
    return y.view(reduced_shape(x, dims, keepdim))


def sum_dim(self, dim, keepdim=False, *, dtype=None):
    return _along(self, dim, keepdim, dtype, False)


def mean_dim(self, dim, keepdim=False, *, dtype=None):
    return _along(self, dim, keepdim, dtype, True)


@triton.jit
def multiply(a, b):
    return a * b


@triton.jit
def prod_blocks(x_ptr, mid_ptr, n, STEPS: tl.constexpr, SIZE: tl.constexpr):
    total = tl.full((SIZE,), 1.0, tl.float32)
    for step in range(STEPS):
        i = (tl.program_id(0) * STEPS + step) * SIZE + tl.arange(0, SIZE)
        total = total * tl.load(x_ptr + i, mask=i < n, other=1.0).to(tl.float32)
    tl.store(mid_ptr + tl.program_id(0), tl.reduce(total, 0, multiply).to(mid_ptr.dtype.element_ty))


def prod_all(self, *, dtype=None):
    _float(self.dtype, dtype)
    x = (self if dtype is None else self.to(dtype)).contiguous()
    y = torch.empty((), dtype=x.dtype, device=x.device)
    n = x.numel()
    blocks = max(triton.cdiv(n, 64 * 64), 1)
    mid = torch.empty(blocks, dtype=torch.float32, device=x.device)
    prod_blocks[(blocks,)](x, mid, n, STEPS=min(triton.cdiv(n, 64), 64), SIZE=64)
    prod_blocks[(1,)](mid, y, blocks, STEPS=triton.cdiv(blocks, 64), SIZE=64)
    return y


@triton.jit
def larger(a, b):
    return tl.where((a > b) | (a != a), a, b)


@triton.jit
def largest_of(x):
    """The largest number of each row; NaN is the largest."""
    nan = tl.max((x != x).to(tl.int32), axis=1)
    top = tl.max(tl.where(x != x, float("-inf"), x), axis=1)
    return tl.where(nan != 0, float("nan"), top)


@triton.jit
def amax_rows(x_ptr, y_ptr, M, N, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    best = tl.full((TM, TN), float("-inf"), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=float("-inf")).to(tl.float32)
        best = larger(best, x)
    result = largest_of(best)
    tl.store(y_ptr + rows, result.to(y_ptr.dtype.element_ty), mask=rows < M)


def amax(self, dim=(), keepdim=False):
    dims = normalized(dim, self.dim())
    rows = as_rows(self, dims)
    M, N = rows.shape
    if not N:
        raise IndexError("there is no largest of nothing")
    y = torch.empty(M, dtype=self.dtype, device=self.device)
    TM, TN = tile(M, N)
    if M:
        amax_rows[(triton.cdiv(M, TM),)](rows, y, M, N, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN)
    return y.view(reduced_shape(self, dims, keepdim))


@triton.jit
def extreme_rows(
    x_ptr, value_ptr, index_ptr, M, N, SIGN: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr
):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    best = tl.full((TM, TN), float("-inf"), tl.float32)
    place = tl.full((TM, TN), 2147483647, tl.int32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32) * SIGN
        x = tl.where(inside, x, float("-inf"))
        here = tl.where(inside, columns[None, :] + tl.zeros((TM, TN), tl.int32), 2147483647)
        # Columns come in order: what was there first stays unless the new one is larger, or NaN and the first one.
        taken = ((x > best) | ((x != x) & (best == best)) | (place == 2147483647)) & inside
        best = tl.where(taken, x, best)
        place = tl.where(taken, here, place)
    value = largest_of(best)
    hit = (best == value[:, None]) | ((best != best) & (value != value)[:, None])
    index = tl.min(tl.where(hit, place, 2147483647), axis=1)
    tl.store(value_ptr + rows, (value * SIGN).to(value_ptr.dtype.element_ty), mask=rows < M)
    tl.store(index_ptr + rows, index.to(tl.int64), mask=rows < M)


def _extreme(self, dims, sign, keepdim):
    rows = as_rows(self, dims)
    M, N = rows.shape
    if not N:
        raise IndexError("there is no extreme of nothing")
    values = torch.empty(M, dtype=self.dtype, device=self.device)
    indices = torch.empty(M, dtype=torch.int64, device=self.device)
    TM, TN = tile(M, N)
    if M:
        extreme_rows[(triton.cdiv(M, TM),)](
            rows, values, indices, M, N, SIGN=sign, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN
        )
    shape = reduced_shape(self, dims, keepdim)
    return values.view(shape), indices.view(shape)


def max_dim(self, dim, keepdim=False):
    return _extreme(self, normalized(dim, self.dim()), 1.0, keepdim)


def min_dim(self, dim, keepdim=False):
    return _extreme(self, normalized(dim, self.dim()), -1.0, keepdim)


def argmax(self, dim=None, keepdim=False):
    return _extreme(self, normalized(dim, self.dim()), 1.0, keepdim)[1]


def argmin(self, dim=None, keepdim=False):
    return _extreme(self, normalized(dim, self.dim()), -1.0, keepdim)[1]


@triton.jit
def count_rows(x_ptr, y_ptr, M, N, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    total = tl.zeros((TM, TN), tl.int32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
        total += (x != 0).to(tl.int32)
    tl.store(y_ptr + rows, tl.sum(total, axis=1).to(tl.int64), mask=rows < M)


def count_nonzero(self, dim=None):
    dims = normalized(dim, self.dim())
    rows = as_rows(self, dims)
    M, N = rows.shape
    y = torch.empty(M, dtype=torch.int64, device=self.device)
    TM, TN = tile(M, N)
    if M:
        count_rows[(triton.cdiv(M, TM),)](rows, y, M, N, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN)
    return y.view(reduced_shape(self, dims, False))


@triton.jit
def any_rows(x_ptr, y_ptr, M, N, EVERY: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    found = tl.zeros((TM, TN), tl.int32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=1.0 if EVERY else 0.0)
        # For "all" a zero is looked for; NaN is none.
        found = found | ((x == 0) if EVERY else (x != 0)).to(tl.int32)
    result = tl.max(found, axis=1)
    tl.store(y_ptr + rows, (result == 0) if EVERY else (result != 0), mask=rows < M)


def _any(self, dims, keepdim, every):
    rows = as_rows(self, dims)
    M, N = rows.shape
    y = torch.empty(M, dtype=torch.bool, device=self.device)
    TM, TN = tile(M, N)
    if M:
        any_rows[(triton.cdiv(M, TM),)](rows, y, M, N, EVERY=every, STEPS=triton.cdiv(N, TN), TM=TM, TN=TN)
    return y.view(reduced_shape(self, dims, keepdim))


def any_dim(self, dim, keepdim=False):
    return _any(self, normalized(dim, self.dim()), keepdim, False)


def all_default(self):
    return _any(self, normalized(None, self.dim()), False, True)


@triton.jit
def norm_rows(x_ptr, y_ptr, M, N, p, KIND: tl.constexpr, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    total = tl.full((TM, TN), float("inf") if KIND == "min" else 0.0, tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0).to(tl.float32)
        x = tl.abs(x)
        if KIND == "two":
            total += x * x
        elif KIND == "one":
            total += x
        elif KIND == "max":
            total = larger(total, x)
        elif KIND == "min":
            x = tl.where(inside, x, float("inf"))
            total = -larger(-total, -x)
        elif KIND == "zero":
            total += (x != 0).to(tl.float32)
        else:
            total += tl.where(inside, tl.exp2(p * tl.log2(x)), 0.0)
    if KIND == "max":
        result = largest_of(total)
    elif KIND == "min":
        result = -largest_of(-total)
    else:
        result = tl.sum(total, axis=1)
    if KIND == "two":
        result = tl.sqrt(result)
    elif KIND == "power":
        result = tl.exp2(tl.log2(result) / p)
    tl.store(y_ptr + rows, result.to(y_ptr.dtype.element_ty), mask=rows < M)


NORMS = {2.0: "two", 1.0: "one", math.inf: "max", -math.inf: "min", 0.0: "zero"}


def norm_dim(self, p, dim, keepdim=False):
    _float(self.dtype)
    p = 2.0 if p is None else float(p)
    dims = normalized(dim, self.dim())
    rows = as_rows(self, dims)
    M, N = rows.shape
    if not N and (p < 0 or p == math.inf):
        raise IndexError("there is no such norm of nothing")
    y = torch.empty(M, dtype=self.dtype, device=self.device)
    TM, TN = tile(M, N)
    if M:
        norm_rows[(triton.cdiv(M, TM),)](
            rows, y, M, N, p, KIND=NORMS.get(p, "power"), STEPS=triton.cdiv(N, TN), TM=TM, TN=TN
        )
    return y.view(reduced_shape(self, dims, keepdim))
