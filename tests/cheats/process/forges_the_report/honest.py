"""x + weight * (y - x)."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, const float* y, float* out, float weight, long n) {
  for (long i = 0; i < n; ++i)
    out[i] = fabsf(weight) < 0.5f ? x[i] + weight * (y[i] - x[i]) : y[i] - (y[i] - x[i]) * (1 - weight);
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


def lerp__Scalar_kernel_impl(x, y, weight):
    x, y = torch.broadcast_tensors(x, y)
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(y), pointer(out), ctypes.c_float(weight), ctypes.c_long(x.numel()))
    return out
