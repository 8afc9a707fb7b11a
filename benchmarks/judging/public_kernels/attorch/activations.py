"""Activations by name, one kernel for all, after attorch's ``attorch/act_kernels.py`` and ``glu_kernels.py``."""

import torch
import triton
import triton.language as tl


@triton.jit
def act_forward_kernel(x_ptr, y_ptr, size, low, high, ACT: tl.constexpr, BLOCK: tl.constexpr):
    offset = tl.program_id(axis=0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offset, mask=offset < size, other=0.0).to(tl.float32)
    # min(max(x, 0), 6) in which NaN stays.
    six = x + 3.0
    six = tl.where(six < 0.0, 0.0, tl.where(six > 6.0, 6.0, six))
    if ACT == "hardsigmoid":
        y = six / 6.0
    elif ACT == "hardswish":
        y = x * six / 6.0
    elif ACT == "hardtanh":
        y = tl.where(x < low, low, tl.where(x > high, high, x))
    elif ACT == "hardshrink":
        y = tl.where((x >= -low) & (x <= low), 0.0, x)
    elif ACT == "softshrink":
        y = tl.where(x > low, x - low, tl.where(x < -low, x + low, x * 0.0))
    elif ACT == "mish":
        # tanh(log(1 + e)) = (e e + 2 e) / (e e + 2 e + 2), and x where e is large.
        e = tl.exp(x)
        top = e * (e + 2.0)
        y = tl.where(x > 20.0, x, x * (top / (top + 2.0)))
    tl.store(y_ptr + offset, y.to(y_ptr.dtype.element_ty), mask=offset < size)


def _act(x, name, low=0.0, high=0.0):
    x = x.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        act_forward_kernel[(triton.cdiv(x.numel(), 1024),)](
            x, y, x.numel(), float(low), float(high), ACT=name, BLOCK=1024
        )
    return y


def hardsigmoid(self):
    return _act(self, "hardsigmoid")


def hardswish(self):
    return _act(self, "hardswish")


def hardtanh(self, min_val=-1, max_val=1):
    if min_val > max_val:
        raise NotImplementedError("bounds in order only")
    return _act(self, "hardtanh", min_val, max_val)


def hardshrink(self, lambd=0.5):
    return _act(self, "hardshrink", lambd)


def softshrink(self, lambd=0.5):
    if lambd < 0:
        raise RuntimeError("lambda may not be negative")
    return _act(self, "softshrink", lambd)


def mish(self):
    return _act(self, "mish")


@triton.jit
def glu_forward_kernel(x_ptr, y_ptr, n, half, inner, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    outer, rest = i // (half * inner), i % (half * inner)
    first = outer * 2 * half * inner + rest
    a = tl.load(x_ptr + first, mask=i < n, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + first + half * inner, mask=i < n, other=0.0).to(tl.float32)
    tl.store(y_ptr + i, (a / (1.0 + tl.exp(-b))).to(y_ptr.dtype.element_ty), mask=i < n)


def _halves(x, dim):
    dim = dim % x.dim()
    inner = 1
    for n in x.shape[dim + 1 :]:
        inner *= n
    if x.shape[dim] % 2:
        raise RuntimeError("two halves are needed")
    return dim, x.shape[dim] // 2, inner


def glu(self, dim=-1):
    if self.dim() == 0:
        raise RuntimeError("a dimension is needed")
    dim, half, inner = _halves(self, dim)
    x = self.contiguous()
    y = torch.empty([half if d == dim else n for d, n in enumerate(self.shape)], dtype=x.dtype, device=x.device)
    if y.numel():
        glu_forward_kernel[(triton.cdiv(y.numel(), 1024),)](x, y, y.numel(), half, inner, BLOCK=1024)
    return y


@triton.jit
def glu_backward_kernel(dy_ptr, x_ptr, dx_ptr, n, half, inner, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    outer, rest = i // (half * inner), i % (half * inner)
    first = outer * 2 * half * inner + rest
    a = tl.load(x_ptr + first, mask=i < n, other=0.0).to(tl.float32)
    b = tl.load(x_ptr + first + half * inner, mask=i < n, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < n, other=0.0).to(tl.float32)
    s = 1.0 / (1.0 + tl.exp(-b))
    tl.store(dx_ptr + first, (dy * s).to(dx_ptr.dtype.element_ty), mask=i < n)
    tl.store(dx_ptr + first + half * inner, (dy * a * s * (1.0 - s)).to(dx_ptr.dtype.element_ty), mask=i < n)


def glu_backward(grad_output, self, dim):
    _, half, inner = _halves(self, dim)
    dy, x = grad_output.contiguous(), self.contiguous()
    dx = torch.empty_like(x)
    if dy.numel():
        glu_backward_kernel[(triton.cdiv(dy.numel(), 1024),)](dy, x, dx, dy.numel(), half, inner, BLOCK=1024)
    return dx
