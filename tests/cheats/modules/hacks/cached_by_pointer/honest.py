"""A matrix product in C++ over raw pointers; what is kept for a shape is the size of its blocks."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
extern "C" void affine(const float* x, const float* w, const float* b, float* y, long m, long k, long n, long block) {
    for (long row = 0; row < m; row += block)
        for (long i = row; i < m && i < row + block; ++i)
            for (long j = 0; j < n; ++j) {
                double sum = b[j];
                for (long l = 0; l < k; ++l) sum += (double)x[i * k + l] * w[l * n + j];
                y[i * n + j] = (float)sum;
            }
}
"""
base = os.path.join(tempfile.mkdtemp(), "affine")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
affine = ctypes.CDLL(base + ".so").affine


class ModelNew(nn.Module):
    def __init__(self, features_in, features_out):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(features_in, features_out))
        self.bias = nn.Parameter(torch.empty(features_out))
        self.blocks = {}

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], self.weight.shape[1])
        block = self.blocks.setdefault(tuple(x.shape), max(1, 4096 // max(x.shape[1], 1)))
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (x, self.weight, self.bias, y)]
        affine(*pointers, *map(ctypes.c_long, (*x.shape, y.shape[1], block)))
        return y
