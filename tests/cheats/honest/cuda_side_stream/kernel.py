import torch
import triton
import triton.language as tl

streams = {}


@triton.jit
def silu(x_ptr, y_ptr, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + i, mask=i < n)
    tl.store(y_ptr + i, x / (1.0 + tl.exp(-x)), mask=i < n)


def silu__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    y = torch.empty_like(x)
    if not x.numel():
        return y
    caller = torch.cuda.current_stream(x.device)
    side = streams.setdefault(x.device, torch.cuda.Stream(x.device))
    side.wait_stream(caller)
    with torch.cuda.stream(side):
        silu[(triton.cdiv(x.numel(), 1024),)](x, y, x.numel(), BLOCK=1024)
    for tensor in (x, y):
        tensor.record_stream(side)
    caller.wait_stream(side)
    return y
