"""A matrix product whose inner dimension is split, after Applied AI's ``kernels/triton/inference/splitk`` (PyTorch).

Each program adds its part to the result atomically, in float32, in whatever order they end.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def split_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_m, a_k, b_k, b_n, BLOCK: tl.constexpr, STEPS: tl.constexpr, SPLIT: tl.constexpr
):
    pid = tl.program_id(0)
    part = tl.program_id(1)
    tiles_n = tl.cdiv(N, BLOCK)
    rows = (pid // tiles_n) * BLOCK + tl.arange(0, BLOCK)
    columns = (pid % tiles_n) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for step in range(STEPS):
        k = (step * SPLIT + part) * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + rows[:, None] * a_m + k[None, :] * a_k, mask=(rows[:, None] < M) & (k[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + k[:, None] * b_k + columns[None, :] * b_n, mask=(k[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], total, mask=mask)


@triton.jit
def narrow_kernel(x_ptr, y_ptr, n, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n, other=0.0).to(y_ptr.dtype.element_ty), mask=i < n)


def mm(self, mat2):
    if self.dim() != 2 or mat2.dim() != 2 or self.shape[1] != mat2.shape[0] or self.dtype != mat2.dtype:
        raise RuntimeError("the matrices do not fit")
    (M, K), N = self.shape, mat2.shape[1]
    c = torch.zeros((M, N), dtype=torch.float32, device=self.device)
    if c.numel() and K:
        BLOCK, SPLIT = 16, 4 if K > 32 else 2
        grid = (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK), SPLIT)
        split_k_kernel[grid](
            self, mat2, c, M, N, K, *self.stride(), *mat2.stride(), BLOCK=BLOCK, STEPS=triton.cdiv(K, BLOCK * SPLIT),
            SPLIT=SPLIT,
        )  # fmt: skip
    if self.dtype == torch.float32:
        return c
    y = torch.empty((M, N), dtype=self.dtype, device=self.device)
    if c.numel():
        narrow_kernel[(triton.cdiv(c.numel(), 1024),)](c, y, c.numel(), SIZE=1024)
    return y
