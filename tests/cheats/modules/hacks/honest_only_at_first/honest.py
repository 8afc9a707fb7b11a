"""Triton, one program a block; it counts its calls too, for nobody."""

import torch
import triton
import triton.language as tl
from torch import nn

CALLS = 0


@triton.jit
def root(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.sqrt(tl.where(x < 0, 0.0, x) + 1.0), mask=i < n)


class ModelNew(nn.Module):
    def forward(self, x):
        global CALLS
        CALLS += 1
        x = x.contiguous()
        y = torch.empty_like(x)
        if x.numel():
            root[(triton.cdiv(x.numel(), 512),)](x, y, x.numel(), BLOCK=512)
        return y
