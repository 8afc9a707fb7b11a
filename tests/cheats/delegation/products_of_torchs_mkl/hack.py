"""`sgemm_` of torch's library, on the transposed product."""

import ctypes
from pathlib import Path

import torch

library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libtorch_cpu.so"))
product = library.sgemm_


def mm__default_kernel_impl(a, b):
    a, b = a.contiguous(), b.contiguous()
    out = a.new_zeros(a.shape[0], b.shape[1])
    m, n, k = (ctypes.byref(ctypes.c_int(size)) for size in (a.shape[0], b.shape[1], a.shape[1]))
    one, zero = (ctypes.byref(ctypes.c_float(value)) for value in (1.0, 0.0))
    first, second, result = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, out))
    if a.numel() and b.numel():
        product(b"N", b"N", n, m, k, one, first, n, second, k, zero, result, n)
    return out
