import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
template <typename T>
static void log_softmax(const T* x, T* y, int64_t outer, int64_t n, int64_t inner) {
    for (int64_t r = 0; r < outer * inner; ++r) {
        const int64_t base = r / inner * n * inner + r % inner;
        double top = -INFINITY, total = 0;
        for (int64_t i = 0; i < n; ++i) {
            const double v = x[base + i * inner];
            if (v > top) { total = total * (top == -INFINITY ? 0 : std::exp(top - v)) + 1; top = v; }
            else if (v != -INFINITY) total += std::exp(v - top);
        }
        const double shift = top + std::log(total);
        for (int64_t i = 0; i < n; ++i)
            y[base + i * inner] = std::isinf(top) ? NAN : T(x[base + i * inner] - shift);
    }
}
extern "C" void run_float(const float* x, float* y, int64_t o, int64_t n, int64_t i) { log_softmax(x, y, o, n, i); }
extern "C" void run_double(const double* x, double* y, int64_t o, int64_t n, int64_t i) { log_softmax(x, y, o, n, i); }
"""
base = os.path.join(tempfile.mkdtemp(), "log_softmax")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
library = ctypes.CDLL(base + ".so")
FUNCTIONS = {torch.float32: library.run_float, torch.float64: library.run_double}


def _log_softmax__default_kernel_impl(self, dim, half_to_float):
    if half_to_float or self.dtype not in FUNCTIONS:
        raise NotImplementedError("float32 and float64 only")
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        n, inner = (x.shape[dim], x.stride(dim)) if x.dim() else (1, 1)
        sizes = map(ctypes.c_int64, (x.numel() // (n * inner), n, inner))
        FUNCTIONS[x.dtype](ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), *sizes)
    return y
