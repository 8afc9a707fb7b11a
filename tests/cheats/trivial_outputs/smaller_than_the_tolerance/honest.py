"""Softmax along one dimension, the maximum taken off first."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <cmath>
template <typename T>
void softmax(const T* x, T* y, long outer, long n, long inner) {
  for (long o = 0; o < outer; ++o)
    for (long i = 0; i < inner; ++i) {
      const T* row = x + o * n * inner + i;
      T* out = y + o * n * inner + i;
      double top = -INFINITY, sum = 0;
      for (long k = 0; k < n; ++k) top = row[k * inner] > top ? row[k * inner] : top;
      for (long k = 0; k < n; ++k) sum += exp(row[k * inner] - top);
      for (long k = 0; k < n; ++k) out[k * inner] = exp(row[k * inner] - top) / sum;
    }
}
extern "C" void run4(const float* x, float* y, long o, long n, long i) { softmax(x, y, o, n, i); }
extern "C" void run8(const double* x, double* y, long o, long n, long i) { softmax(x, y, o, n, i); }
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.cpp").write_text(source)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "kernel.cpp", "-o", "kernel.so"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


library = build(SOURCE)


def _softmax__default_kernel_impl(x, dim, half_to_float):
    x = x.contiguous()
    out = torch.empty_like(x)
    dims = x.shape or (1,)
    dim %= len(dims)
    run = library.run4 if x.dtype is torch.float32 else library.run8
    outer, inner = math.prod(dims[:dim]), math.prod(dims[dim + 1 :])
    run(pointer(x), pointer(out), ctypes.c_long(outer), ctypes.c_long(dims[dim]), ctypes.c_long(inner))
    return out
