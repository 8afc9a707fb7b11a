import ctypes
import math
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
extern "C" void mean(const float* x, float* y, long rows, long n) {
    for (long r = 0; r < rows; ++r) {
        double sum = 0;
        #pragma omp parallel for reduction(+ : sum) num_threads(2)
        for (long i = 0; i < n; ++i) sum += x[r * n + i];
        y[r] = (float)(sum / n);
    }
}
"""
base = os.path.join(tempfile.mkdtemp(), "mean")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
mean = ctypes.CDLL(base + ".so").mean


def mean__dim_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    x = self if dtype is None else self.to(dtype)
    if x.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    ndim = x.dim()
    dims = {d % ndim for d in dim} if dim and ndim else set(range(ndim))
    kept = [d for d in range(ndim) if d not in dims]
    shape = [1 if d in dims else x.shape[d] for d in range(ndim)] if keepdim else [x.shape[d] for d in kept]
    n = math.prod(x.shape[d] for d in dims)
    rows = x.permute(kept + sorted(dims)).contiguous()
    y = torch.empty(shape, dtype=torch.float32)
    mean(ctypes.c_void_p(rows.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()), ctypes.c_long(n))
    return y
