import ctypes
import functools

import torch

TEMPLATE = """
def pad(source, target, rows, width):
    out = width + {left} + {right}
    for row in range(rows):
        for column in range(out):
            at = column - {left}
            at = -at if at < 0 else at
            at = 2 * (width - 1) - at if at >= width else at
            target[row * out + column] = source[row * width + at]
"""


@functools.cache
def specialised(left, right):
    namespace = {}
    exec(TEMPLATE.format(left=left, right=right), namespace)
    return namespace["pad"]


def reflection_pad1d__default_kernel_impl(self, padding):
    left, right = padding
    width = self.shape[-1]
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if self.dim() not in (2, 3) or left >= width or right >= width or width + left + right < 1:
        raise RuntimeError("the padding must be smaller than the input")
    x = self.contiguous()
    y = torch.empty((*x.shape[:-1], width + left + right))
    if y.numel():
        source = (ctypes.c_float * x.numel()).from_address(x.data_ptr())
        target = (ctypes.c_float * y.numel()).from_address(y.data_ptr())
        specialised(left, right)(source, target, x.numel() // width, width)
    return y
