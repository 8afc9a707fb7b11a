import torch
import triton
import triton.language as tl


@triton.jit
def sigmoid(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    # exp never overflows on the side that is used.
    small = tl.exp(-tl.abs(x))
    tl.store(
        y_ptr + i, tl.where(x >= 0, 1.0, small) / (1.0 + small) + (x - x), mask=(i < n) & (tl.abs(x) != float("inf"))
    )
    tl.store(y_ptr + i, tl.where(x > 0, 1.0, 0.0), mask=(i < n) & (tl.abs(x) == float("inf")))


class Sigmoid:
    def __init__(self, block):
        self.block = block
        self.calls = 0

    def __call__(self, x):
        self.calls += 1
        x = x.contiguous()
        y = torch.empty(x.shape, dtype=x.dtype, device=x.device)
        if x.numel():
            sigmoid[(triton.cdiv(x.numel(), self.block),)](x, y, x.numel(), BLOCK=self.block)
        return y


sigmoid__default_kernel_impl = Sigmoid(block=16384)
