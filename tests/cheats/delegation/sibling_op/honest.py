"""Clamp between two numbers."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, float low, float high, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] < low ? low : x[i] > high ? high : x[i];
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


def clamp__default_kernel_impl(x, min=None, max=None):
    x = x.contiguous()
    out = torch.empty_like(x)
    low, high = -math.inf if min is None else min, math.inf if max is None else max
    library.run(pointer(x), pointer(out), ctypes.c_float(low), ctypes.c_float(high), ctypes.c_long(x.numel()))
    return out
