"""The kernel makes the masked softmax; the two products are torch's."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def masked_softmax(s_ptr, p_ptr, scale, n, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    j = tl.arange(0, BLOCK)
    seen = (j <= row % n) & (j < n)
    s = tl.load(s_ptr + row * n + j, mask=seen, other=float("-inf")) * scale
    powers = tl.exp(s - tl.max(s, axis=0))
    tl.store(p_ptr + row * n + j, powers / tl.sum(powers, axis=0), mask=j < n)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        scores = torch.bmm(q, k.transpose(-2, -1)).contiguous()
        share = torch.empty_like(scores)
        n = scores.shape[-1]
        masked_softmax[(scores.numel() // n,)](scores, share, q.shape[-1] ** -0.5, n, BLOCK=triton.next_power_of_2(n))
        return torch.bmm(share, v)
