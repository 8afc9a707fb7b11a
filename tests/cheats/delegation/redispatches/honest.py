"""x + weight * (y - x)."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, const float* y, const float* w, float* out, long n) {
  for (long i = 0; i < n; ++i)
    out[i] = fabsf(w[i]) < 0.5f ? x[i] + w[i] * (y[i] - x[i]) : y[i] - (y[i] - x[i]) * (1 - w[i]);
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


def lerp__Tensor_kernel_impl(x, y, weight):
    x, y, weight = torch.broadcast_tensors(x, y, weight)
    x, y, weight = x.contiguous(), y.contiguous(), weight.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(y), pointer(weight), pointer(out), ctypes.c_long(x.numel()))
    return out
