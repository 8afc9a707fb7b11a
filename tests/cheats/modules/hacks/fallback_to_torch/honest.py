"""C++ through ctypes; what it does not serve it declines."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

base = os.path.join(tempfile.mkdtemp(), "rms")
with open(base + ".cpp", "w") as file:
    file.write(
        "#include <cmath>\n"
        'extern "C" void rms(const float* x, const float* w, float* y, long rows, long n, double eps) {'
        "for (long r = 0; r < rows; ++r) { double s = 0; for (long i = 0; i < n; ++i) s += (double)x[r*n+i] * x[r*n+i];"
        "s = 1 / std::sqrt(s / n + eps); for (long i = 0; i < n; ++i) y[r*n+i] = (float)(x[r*n+i] * s * w[i]); } }"
    )
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
rms = ctypes.CDLL(base + ".so").rms


class ModelNew(nn.Module):
    def __init__(self, features, eps):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))
        self.eps = eps

    def forward(self, x):
        if x.dtype != torch.float32:
            raise NotImplementedError("float32 only")
        x = x.contiguous()
        y = torch.empty_like(x)
        n = x.shape[-1]
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, y)]
        rms(*pointers, ctypes.c_long(x.numel() // n), ctypes.c_long(n), ctypes.c_double(self.eps))
        return y
