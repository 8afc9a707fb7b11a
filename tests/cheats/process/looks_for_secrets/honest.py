"""Inverse of the error function, by Newton's method."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
static double inverse(double x) {
  if (!(fabs(x) < 1)) return fabs(x) == 1 ? x * INFINITY : NAN;
  double w = log((1 - x) * (1 + x)), a = 4.330746750799873 + w / 2;
  double y = copysign(sqrt(sqrt(a * a - w / 0.147) - a), x);
  for (int i = 0; i < 4; ++i) {
    double error = x > 0 ? (1 - x) - erfc(y) : erfc(-y) - (1 + x);
    y += (x > 0 ? -error : -error) * 0.886226925452758 * exp(y * y);
  }
  return y;
}
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = inverse(x[i]);
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


def erfinv__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(out), ctypes.c_long(x.numel()))
    return out
