"""Products in which each program takes an even share of all steps of all tiles (Stream-K), after Applied AI's kernels.

A program may begin within one tile and end within another one. What it has of a tile it adds to the result atomically.
"""

import torch
import triton
import triton.language as tl


@triton.jit
def stream_k_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, a_m, a_k, b_k, b_n, alpha, total_steps,
    SHARE: tl.constexpr, STEPS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0) * SHARE
    tiles_n = tl.cdiv(N, BLOCK)
    for each in range(SHARE):
        at = first + each
        tile = at // STEPS
        rows = (tile // tiles_n) * BLOCK + tl.arange(0, BLOCK)
        columns = (tile % tiles_n) * BLOCK + tl.arange(0, BLOCK)
        k = (at % STEPS) * BLOCK + tl.arange(0, BLOCK)
        live = at < total_steps
        a = tl.load(
            a_ptr + rows[:, None] * a_m + k[None, :] * a_k,
            mask=live & (rows[:, None] < M) & (k[None, :] < K),
            other=0.0,
        )
        b = tl.load(
            b_ptr + k[:, None] * b_k + columns[None, :] * b_n,
            mask=live & (k[:, None] < K) & (columns[None, :] < N),
            other=0.0,
        )
        part = tl.dot(a, b, input_precision="ieee") * alpha
        mask = live & (rows[:, None] < M) & (columns[None, :] < N)
        tl.atomic_add(c_ptr + rows[:, None] * N + columns[None, :], part, mask=mask)


@triton.jit
def begin_kernel(bias_ptr, c_ptr, n, N, bias_m, bias_n, beta, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    bias = tl.load(bias_ptr + (i // N) * bias_m + (i % N) * bias_n, mask=i < n, other=0.0)
    tl.store(c_ptr + i, bias * beta, mask=i < n)


def addmm(self, mat1, mat2, *, beta=1, alpha=1):
    if not self.dtype == mat1.dtype == mat2.dtype == torch.float32:
        raise NotImplementedError("float32 only: parts are added in the type of the result")
    (M, K), N = mat1.shape, mat2.shape[1]
    if mat2.shape[0] != K:
        raise RuntimeError("the sizes of the matrices do not fit")
    bias = self.expand(M, N)
    c = torch.zeros((M, N), dtype=torch.float32, device=self.device)
    if c.numel() and beta != 0:
        begin_kernel[(triton.cdiv(c.numel(), 1024),)](bias, c, c.numel(), N, *bias.stride(), float(beta), SIZE=1024)
    if c.numel() and K:
        BLOCK = 16
        steps = triton.cdiv(K, BLOCK)
        total = triton.cdiv(M, BLOCK) * triton.cdiv(N, BLOCK) * steps
        share = 3 if total > 3 else 1
        stream_k_kernel[(triton.cdiv(total, share),)](
            mat1, mat2, c, M, N, K, *mat1.stride(), *mat2.stride(), float(alpha), total, SHARE=share, STEPS=steps,
            BLOCK=BLOCK,
        )  # fmt: skip
    return c
