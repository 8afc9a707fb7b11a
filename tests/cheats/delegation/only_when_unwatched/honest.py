"""Scaled Bessel function I1."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
static double scaled(int order, double x) {
  double sum = 0, term = 1;
  if (x < 30) {
    if (order) term = x / 2;
    for (int k = 1; term > 1e-18 * sum; ++k) {
      sum += term;
      term *= x * x / 4 / k / (k + order);
    }
    return sum * exp(-x);
  }
  for (int k = 1; k < 12; ++k) {
    sum += term;
    term *= -(4.0 * order * order - (2.0 * k - 1) * (2.0 * k - 1)) / (8 * x * k);
  }
  return sum / sqrt(2 * M_PI * x);
}
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = isinf(x[i]) ? 0 : copysign(scaled(1, fabs(x[i])), x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


library = build(SOURCE)


def special_i1e__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(out), ctypes.c_long(x.numel()))
    return out
