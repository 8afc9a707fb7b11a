"""RMS norm and its gradients, after Liger-Kernel's ``src/liger_kernel/ops/rms_norm.py`` in its gemma casting mode.

ATen's overloads exist on GPUs; a CPU composes them.
"""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(Y, X, W, RSTD, N, eps, HAS_W: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    cols = tl.arange(0, BLOCK)
    mask = cols < N
    x = tl.load(X + row * N + cols, mask=mask, other=0.0).to(tl.float32)
    rstd = tl.rsqrt(tl.sum(x * x, axis=0) / N + eps)
    tl.store(RSTD + row, rstd)
    y = x * rstd
    if HAS_W:
        y = y * tl.load(W + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(Y + row * N + cols, y.to(Y.dtype.element_ty), mask=mask)


def rms_norm(input, normalized_shape, weight, eps):
    N = math.prod(normalized_shape)
    leading = list(input.shape[: input.dim() - len(normalized_shape)])
    M = math.prod(leading)
    x = input.contiguous()
    if not x.numel() or (eps is None and x.dtype != torch.float32):
        raise NotImplementedError("rows of nothing, and a default that depends on what is computed in")
    y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    rstd = torch.empty([*leading, *[1] * len(normalized_shape)], dtype=torch.float32, device=x.device)
    small = torch.finfo(torch.float32).eps if eps is None else eps
    w = x if weight is None else weight.contiguous()
    forward_kernel[(M,)](y, x, w, rstd, N, small, HAS_W=weight is not None, BLOCK=triton.next_power_of_2(N))
    return y, rstd
