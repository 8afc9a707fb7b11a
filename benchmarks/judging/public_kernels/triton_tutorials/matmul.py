"""A product whose tiles are taken in groups of rows, after the Triton tutorial ``03-matrix-multiplication.py``."""

import torch
import triton
import triton.language as tl


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK: tl.constexpr, STEPS: tl.constexpr, GROUP_M: tl.constexpr,
):  # fmt: skip
    pid = tl.program_id(axis=0)
    num_pid_m, num_pid_n = tl.cdiv(M, BLOCK), tl.cdiv(N, BLOCK)
    num_pid_in_group = GROUP_M * num_pid_n
    first_pid_m = (pid // num_pid_in_group) * GROUP_M
    group_size = tl.minimum(num_pid_m - first_pid_m, GROUP_M)
    pid_m = first_pid_m + (pid % num_pid_in_group) % group_size
    pid_n = (pid % num_pid_in_group) // group_size
    rows = pid_m * BLOCK + tl.arange(0, BLOCK)
    columns = pid_n * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), dtype=tl.float32)
    for step in range(STEPS):
        k = step * BLOCK + tl.arange(0, BLOCK)
        a = tl.load(
            a_ptr + rows[:, None] * stride_am + k[None, :] * stride_ak,
            mask=(rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * stride_bk + columns[None, :] * stride_bn,
            mask=(k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        total = tl.dot(a, b, total, input_precision="ieee")
    mask = (rows[:, None] < M) & (columns[None, :] < N)
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total.to(c_ptr.dtype.element_ty), mask=mask)


def mm(self, mat2):
    if self.dim() != 2 or mat2.dim() != 2 or self.shape[1] != mat2.shape[0]:
        raise RuntimeError("the sizes of the matrices do not fit")
    if self.dtype != mat2.dtype:
        raise RuntimeError("tensors of one dtype are needed")
    (M, K), N = self.shape, mat2.shape[1]
    c = torch.empty((M, N), dtype=self.dtype, device=self.device)
    if c.numel():
        BLOCK = 32 if max(M, N, K) > 16 else 16
        grid = (triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK),)
        matmul_kernel[grid](
            self, mat2, c, M, N, K, *self.stride(), *mat2.stride(), BLOCK=BLOCK, STEPS=triton.cdiv(K, BLOCK), GROUP_M=4
        )
    return c
