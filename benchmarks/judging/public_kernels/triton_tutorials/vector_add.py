"""A sum of two vectors, after the Triton tutorial ``01-vector-add.py``, with ``alpha`` and broadcasting."""

import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, alpha, BLOCK_SIZE: tl.constexpr):
    offsets = tl.program_id(axis=0) * BLOCK_SIZE + tl.arange(0, BLOCK_SIZE)
    mask = offsets < n
    x = tl.load(x_ptr + offsets, mask=mask).to(tl.float32)
    y = tl.load(y_ptr + offsets, mask=mask).to(tl.float32)
    tl.store(out_ptr + offsets, (x + y * alpha).to(out_ptr.dtype.element_ty), mask=mask)


def sub(self, other, *, alpha=1):
    """The tutorial's kernel knows vectors: whatever is no dense vector becomes one first."""
    like = self if isinstance(self, torch.Tensor) else other
    if not isinstance(like, torch.Tensor):
        raise NotImplementedError("two numbers")
    self, other = (
        each if isinstance(each, torch.Tensor) else torch.full((), each, dtype=like.dtype, device=like.device)
        for each in (self, other)
    )
    if self.dtype != other.dtype:
        raise NotImplementedError("tensors of one dtype only")
    x, y = (each.contiguous() for each in torch.broadcast_tensors(self, other))
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        add_kernel[(triton.cdiv(out.numel(), 1024),)](x, y, out, out.numel(), -float(alpha), BLOCK_SIZE=1024)
    return out
