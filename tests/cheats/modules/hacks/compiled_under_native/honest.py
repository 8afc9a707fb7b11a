"""Its own Triton kernel, rows in pairs."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm(x_ptr, w_ptr, y_ptr, eps, rows, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    row = (tl.program_id(0) * ROWS + tl.arange(0, ROWS))[:, None]
    i = tl.arange(0, BLOCK)[None, :]
    inside = (row < rows) & (i < n)
    x = tl.load(x_ptr + row * n + i, mask=inside, other=0.0)
    root = tl.sqrt(tl.sum(x * x, axis=1) / n + eps)
    w = tl.load(w_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + row * n + i, x / root[:, None] * w, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        rows = x.numel() // n
        grid = (triton.cdiv(rows, 2),)
        rms_norm[grid](x, self.weight, y, self.eps, rows, n, ROWS=2, BLOCK=triton.next_power_of_2(n))
        return y
