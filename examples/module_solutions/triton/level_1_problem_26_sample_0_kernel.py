"""RMSNorm of bfloat16 rows in Triton, summed in float32: each row is read and written once."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rms_norm_kernel(out_ptr, x_ptr, weight_ptr, width, epsilon, BLOCK: tl.constexpr):
    """One row; BLOCK holds all of it."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    mask = column < width
    x = tl.load(x_ptr + row * width + column, mask=mask, other=0.0).to(tl.float32)
    weight = tl.load(weight_ptr + column, mask=mask, other=0.0).to(tl.float32)
    out = x / tl.sqrt(tl.sum(x * x) / width + epsilon) * weight
    tl.store(out_ptr + row * width + column, out.to(out_ptr.dtype.element_ty), mask=mask)


class ModelNew(nn.Module):
    """``x / rms(x) * weight``.

    Args:
        width: of a row.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-6, dtype=torch.bfloat16)  # Holds the weight under Model's name.

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of ``[tokens, width]``."""
        x = x.contiguous()
        out = torch.empty_like(x)
        block = triton.next_power_of_2(x.shape[-1])
        rms_norm_kernel[(x.shape[0],)](out, x, self.norm.weight, x.shape[-1], 1e-6, BLOCK=block)
        return out
