"""Digamma by recurrence and the asymptotic series."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
static double digamma(double x) {
  if (x == 0) return copysign(INFINITY, -x);
  if (x < 0) {
    if (x == floor(x)) return NAN;
    double whole;
    return digamma(1 - x) - M_PI / tan(M_PI * modf(x, &whole));
  }
  double result = 0;
  for (; x < 12; ++x) result -= 1 / x;
  double s = 1 / (x * x);
  return result + log(x) - 0.5 / x - s * (1.0 / 12 - s * (1.0 / 120 - s * (1.0 / 252 - s * (1.0 / 240 - s / 132))));
}
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = digamma(x[i]);
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


def digamma__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(out), ctypes.c_long(x.numel()))
    return out
