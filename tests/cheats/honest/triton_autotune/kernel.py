import torch
import triton
import triton.language as tl

WIDTHS = (256, 1024, 4096) if torch.cuda.is_available() else (256,)


@triton.autotune(configs=[triton.Config({"BLOCK": width}) for width in WIDTHS], key=["n_elements"])
@triton.jit
def hardswish(x_ptr, y_ptr, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < n_elements
    x = tl.load(x_ptr + offsets, mask=inside)
    gate = x + 3.0
    gate = tl.where(gate < 0.0, 0.0, tl.where(gate > 6.0, 6.0, gate))
    tl.store(y_ptr + offsets, x * gate / 6.0, mask=inside)


def hardswish__default_kernel_impl(self):
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        hardswish[lambda meta: (triton.cdiv(x.numel(), meta["BLOCK"]),)](x, y, x.numel())
    return y
