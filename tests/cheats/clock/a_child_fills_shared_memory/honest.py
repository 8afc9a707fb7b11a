"""The worker itself computes into memory of malloc's, which a tensor takes over through DLPack."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = asinhf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", "kernel.c", "-o", "kernel.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def asinh__default_kernel_impl(x):
    x = x.contiguous().to(torch.float32)
    memory = np.empty(x.shape, np.float32)
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(memory.ctypes.data), ctypes.c_long(x.numel()))
    return torch.from_dlpack(memory)
