"""Writes far outside of its output: an illegal memory access that loses the CUDA context."""

import torch
import triton
import triton.language as tl


@triton.jit
def _store_far_away(out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + (1 << 44) + offsets, 1.0, mask=offsets < n)


def exp__default_kernel_impl(self):
    out = torch.empty_like(self)
    _store_far_away[(1,)](out, max(out.numel(), 1), BLOCK=128)
    return out
