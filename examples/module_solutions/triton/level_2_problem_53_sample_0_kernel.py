"""GroupNorm and SiLU in Triton: one program reads a group twice, for its moments and for its result."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def group_norm_silu_kernel(out_ptr, x_ptr, weight_ptr, bias_ptr, groups, members, pixels, epsilon, BLOCK: tl.constexpr):
    """One group of [batch, channels, pixels]: ``members`` channels that lie side by side."""
    group = tl.program_id(0).to(tl.int64)
    size = members * pixels
    base = group * size
    pivot = tl.load(x_ptr + base)  # Sums of what differs from an element lose no digits to a far mean.
    total = tl.zeros((BLOCK,), tl.float32)
    squares = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, size, BLOCK):
        index = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + base + index, mask=index < size, other=0.0)
        moved = tl.where(index < size, x - pivot, 0.0)
        total += moved
        squares += moved * moved
    shift = tl.sum(total) / size
    mean = pivot + shift
    scale = 1.0 / tl.sqrt(tl.sum(squares) / size - shift * shift + epsilon)
    first = group % groups * members
    for start in range(0, size, BLOCK):
        index = start + tl.arange(0, BLOCK)
        mask = index < size
        x = tl.load(x_ptr + base + index, mask=mask, other=0.0)
        channel = first + index // pixels
        weight = tl.load(weight_ptr + channel, mask=mask, other=0.0)
        normed = (x - mean) * scale * weight + tl.load(bias_ptr + channel, mask=mask, other=0.0)
        tl.store(out_ptr + base + index, normed / (1.0 + tl.exp(-normed)), mask=mask)


class ModelNew(nn.Module):
    """``silu(norm(x))``.

    Args:
        groups: of channels.
        channels: of the images.
    """

    def __init__(self, groups: int, channels: int) -> None:
        super().__init__()
        self.norm = nn.GroupNorm(groups, channels)  # Holds weight and bias under the names that Model gives them.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of ``[batch, channels, height, width]``."""
        x = x.contiguous()
        batch, channels, height, width = x.shape
        groups = self.norm.num_groups
        out = torch.empty_like(x)
        group_norm_silu_kernel[(batch * groups,)](
            out, x, self.norm.weight, self.norm.bias, groups, channels // groups, height * width, 1e-5, BLOCK=1024
        )
        return out
