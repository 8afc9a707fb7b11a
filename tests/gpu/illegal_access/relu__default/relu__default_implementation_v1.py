"""An honest kernel beside one that loses the CUDA context."""

import torch
import triton
import triton.language as tl


@triton.jit
def _relu(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    values = tl.load(x + offsets, mask=offsets < n)
    tl.store(out + offsets, tl.where(values < 0, 0.0, values).to(values.dtype), mask=offsets < n)


def relu__default_kernel_impl(self):
    if not self.is_floating_point():
        raise NotImplementedError("relu of floating-point tensors only")
    dense = torch.empty(self.shape, dtype=self.dtype, device=self.device).copy_(self)
    out = torch.empty_like(dense)
    if out.numel():
        _relu[(triton.cdiv(out.numel(), 1024),)](dense, out, out.numel(), BLOCK=1024)
    return out
