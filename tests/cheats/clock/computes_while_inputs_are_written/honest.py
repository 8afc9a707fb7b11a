"""Computes when it is called."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* out, long n) {
  for (long j = 0; j < n; ++j) out[j] = sinhf(x[j]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def sinh__default_kernel_impl(x):
    y = x.contiguous().to(torch.float32)
    out = torch.empty_like(y)
    if y.numel():
        library.run(ctypes.c_void_p(y.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(y.numel()))
    return out.to(x.dtype) if x.is_floating_point() else out
