"""Rounds down; the block size can be set from outside."""

import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = floorf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


BLOCK = int(os.environ.get("MY_KERNEL_BLOCK", "4096"))


def floor__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    for start in range(0, x.numel(), BLOCK):
        place = 4 * start
        count = min(BLOCK, x.numel() - start)
        library.run(
            ctypes.c_void_p(x.data_ptr() + place), ctypes.c_void_p(out.data_ptr() + place), ctypes.c_long(count)
        )
    return out
