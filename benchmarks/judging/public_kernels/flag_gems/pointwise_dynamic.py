"""Elementwise launches after FlagGems' ``utils/pointwise_dynamic.py``: one kernel for any function of scalars.

Tensors that share a dense layout are walked in the order of memory; others are broadcast and made contiguous first.
Half types are computed in float32.
"""

import torch
import triton
import triton.language as tl

BLOCK = 1024


@triton.jit
def one_tensor(x_ptr, y_ptr, n, first, second, third, FN: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    y = FN(x.to(tl.float32), first, second, third)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def two_tensors(a_ptr, b_ptr, y_ptr, n, first, second, third, FN: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a = tl.load(a_ptr + i, mask=i < n, other=0.0)
    b = tl.load(b_ptr + i, mask=i < n, other=0.0)
    y = FN(a.to(tl.float32), b.to(tl.float32), first, second, third)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


@triton.jit
def three_tensors(a_ptr, b_ptr, c_ptr, y_ptr, n, first, second, third, FN: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    a = tl.load(a_ptr + i, mask=i < n, other=0.0)
    b = tl.load(b_ptr + i, mask=i < n, other=0.0)
    c = tl.load(c_ptr + i, mask=i < n, other=0.0)
    y = FN(a.to(tl.float32), b.to(tl.float32), c.to(tl.float32), first, second, third)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < n)


KERNELS = {1: one_tensor, 2: two_tensors, 3: three_tensors}


def dense(x):
    """Whether elements fill their memory without gaps or overlaps."""
    expected = 1
    for stride, size in sorted((s, n) for s, n in zip(x.stride(), x.shape, strict=True) if n != 1):
        if stride != expected:
            return False
        expected *= size
    return True


def pointwise(function, *tensors, scalars=(), dtype=None):
    """Apply a function of numbers to tensors, which are broadcast against each other."""
    if len(tensors) > 1:
        tensors = torch.broadcast_tensors(*tensors)
    first = tensors[0]
    if dense(first) and all(each.stride() == first.stride() for each in tensors):
        y = torch.empty_like(first, dtype=dtype or first.dtype)
        if y.stride() != first.stride():
            y = torch.empty_strided(first.shape, first.stride(), dtype=y.dtype, device=y.device)
    else:
        tensors = [each.contiguous() for each in tensors]
        y = torch.empty(first.shape, dtype=dtype or first.dtype, device=first.device)
    n = y.numel()
    if n:
        numbers = [float(each) for each in scalars] + [0.0] * (3 - len(scalars))
        grid = (triton.cdiv(n, BLOCK),)
        KERNELS[len(tensors)][grid](*tensors, y, n, *numbers, FN=function, SIZE=BLOCK)
    return y
