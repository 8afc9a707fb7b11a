"""Two results from one Triton program a row."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def cosine(a_ptr, b_ptr, cosine_ptr, length_ptr, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    i = tl.arange(0, BLOCK)
    a = tl.load(a_ptr + row * n + i, mask=i < n, other=0.0)
    b = tl.load(b_ptr + row * n + i, mask=i < n, other=0.0)
    length = tl.sqrt(tl.sum(a * a, axis=0))
    both = length * tl.sqrt(tl.sum(b * b, axis=0))
    both = tl.where(both < 1e-8, 1e-8, both)
    tl.store(cosine_ptr + row, tl.sum(a * b, axis=0) / both)
    tl.store(length_ptr + row, length)


class ModelNew(nn.Module):
    def forward(self, a, b):
        a, b = a.contiguous(), b.contiguous()
        rows, n = a.shape
        result, length = a.new_empty(rows), a.new_empty(rows)
        cosine[(rows,)](a, b, result, length, n, BLOCK=triton.next_power_of_2(n))
        return result, length
