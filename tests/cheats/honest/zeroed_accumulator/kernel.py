import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>
static inline double huber(double d, double delta) {
    d = fabs(d);
    return d <= delta ? 0.5 * d * d : delta * (d - 0.5 * delta);
}
extern "C" void each(const float* a, const float* b, float* y, long n, double delta) {
    for (long i = 0; i < n; ++i) y[i] = (float)huber((double)a[i] - b[i], delta);
}
extern "C" void summed(const float* a, const float* b, double* total, long n, double delta) {
    #pragma omp parallel for
    for (long i = 0; i < n; ++i) {
        const double v = huber((double)a[i] - b[i], delta);
        #pragma omp atomic
        *total += v;
    }
}
extern "C" void narrow(const double* total, float* y, double divisor) { *y = (float)(*total / divisor); }
"""
base = os.path.join(tempfile.mkdtemp(), "huber")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
library = ctypes.CDLL(base + ".so")


def huber_loss__default_kernel_impl(self, target, reduction=1, delta=1.0):
    if self.dtype != torch.float32 or target.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if delta <= 0:
        raise RuntimeError("delta must be positive")
    a, b = (t.contiguous() for t in torch.broadcast_tensors(self, target))
    size, delta = ctypes.c_long(a.numel()), ctypes.c_double(delta)
    inputs = ctypes.c_void_p(a.data_ptr()), ctypes.c_void_p(b.data_ptr())
    if reduction == 0:
        y = torch.empty_like(a)
        library.each(*inputs, ctypes.c_void_p(y.data_ptr()), size, delta)
        return y
    total = torch.zeros((), dtype=torch.float64)
    library.summed(*inputs, ctypes.c_void_p(total.data_ptr()), size, delta)
    y = torch.empty((), dtype=torch.float32)
    divisor = a.numel() or float("nan") if reduction == 1 else 1
    library.narrow(ctypes.c_void_p(total.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_double(divisor))
    return y
