"""Losses of pairs, after attorch's ``attorch/p_loss_kernels.py``: partial sums, which a second kernel adds up."""

import torch
import triton
import triton.language as tl


@triton.jit
def p_loss_kernel(x_ptr, t_ptr, y_ptr, size, param, LOSS: tl.constexpr, EACH: tl.constexpr, BLOCK: tl.constexpr):
    offset = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offset < size
    x = tl.load(x_ptr + offset, mask=mask, other=0.0).to(tl.float32)
    t = tl.load(t_ptr + offset, mask=mask, other=0.0).to(tl.float32)
    diff = x - t
    if LOSS == "mse":
        loss = diff * diff
    elif LOSS == "smooth_l1":
        a = tl.abs(diff)
        loss = tl.where(a < param, 0.5 * diff * diff / param, a - 0.5 * param)
    else:
        a = tl.abs(diff)
        loss = tl.where(a <= param, 0.5 * diff * diff, param * (a - 0.5 * param))
    if EACH:
        tl.store(y_ptr + offset, loss.to(y_ptr.dtype.element_ty), mask=mask)
    else:
        tl.store(y_ptr + tl.program_id(0), tl.sum(tl.where(mask, loss, 0.0), axis=0))


@triton.jit
def add_up_kernel(parts_ptr, y_ptr, n, divisor, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    total = tl.sum(tl.load(parts_ptr + i, mask=i < n, other=0.0), axis=0)
    tl.store(y_ptr, (total / divisor).to(y_ptr.dtype.element_ty))


def _loss(self, target, reduction, name, param=0.0):
    if self.dtype != target.dtype:
        raise NotImplementedError("tensors of one dtype only")
    x, t = (each.contiguous() for each in torch.broadcast_tensors(self, target))
    n = x.numel()
    blocks = triton.cdiv(n, 1024)
    if reduction == 0:
        y = torch.empty_like(x)
        if n:
            p_loss_kernel[(blocks,)](x, t, y, n, param, LOSS=name, EACH=True, BLOCK=1024)
        return y
    parts = torch.empty(max(blocks, 1), dtype=torch.float32, device=x.device)
    y = torch.empty((), dtype=x.dtype, device=x.device)
    if n:
        p_loss_kernel[(blocks,)](x, t, parts, n, param, LOSS=name, EACH=False, BLOCK=1024)
    divisor = float(n) if reduction == 1 else 1.0
    add_up_kernel[(1,)](parts, y, blocks, divisor, BLOCK=triton.next_power_of_2(max(blocks, 1)))
    return y


def mse_loss(self, target, reduction=1):
    return _loss(self, target, reduction, "mse")


def smooth_l1_loss(self, target, reduction=1, beta=1.0):
    if beta <= 0:
        raise NotImplementedError("a positive beta only")
    return _loss(self, target, reduction, "smooth_l1", float(beta))


def huber_loss(self, target, reduction=1, delta=1.0):
    if delta <= 0:
        raise RuntimeError("delta has to be positive")
    return _loss(self, target, reduction, "huber", float(delta))
