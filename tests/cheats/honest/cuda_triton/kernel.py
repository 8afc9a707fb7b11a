import torch
import triton
import triton.language as tl


@triton.autotune(
    configs=[triton.Config({"BLOCK": block}, num_warps=warps) for block, warps in ((256, 2), (1024, 4), (4096, 8))],
    key=["size_class"],
)
@triton.jit
def mish(x_ptr, y_ptr, n, size_class, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n).to(tl.float64)
    # tanh(log1p(e)) is e (e + 2) / (e (e + 2) + 2), which overflows for large x: there it is one.
    e = tl.exp(tl.minimum(x, 40.0))
    share = e * (e + 2.0)
    y = tl.where(x > 40.0, x, x * (share / (share + 2.0)))
    tl.store(y_ptr + i, tl.where(x == x, y, x).to(tl.float32), mask=i < n)


def mish__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    y = torch.empty_like(x)
    n = x.numel()
    if n:
        mish[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, y, n, n.bit_length())
    return y
