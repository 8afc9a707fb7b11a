"""The generalized Jensen-Shannon divergence by rows, after Liger-Kernel's ``src/liger_kernel/ops/jsd.py`` (forward)."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def jsd_kernel(x_ptr, y_ptr, loss_ptr, C, beta, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        i = step * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * C + i, mask=i < C, other=float("-inf")).to(tl.float32)
        y = tl.load(y_ptr + row * C + i, mask=i < C, other=float("-inf")).to(tl.float32)
        q, p = tl.exp(x), tl.exp(y)
        m = beta * p + (1.0 - beta) * q
        log_m = tl.log(m)
        loss = beta * p * (y - log_m) + (1.0 - beta) * q * (x - log_m)
        total += tl.where(i < C, loss, 0.0)
    tl.store(loss_ptr + row, tl.sum(total, axis=0))


@triton.jit
def mean_kernel(loss_ptr, y_ptr, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    total = tl.zeros((BLOCK,), tl.float32)
    for step in range(STEPS):
        i = step * BLOCK + tl.arange(0, BLOCK)
        total += tl.load(loss_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr, (tl.sum(total, axis=0) / n).to(y_ptr.dtype.element_ty))


class ModelNew(nn.Module):
    def __init__(self, beta):
        super().__init__()
        self.beta = beta

    def forward(self, student, teacher):
        x, y = student.contiguous(), teacher.contiguous()
        n, C = x.shape
        loss = torch.empty(n, dtype=torch.float32, device=x.device)
        out = torch.empty((), dtype=x.dtype, device=x.device)
        BLOCK = min(4096, triton.next_power_of_2(C))
        jsd_kernel[(n,)](x, y, loss, C, self.beta, STEPS=triton.cdiv(C, BLOCK), BLOCK=BLOCK)
        mean_kernel[(1,)](loss, out, n, STEPS=triton.cdiv(n, 1024), BLOCK=1024)
        return out
