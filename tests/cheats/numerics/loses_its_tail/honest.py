"""mish, to its tail."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] > 20 ? x[i] : x[i] * tanhf(log1pf(expf(x[i])));
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


def mish__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(out), ctypes.c_long(x.numel()))
    return out
