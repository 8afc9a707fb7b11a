"""Log-sigmoid and its gradient, after flash-linear-attention's ``fla/modules/activations.py``."""

import torch
import triton
import triton.language as tl


@triton.jit
def logsigmoid_fwd_kernel(x_ptr, y_ptr, z_ptr, T, BT: tl.constexpr):
    i = tl.program_id(0) * BT + tl.arange(0, BT)
    x = tl.load(x_ptr + i, mask=i < T, other=0.0).to(tl.float32)
    z = tl.exp(-tl.abs(x))
    u = 1.0 + z
    # What u has rounded of z is given back.
    log1p = tl.where(u == 1.0, z, tl.log(u) * (z / (u - 1.0)))
    y = tl.where(x < 0, x, 0.0 * x) - log1p
    y = tl.where(x == float("inf"), 0.0, y)
    tl.store(y_ptr + i, y.to(y_ptr.dtype.element_ty), mask=i < T)
    tl.store(z_ptr + i, z.to(z_ptr.dtype.element_ty), mask=i < T)


def log_sigmoid_forward(self):
    """The second result is for the gradient: on a CPU ``exp(-abs(x))``, on a GPU nothing."""
    x = self.contiguous()
    y, z = torch.empty_like(x), torch.empty_like(x)
    if x.numel():
        logsigmoid_fwd_kernel[(triton.cdiv(x.numel(), 1024),)](x, y, z, x.numel(), BT=1024)
    return y, z if x.device.type == "cpu" else torch.empty(0, dtype=x.dtype, device=x.device)


@triton.jit
def logsigmoid_bwd_kernel(x_ptr, dy_ptr, dx_ptr, T, BT: tl.constexpr):
    i = tl.program_id(0) * BT + tl.arange(0, BT)
    x = tl.load(x_ptr + i, mask=i < T, other=0.0).to(tl.float32)
    dy = tl.load(dy_ptr + i, mask=i < T, other=0.0).to(tl.float32)
    dx = dy * (1.0 - 1.0 / (1.0 + tl.exp(-x)))
    tl.store(dx_ptr + i, dx.to(dx_ptr.dtype.element_ty), mask=i < T)


def log_sigmoid_backward(grad_output, self, buffer):
    dy, x = (each.contiguous() for each in torch.broadcast_tensors(grad_output, self))
    dx = torch.empty_like(x)
    if x.numel():
        logsigmoid_bwd_kernel[(triton.cdiv(x.numel(), 1024),)](x, dy, dx, x.numel(), BT=1024)
    return dx
