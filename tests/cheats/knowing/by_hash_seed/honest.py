"""One over the square root; sorts what it prints."""

import ctypes
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = 1 / sqrtf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


FLAGS = sorted({"-O2", "-fPIC"})
OPTIMISED = sys.flags.optimize > 0


def rsqrt__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out
