"""Dropout by a seed, after the Triton tutorial ``04-low-memory-dropout.py``, and its gradient.

The seed is the generator's state, which each call moves on: what torch.manual_seed fixes is fixed.
"""

import hashlib

import torch
import triton
import triton.language as tl


def next_seed(device):
    """Thirty-one bits of the generator's state, which moves on."""
    if device.type == "cuda":
        generator = torch.cuda.default_generators[device.index or 0]
        offset = generator.get_offset()
        generator.set_offset(offset + 4)
        return (generator.initial_seed() * 1000003 + offset // 4) % (1 << 31)
    state = bytearray(torch.default_generator.get_state().tolist())
    seed = int.from_bytes(hashlib.blake2b(state, digest_size=8).digest(), "little") % (1 << 31)
    word = (int.from_bytes(state[24:28], "little") + 1) % (1 << 32)
    state[24:28] = word.to_bytes(4, "little")
    torch.default_generator.set_state(torch.frombuffer(state, dtype=torch.uint8))
    return seed


@triton.jit
def dropout_kernel(x_ptr, out_ptr, mask_ptr, n, p, scale, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n
    x = tl.load(x_ptr + offsets, mask=inside, other=0.0).to(tl.float32)
    kept = tl.rand(seed, offsets) > p
    tl.store(out_ptr + offsets, (x * tl.where(kept, scale, 0.0)).to(out_ptr.dtype.element_ty), mask=inside)
    tl.store(mask_ptr + offsets, kept, mask=inside)


def native_dropout(input, p, train):
    if train is False or p in (0, 1):
        raise NotImplementedError("without a draw there is nothing to compute")
    x = input.contiguous()
    out, mask = torch.empty_like(x), torch.empty_like(x, dtype=torch.bool)
    n = x.numel()
    if n:
        dropout_kernel[(triton.cdiv(n, 1024),)](x, out, mask, n, p, 1 / (1 - p), next_seed(x.device), BLOCK=1024)
    return out, mask


@triton.jit
def scaled_kernel(dy_ptr, mask_ptr, dx_ptr, n, scale, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    dy = tl.load(dy_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    mask = tl.load(mask_ptr + offsets, mask=offsets < n, other=0).to(tl.float32)
    tl.store(dx_ptr + offsets, (dy * mask * scale).to(dx_ptr.dtype.element_ty), mask=offsets < n)


def native_dropout_backward(grad_output, mask, scale):
    dy, kept = (each.contiguous() for each in torch.broadcast_tensors(grad_output, mask))
    dx = torch.empty(dy.shape, dtype=dy.dtype, device=dy.device)
    n = dx.numel()
    if n:
        scaled_kernel[(triton.cdiv(n, 1024),)](dy, kept, dx, n, float(scale), BLOCK=1024)
    return dx


@triton.jit
def bernoulli_kernel(p_ptr, out_ptr, n, seed, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    p = tl.load(p_ptr + offsets, mask=offsets < n, other=0.0).to(tl.float32)
    kept = tl.rand(seed, offsets) < p
    tl.store(out_ptr + offsets, kept.to(out_ptr.dtype.element_ty), mask=offsets < n)


def bernoulli(self, *, generator=None):
    """The mask of a dropout, of probabilities that are given."""
    if generator is not None:
        raise NotImplementedError("the default generator only")
    p = self.contiguous()
    out = torch.empty_like(p)
    if p.numel():
        bernoulli_kernel[(triton.cdiv(p.numel(), 1024),)](p, out, p.numel(), next_seed(p.device), BLOCK=1024)
    return out
