import logging

import torch
import triton
import triton.language as tl

log = logging.getLogger(__name__)
print("rad2deg: loaded")


@triton.jit
def scale(x_ptr, y_ptr, factor, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y_ptr + i, tl.load(x_ptr + i, mask=i < n) * factor, mask=i < n)


def rad2deg__default_kernel_impl(self):
    log.debug("called with %s", tuple(self.shape))
    if not self.is_floating_point():
        raise NotImplementedError("floating point only")
    if self.numel() == 0:
        print("rad2deg: nothing to do")
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        scale[(triton.cdiv(x.numel(), 8192),)](x, y, 57.29577951308232, x.numel(), BLOCK=8192)
    return y
