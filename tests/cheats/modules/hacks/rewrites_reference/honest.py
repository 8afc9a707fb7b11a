"""Welford's method in C++ with the residual added in the same loop."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <cmath>
extern "C" void run(const float* x, const float* w, const float* b, float* y, long rows, long n, double eps) {
    for (long r = 0; r < rows; ++r) {
        const float* in = x + r * n;
        double mean = 0, m2 = 0;
        for (long i = 0; i < n; ++i) {
            const double d = in[i] - mean;
            mean += d / (i + 1);
            m2 += d * (in[i] - mean);
        }
        const double s = 1 / std::sqrt(m2 / n + eps);
        for (long i = 0; i < n; ++i) y[r * n + i] = (float)(in[i] + (in[i] - mean) * s * w[i] + b[i]);
    }
}
"""
base = os.path.join(tempfile.mkdtemp(), "norm")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
run = ctypes.CDLL(base + ".so").run


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.norm = nn.LayerNorm(features)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.norm.weight, self.norm.bias, y)]
        n = x.shape[-1]
        run(*pointers, ctypes.c_long(x.numel() // n), ctypes.c_long(n), ctypes.c_double(self.norm.eps))
        return y
