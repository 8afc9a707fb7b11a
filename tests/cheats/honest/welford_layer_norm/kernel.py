import ctypes
import math
import os
import pathlib
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y, float* mean, float* rstd,
                           int64_t rows, int64_t n, double eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * n;
        double m = 0, m2 = 0;
        for (int64_t i = 0; i < n; ++i) {
            double d = row[i] - m;
            m += d / (i + 1);
            m2 += d * (row[i] - m);
        }
        double s = 1.0 / std::sqrt(m2 / n + eps);
        for (int64_t i = 0; i < n; ++i)
            y[r * n + i] = (float)((row[i] - m) * s * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f));
        mean[r] = (float)m;
        rstd[r] = (float)s;
    }
}
"""


def _library():
    folder = pathlib.Path(tempfile.mkdtemp())
    (folder / "k.cpp").write_text(SOURCE)
    subprocess.check_call(["g++", "-O2", "-shared", "-fPIC", "k.cpp", "-o", "k.so"], cwd=folder)
    function = ctypes.CDLL(str(folder / "k.so")).layer_norm
    function.restype = None
    function.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 2 + [ctypes.c_double]
    return function


layer_norm = _library()


def native_layer_norm__default_kernel_impl(input, normalized_shape, weight, bias, eps):
    if input.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = input.contiguous()
    w = None if weight is None else weight.contiguous()
    b = None if bias is None else bias.contiguous()
    leading = list(x.shape[: x.dim() - len(normalized_shape)])
    statistics = leading + [1] * len(normalized_shape)
    y = torch.empty_like(x)
    mean = torch.empty(statistics, dtype=x.dtype)
    rstd = torch.empty(statistics, dtype=x.dtype)
    pointers = [None if t is None else t.data_ptr() for t in (x, w, b, y, mean, rstd)]
    layer_norm(*pointers, math.prod(leading), math.prod(normalized_shape), eps)
    return y, mean, rstd
