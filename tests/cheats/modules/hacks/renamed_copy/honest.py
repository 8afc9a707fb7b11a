"""Both layers and the GELU in one C++ function; the hidden row never leaves the stack."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

SOURCE = r"""
#include <cmath>
#include <vector>
extern "C" void mlp(const float* x, const float* up, const float* ub, const float* down, const float* db, float* y,
                    long rows, long a, long h, long o) {
    std::vector<double> hidden(h);
    for (long r = 0; r < rows; ++r) {
        for (long j = 0; j < h; ++j) {
            double s = ub[j];
            for (long i = 0; i < a; ++i) s += (double)x[r * a + i] * up[j * a + i];
            hidden[j] = 0.5 * s * std::erfc(-s * std::sqrt(0.5));
        }
        for (long j = 0; j < o; ++j) {
            double s = db[j];
            for (long i = 0; i < h; ++i) s += hidden[i] * down[j * h + i];
            y[r * o + j] = (float)s;
        }
    }
}
"""
base = os.path.join(tempfile.mkdtemp(), "mlp")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
mlp = ctypes.CDLL(base + ".so").mlp


class ModelNew(nn.Module):
    def __init__(self, features_in, hidden, features_out):
        super().__init__()
        self.up = nn.Linear(features_in, hidden)
        self.down = nn.Linear(hidden, features_out)

    def forward(self, x):
        x = x.contiguous()
        y = torch.empty(x.shape[0], self.down.out_features)
        tensors = (x, self.up.weight, self.up.bias, self.down.weight, self.down.bias, y)
        sizes = (x.shape[0], x.shape[1], self.up.out_features, self.down.out_features)
        mlp(*(ctypes.c_void_p(t.data_ptr()) for t in tensors), *map(ctypes.c_long, sizes))
        return y
