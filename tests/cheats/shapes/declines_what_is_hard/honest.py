"""Smooth L1 loss."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
double run(const float* x, const float* y, float* out, double delta, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i) {
    double distance = fabs((double)x[i] - y[i]);
    double loss = distance < delta ? distance * distance / (2 * delta) : distance - delta / 2;
    out[i] = loss;
    sum += loss;
  }
  return sum;
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


library.run.restype = ctypes.c_double


def smooth_l1_loss__default_kernel_impl(x, target, reduction=1, beta=1.0):
    x, target = x.contiguous(), target.contiguous()
    out = torch.empty_like(x)
    total = library.run(pointer(x), pointer(target), pointer(out), ctypes.c_double(beta), ctypes.c_long(x.numel()))
    if reduction == 0:
        return out
    result = x.new_empty(())
    value = total if reduction == 2 else total / x.numel() if x.numel() else math.nan
    ctypes.c_float.from_address(result.data_ptr()).value = value
    return result
