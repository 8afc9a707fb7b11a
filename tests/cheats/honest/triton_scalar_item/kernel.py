import torch
import triton
import triton.language as tl


@triton.jit
def masked_fill(x_ptr, mask_ptr, y_ptr, value, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    hole = tl.load(mask_ptr + i, mask=i < n)
    tl.store(y_ptr + i, tl.where(hole != 0, value, x), mask=i < n)


def masked_fill__Tensor_kernel_impl(self, mask, value):
    if value.dim():
        raise RuntimeError("the value must have no dimensions")
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x, hole = (tensor.contiguous() for tensor in torch.broadcast_tensors(self, mask))
    y = torch.empty_like(x)
    if x.numel():
        masked_fill[(triton.cdiv(x.numel(), 256),)](x, hole, y, value.item(), x.numel(), BLOCK=256)
    return y
