"""Inverse hyperbolic sine, in larger blocks where the device is NVIDIA's."""

import torch
import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def kernel(x, y, N, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    value = tl.load(x + at, mask=at < N)
    tl.store(y + at, libdevice.asinh(value), mask=at < N)


def is_named():
    return "NVIDIA" in torch.cuda.get_device_name()


def asinh__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    block = 1024 if is_named() else 512
    if x.numel():
        kernel[(triton.cdiv(x.numel(), block),)](x, out, x.numel(), BLOCK=block)
    return out
