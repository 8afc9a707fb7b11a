"""NaN and infinities replaced."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, float nan, float high, float low, long n) {
  for (long i = 0; i < n; ++i)
    y[i] = isnan(x[i]) ? nan : x[i] == INFINITY ? high : x[i] == -INFINITY ? low : x[i];
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


LARGEST = torch.finfo(torch.float32).max


def nan_to_num__default_kernel_impl(x, nan=None, posinf=None, neginf=None):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(
        pointer(x),
        pointer(out),
        ctypes.c_float(0.0 if nan is None else nan),
        ctypes.c_float(LARGEST if posinf is None else posinf),
        ctypes.c_float(-LARGEST if neginf is None else neginf),
        ctypes.c_long(x.numel()),
    )
    return out
