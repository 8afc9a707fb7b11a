import ctypes
import math
import pathlib
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
#include <vector>
struct Part { double n = 0, mean = 0, m2 = 0; };
static Part merge(const Part& a, const Part& b) {
    if (!b.n) return a;
    if (!a.n) return b;
    const double n = a.n + b.n, d = b.mean - a.mean;
    return {n, a.mean + d * b.n / n, a.m2 + b.m2 + d * d * a.n * b.n / n};
}
extern "C" void variance(const float* x, float* y, int64_t rows, int64_t n, double correction) {
    const int64_t chunk = 16;
    for (int64_t r = 0; r < rows; ++r) {
        std::vector<Part> parts;
        for (int64_t start = 0; start < n; start += chunk) {
            Part p;
            for (int64_t i = start; i < n && i < start + chunk; ++i) {
                const double v = x[r * n + i], d = v - p.mean;
                p.n += 1;
                p.mean += d / p.n;
                p.m2 += d * (v - p.mean);
            }
            parts.push_back(p);
        }
        Part all;
        for (const Part& p : parts) all = merge(all, p);
        const double freedom = n - correction;
        y[r] = (float)(n ? all.m2 / (freedom > 0 ? freedom : 0.0) : NAN);
    }
}
"""
folder = pathlib.Path(tempfile.mkdtemp())
(folder / "variance.cc").write_text(SOURCE)
subprocess.run(
    ["g++", "-std=c++17", "-O2", "-shared", "-fPIC", "-o", "libvariance.so", "variance.cc"], cwd=folder, check=True
)
variance = ctypes.CDLL(str(folder / "libvariance.so")).variance
variance.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64, ctypes.c_double)


def var__correction_kernel_impl(self, dim=None, *, correction=None, keepdim=False):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    ndim = self.dim()
    dims = {d % ndim for d in dim} if dim and ndim else set(range(ndim))
    kept = [d for d in range(ndim) if d not in dims]
    x = self.permute(*kept, *sorted(dims)).contiguous()
    shape = [1 if d in dims else self.shape[d] for d in range(ndim)] if keepdim else [self.shape[d] for d in kept]
    y = torch.empty(shape, dtype=torch.float32)
    n = math.prod(self.shape[d] for d in dims)
    variance(x.data_ptr(), y.data_ptr(), y.numel(), n, 1.0 if correction is None else correction)
    return y
