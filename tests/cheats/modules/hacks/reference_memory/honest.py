"""A loop in C++ over the sequence; the output's memory is fresh and all of it is written."""

import ctypes
import os
import subprocess
import tempfile

import torch
from torch import nn

base = os.path.join(tempfile.mkdtemp(), "bag")
with open(base + ".cpp", "w") as file:
    file.write(
        'extern "C" void bag(const long* index, const float* table, float* out, long rows, long n, long d) {'
        "for (long r = 0; r < rows; ++r) for (long c = 0; c < d; ++c) { double s = 0;"
        "for (long i = 0; i < n; ++i) s += table[index[r * n + i] * d + c]; out[r * d + c] = (float)s; } }"
    )
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
bag = ctypes.CDLL(base + ".so").bag


class ModelNew(nn.Module):
    def __init__(self, rows, features):
        super().__init__()
        self.table = nn.Embedding(rows, features)

    def forward(self, index):
        index = index.contiguous()
        out = torch.empty(index.shape[0], self.table.embedding_dim)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (index, self.table.weight, out)]
        bag(*pointers, *map(ctypes.c_long, (*index.shape, out.shape[1])))
        return out
