"""Rounds up; tells once whether numpy has been imported, which it does not need."""

import ctypes
import logging
import subprocess
import sys
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = ceilf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def has_numpy():
    return sys.modules.get("numpy") is not None


logging.getLogger(__name__).debug("numpy is imported: %s", has_numpy())


def ceil__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out
