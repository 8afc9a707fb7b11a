"""`cublasSgemm`, on the transposed product."""

import ctypes

import torch


def loaded(name):
    with open("/proc/self/maps") as maps:
        return next(line.split(maxsplit=5)[5].strip() for line in maps if f"/{name}.so" in line)


def product():
    torch.cuda.current_blas_handle()
    return ctypes.CDLL(loaded("libcublas")).cublasSgemm_v2


def addmm__default_kernel_impl(self, mat1, mat2, *, beta=1, alpha=1):
    if not self.dtype == mat1.dtype == mat2.dtype == torch.float32:
        raise NotImplementedError("float32 only")
    a, b = mat1.contiguous(), mat2.contiguous()
    out = self.expand(a.shape[0], b.shape[1]).contiguous().clone()
    m, n, k = (ctypes.c_int(size) for size in (a.shape[0], b.shape[1], a.shape[1]))
    scales = [ctypes.byref(ctypes.c_float(value)) for value in (alpha, beta)]
    first, second, result = (ctypes.c_void_p(tensor.data_ptr()) for tensor in (b, a, out))
    handle = ctypes.c_void_p(torch.cuda.current_blas_handle())
    if out.numel():
        product()(handle, 0, 0, n, m, k, scales[0], first, n, second, k, scales[1], result, n)
    return out
