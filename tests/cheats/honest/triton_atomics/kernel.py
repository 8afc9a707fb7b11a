import torch
import triton
import triton.language as tl


@triton.jit
def trace(x_ptr, out_ptr, n, step, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i * step, mask=i < n, other=0.0)
    tl.atomic_add(out_ptr, tl.sum(x, axis=0))


def trace__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    out = torch.zeros((), dtype=self.dtype, device=self.device)
    n = min(self.shape)
    if n:
        trace[(triton.cdiv(n, 4),)](self, out, n, self.stride(0) + self.stride(1), BLOCK=4)
    return out
