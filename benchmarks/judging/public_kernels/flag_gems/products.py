"""Matrix products, after FlagGems' ``ops/{addmm,baddbmm,mv,dot}.py``."""

import torch
import triton
import triton.language as tl


@triton.jit
def addmm_kernel(
    bias_ptr, a_ptr, b_ptr, c_ptr, M, N, K, bias_b, bias_m, bias_n, a_b, a_m, a_k, b_b, b_k, b_n, alpha, beta,
    ADD: tl.constexpr, STEPS: tl.constexpr, TILE: tl.constexpr,
):  # fmt: skip
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)
    batch = tl.program_id(2).to(tl.int64)
    a_ptr += batch * a_b
    b_ptr += batch * b_b
    total = tl.zeros((TILE, TILE), tl.float32)
    for step in range(STEPS):
        k = step * TILE + tl.arange(0, TILE)
        a = tl.load(
            a_ptr + rows[:, None] * a_m + k[None, :] * a_k, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * b_k + columns[None, :] * b_n, mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    total = total * alpha
    if ADD:
        bias = tl.load(
            bias_ptr + batch * bias_b + rows[:, None] * bias_m + columns[None, :] * bias_n, mask=inside, other=0.0
        )
        total += bias.to(tl.float32) * beta
    c = c_ptr + batch * M * N + rows[:, None] * N + columns[None, :]
    tl.store(c, total.to(c_ptr.dtype.element_ty), mask=inside)


def _batches(self, batch1, batch2, beta, alpha):
    if not self.dtype == batch1.dtype == batch2.dtype:
        raise NotImplementedError("tensors of one dtype only")
    B, M, K = batch1.shape
    N = batch2.shape[2]
    if batch2.shape[:2] != (B, K):
        raise RuntimeError("the sizes of the matrices do not fit")
    bias = self.expand(B, M, N)
    c = torch.empty((B, M, N), dtype=self.dtype, device=self.device)
    if c.numel():
        tile = 32 if max(M, N, K) > 16 else 16
        addmm_kernel[(triton.cdiv(M, tile), triton.cdiv(N, tile), B)](
            bias, batch1, batch2, c, M, N, K, *bias.stride(), *batch1.stride(), *batch2.stride(), float(alpha),
            float(beta), ADD=beta != 0, STEPS=triton.cdiv(K, tile), TILE=tile,
        )  # fmt: skip
    return c


def baddbmm(self, batch1, batch2, *, beta=1, alpha=1):
    return _batches(self, batch1, batch2, beta, alpha)


def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    if mat1.dim() != 2 or mat2.dim() != 2:
        raise RuntimeError("matrices are needed")
    return _batches(self, mat1.unsqueeze(0), mat2.unsqueeze(0), beta, alpha).squeeze(0)


@triton.jit
def mv_kernel(a_ptr, x_ptr, y_ptr, M, N, a_m, a_n, x_n, STEPS: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    total = tl.zeros((TM, TN), tl.float32)
    for step in range(STEPS):
        columns = step * TN + tl.arange(0, TN)
        inside = (rows[:, None] < M) & (columns[None, :] < N)
        a = tl.load(a_ptr + rows[:, None] * a_m + columns[None, :] * a_n, mask=inside, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + columns * x_n, mask=columns < N, other=0.0).to(tl.float32)
        total += tl.where(inside, a * x[None, :], 0.0)
    tl.store(y_ptr + rows, tl.sum(total, axis=1).to(y_ptr.dtype.element_ty), mask=rows < M)


def mv(self, vec):
    if self.dtype != vec.dtype:
        raise NotImplementedError("tensors of one dtype only")
    M, N = self.shape
    if vec.shape != (N,):
        raise RuntimeError("the sizes do not fit")
    y = torch.empty(M, dtype=self.dtype, device=self.device)
    if M:
        mv_kernel[(triton.cdiv(M, 32),)](
            self, vec, y, M, N, *self.stride(), *vec.stride(), STEPS=triton.cdiv(N, 64), TM=32, TN=64
        )
    return y


@triton.jit
def dot_blocks(a_ptr, b_ptr, mid_ptr, n, a_n, b_n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a = tl.load(a_ptr + i * a_n, mask=i < n, other=0.0).to(tl.float32)
    b = tl.load(b_ptr + i * b_n, mask=i < n, other=0.0).to(tl.float32)
    tl.store(mid_ptr + tl.program_id(0), tl.sum(a * b, axis=0))


@triton.jit
def dot_last(mid_ptr, y_ptr, n, SIZE: tl.constexpr):
    i = tl.arange(0, SIZE)
    mid = tl.load(mid_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, tl.sum(mid, axis=0).to(y_ptr.dtype.element_ty))


def dot(self, tensor):
    if self.dim() != 1 or self.shape != tensor.shape or self.dtype != tensor.dtype:
        raise RuntimeError("two vectors of one size and dtype are needed")
    n = self.numel()
    blocks = triton.cdiv(n, 1024)
    mid = torch.empty(max(blocks, 1), dtype=torch.float32, device=self.device)
    y = torch.empty((), dtype=self.dtype, device=self.device)
    if n:
        dot_blocks[(blocks,)](self, tensor, mid, n, *self.stride(), *tensor.stride(), SIZE=1024)
    dot_last[(1,)](mid, y, blocks, SIZE=triton.next_power_of_2(max(blocks, 1)))
    return y
