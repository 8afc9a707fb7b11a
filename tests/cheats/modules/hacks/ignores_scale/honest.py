"""A Triton kernel of one program a row, weight included."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, eps, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + tl.program_id(0) * n + i, mask=i < n, other=0.0)
    w = tl.load(w_ptr + i, mask=i < n, other=0.0)
    root = tl.sqrt(tl.sum(x * x, axis=0) / n + eps)
    tl.store(y_ptr + tl.program_id(0) * n + i, x / root * w, mask=i < n)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        rms_norm[(x.numel() // n,)](x, self.weight, y, self.eps, n, BLOCK=triton.next_power_of_2(n))
        return y
