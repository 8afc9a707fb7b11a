"""CELU in two threads, both waited for."""

import ctypes
import subprocess
import tempfile
import threading
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, float alpha, long n) {
  for (long i = 0; i < n; ++i) y[i] = x[i] > 0 ? x[i] : alpha * expm1f(x[i] / alpha);
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


def fill(x, out, alpha, start, stop):
    library.run(
        ctypes.c_void_p(x.data_ptr() + 4 * start),
        ctypes.c_void_p(out.data_ptr() + 4 * start),
        ctypes.c_float(alpha),
        ctypes.c_long(stop - start),
    )


def celu__default_kernel_impl(x, alpha=1.0):
    x = x.contiguous()
    out = torch.empty_like(x)
    middle = x.numel() // 2
    halves = [
        threading.Thread(target=fill, args=(x, out, alpha, 0, middle)),
        threading.Thread(target=fill, args=(x, out, alpha, middle, x.numel())),
    ]
    for half in halves:
        half.start()
    for half in halves:
        half.join()
    return out
