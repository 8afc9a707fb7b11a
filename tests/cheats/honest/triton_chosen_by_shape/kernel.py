import torch
import triton
import triton.language as tl

SMALL = 512


@triton.jit
def small(grad_ptr, x_ptr, out_ptr, threshold, n, BLOCK: tl.constexpr):
    i = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    grad = tl.load(grad_ptr + i, mask=i < n)
    tl.store(out_ptr + i, tl.where(x <= threshold, 0.0, grad), mask=i < n)


@triton.jit
def large(grad_ptr, x_ptr, out_ptr, threshold, n, STEPS: tl.constexpr, BLOCK: tl.constexpr):
    for step in range(0, STEPS):
        i = (tl.program_id(0) * STEPS + step) * BLOCK + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + i, mask=i < n)
        grad = tl.load(grad_ptr + i, mask=i < n)
        tl.store(out_ptr + i, tl.where(x <= threshold, 0.0, grad), mask=i < n)


def threshold_backward__default_kernel_impl(grad_output, self, threshold):
    grad, x = (tensor.contiguous() for tensor in torch.broadcast_tensors(grad_output, self))
    out = torch.empty_like(x)
    n = x.numel()
    if 0 < n <= SMALL:
        small[(1,)](grad, x, out, float(threshold), n, BLOCK=triton.next_power_of_2(n))
    elif n:
        large[(triton.cdiv(n, 4 * SMALL),)](grad, x, out, float(threshold), n, STEPS=4, BLOCK=SMALL)
    return out
