import torch
import triton
import triton.language as tl


@triton.jit
def leaky(x_ptr, y_ptr, slope, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.where(x > 0, x, x * slope), mask=i < n)


def make_entry(block):
    grids = {}

    def entry(self, negative_slope=0.01):
        x = self.contiguous()
        y = torch.empty_like(x)
        n = x.numel()
        if n:
            grid = grids.setdefault(n, ((n + block - 1) // block,))
            leaky[grid](x, y, float(negative_slope), n, BLOCK=block)
        return y

    return entry


leaky_relu__default_kernel_impl = make_entry(block=128)
