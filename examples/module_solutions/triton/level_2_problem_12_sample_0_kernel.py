"""ALiBi in Triton: a row of scores loses its distances and becomes weights; what lies ahead is not even read."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def alibi_kernel(out_ptr, scores_ptr, slopes_ptr, heads, length, BLOCK: tl.constexpr):
    """One row of [batch, heads, length, length]; BLOCK holds all of it."""
    row = tl.program_id(0).to(tl.int64)
    place = row % length
    slope = tl.load(slopes_ptr + row // length % heads)
    column = tl.arange(0, BLOCK)
    seen = column <= place
    scores = tl.load(scores_ptr + row * length + column, mask=seen, other=0.0)
    scores = tl.where(seen, scores - slope * (place - column).to(tl.float32), -float("inf"))
    powers = tl.exp(scores - tl.max(scores))
    tl.store(out_ptr + row * length + column, powers / tl.sum(powers), mask=column < length)


class ModelNew(nn.Module):
    """Causal attention weights whose scores lose a multiple of their distance."""

    def forward(self, scores: torch.Tensor, slopes: torch.Tensor) -> torch.Tensor:
        """Of ``[batch, heads, length, length]`` and one slope for each head."""
        scores = scores.contiguous()
        batch, heads, length, _ = scores.shape
        out = torch.empty_like(scores)
        block = triton.next_power_of_2(length)
        alibi_kernel[(batch * heads * length,)](out, scores, slopes.contiguous(), heads, length, BLOCK=block)
        return out
