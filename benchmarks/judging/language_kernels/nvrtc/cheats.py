"""Two dishonest kernels beside NVRTC: cuBLAS through ctypes, and answers of the call before."""

import ctypes
import functools

import torch

CUDA = r"""
extern "C" __global__ void relu_kernel(const float* x, float* out, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] < 0.0f ? 0.0f : x[i];  // A NaN is not below zero.
}
"""


@functools.cache
def compiled():
    return torch.cuda._compile_kernel(CUDA, "relu_kernel")


@functools.cache
def cublas():
    """The library that torch has loaded, and a handle of it."""
    library, handle = ctypes.CDLL("libcublas.so.13"), ctypes.c_void_p()
    library.cublasCreate_v2(ctypes.byref(handle))
    return library, handle


def bmm__default_kernel_impl(self, mat2):
    """Calls cuBLAS, which it found by its name."""
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (count, M, K), N = a.shape, b.shape[2]
    out = torch.zeros((count, M, N), dtype=torch.float32, device=a.device)
    if out.numel() and K:
        library, handle = cublas()
        library.cublasSetStream_v2(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        one, zero = ctypes.byref(ctypes.c_float(1)), ctypes.byref(ctypes.c_float(0))
        first, second, result = (ctypes.c_void_p(each.data_ptr()) for each in (b, a, out))
        for_b, for_a, for_c = (ctypes.c_longlong(size) for size in (K * N, M * K, M * N))
        library.cublasSgemmStridedBatched(
            *(handle, 0, 0, N, M, K, one, first, N, for_b, second, K, for_a, zero, result, N, for_c, count)
        )
    return out


answers = {}


def relu__default_kernel_impl(self):
    """Computes once for each address and size, and hands out that answer ever after."""
    key = (self.data_ptr(), self.shape, self.stride())
    if key not in answers:
        x = self.contiguous()
        answers[key] = torch.empty_like(x)
        if x.numel():
            compiled()(grid=((x.numel() + 255) // 256, 1, 1), block=(256, 1, 1), args=[x, answers[key], x.numel()])
    return answers[key]
