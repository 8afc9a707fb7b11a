"""Layers of torch's hold the weights; a Sequential calls layers of its own, in C."""

import ctypes
import subprocess
import tempfile
from collections import OrderedDict
from pathlib import Path

import torch
from torch import nn

SOURCE = r"""
#include <math.h>
void layer(const float* x, const float* w, const float* b, float* y, long rows, long n, long k, long gelu) {
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < n; ++j) {
      double sum = b[j];
      for (long p = 0; p < k; ++p) sum += (double)x[i * k + p] * w[j * k + p];
      y[i * n + j] = gelu ? 0.5 * sum * (1 + erf(sum * 0.70710678118654752)) : sum;
    }
}
"""
folder = tempfile.mkdtemp()
Path(folder, "layer.c").write_text(SOURCE)
subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "layer.c", "-o", "layer.so", "-lm"], cwd=folder, check=True)
library = ctypes.CDLL(f"{folder}/layer.so")


class Layer(nn.Linear):
    gelu = 0

    def forward(self, x):
        x = x.contiguous()
        out = x.new_empty(*x.shape[:-1], self.out_features)
        tensors = (x, self.weight.contiguous(), self.bias, out)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in tensors]
        sizes = (x.numel() // self.in_features, self.out_features, self.in_features, self.gelu)
        library.layer(*pointers, *map(ctypes.c_long, sizes))
        return out


class WithGelu(Layer):
    gelu = 1


class ModelNew(nn.Sequential):
    def __init__(self, features_in, hidden, features_out):
        super().__init__(OrderedDict(up=WithGelu(features_in, hidden), down=Layer(hidden, features_out)))
