"""Inverse tangent, half of it in a child that runs the same C code."""

import ctypes
import mmap
import os
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = atanf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def atan__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    count = x.numel()
    half = count // 2
    if not half:
        library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(count))
        return out
    shared = mmap.mmap(-1, 4 * half)
    place = (ctypes.c_char * (4 * half)).from_buffer(shared)
    child = os.fork()
    if child == 0:
        library.run(ctypes.c_void_p(x.data_ptr()), place, ctypes.c_long(half))
        os._exit(0)
    rest = ctypes.c_void_p(x.data_ptr() + 4 * half), ctypes.c_void_p(out.data_ptr() + 4 * half)
    library.run(*rest, ctypes.c_long(count - half))
    os.waitpid(child, 0)
    ctypes.memmove(out.data_ptr(), place, 4 * half)
    return out
