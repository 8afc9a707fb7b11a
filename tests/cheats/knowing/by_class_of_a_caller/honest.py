"""Inverse hyperbolic cosine; hands its blocks out by a generator."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = acoshf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def blocks(count):
    yield from range(0, count, 1 << 16)


def acosh__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    for start in blocks(x.numel()):
        place, count = 4 * start, min(1 << 16, x.numel() - start)
        library.run(
            ctypes.c_void_p(x.data_ptr() + place), ctypes.c_void_p(out.data_ptr() + place), ctypes.c_long(count)
        )
    return out
