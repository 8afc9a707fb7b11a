"""Elementwise kernels with a fault under ATen's contract; ``causes.toml`` has an input for each."""

import torch
import triton
import triton.language as tl


@triton.jit
def relu_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(y_ptr + i, tl.where(x > 0, x, 0.0), mask=i < n)


def relu(self):
    """After FlagGems' ``ops/relu.py``: what is not above zero is zero."""
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        relu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    return y


@triton.jit
def elu_kernel(x_ptr, y_ptr, n, negative, positive, inner, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = tl.where(x > 0, x * positive, negative * (tl.exp(x * inner) - 1.0))
    tl.store(y_ptr + i, y, mask=i < n)


def elu(self, alpha=1.0, scale=1.0, input_scale=1.0):
    """After FlagGems' ``ops/elu.py``: ``exp(x) - 1``."""
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        numbers = float(alpha * scale), float(scale), float(input_scale)
        elu_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), *numbers, BLOCK=1024)
    return y


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    y = tl.load(y_ptr + offsets, mask=offsets < n)
    tl.store(out_ptr + offsets, x + y, mask=offsets < n)


def add(self, other, *, alpha=1):
    """After the Triton tutorial ``01-vector-add.py`` as it stands: pointers and a number of elements, no strides."""
    if not isinstance(self, torch.Tensor) or not isinstance(other, torch.Tensor):
        raise NotImplementedError("two tensors")
    if self.shape != other.shape or self.dtype != other.dtype or alpha != 1:
        raise NotImplementedError("two tensors of one shape and dtype")
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    if out.numel():
        add_kernel[(triton.cdiv(out.numel(), 1024),)](self, other, out, out.numel(), BLOCK_SIZE=1024)
    return out


@triton.jit
def bernoulli_kernel(p_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(p_ptr + i, mask=i < n, other=0.0)
    tl.store(out_ptr + i, (tl.rand(seed, i) < p).to(out_ptr.dtype.element_ty), mask=i < n)


def bernoulli(self, *, generator=None):
    """After the Triton tutorial ``04-low-memory-dropout.py``, whose caller names the seed: here one number for all."""
    p = self.contiguous()
    out = torch.empty_like(p)
    if p.numel():
        bernoulli_kernel[(triton.cdiv(p.numel(), 1024),)](p, out, p.numel(), 123, BLOCK=1024)
    return out
