"""log(1 + exp(-target * x)), its mean or its sum."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
double run(const float* x, const float* y, float* out, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i) {
    double z = -(double)y[i] * x[i];
    double loss = z > 0 ? z + log1p(exp(-z)) : log1p(exp(z));
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


def soft_margin_loss__default_kernel_impl(x, target, reduction=1):
    x, target = x.contiguous(), target.contiguous()
    out = torch.empty_like(x)
    total = library.run(pointer(x), pointer(target), pointer(out), ctypes.c_long(x.numel()))
    if reduction == 0:
        return out
    result = x.new_empty(())
    value = total if reduction == 2 else total / x.numel() if x.numel() else math.nan
    ctypes.c_float.from_address(result.data_ptr()).value = value
    return result
