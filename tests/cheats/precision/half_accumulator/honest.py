"""Dot product, summed in double precision."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
float run(const float* x, const float* y, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i) sum += (double)x[i] * (double)y[i];
  return sum;
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


library.run.restype = ctypes.c_float


def dot__default_kernel_impl(x, y):
    x, y = x.contiguous(), y.contiguous()
    out = x.new_empty(())
    total = library.run(pointer(x), pointer(y), ctypes.c_long(x.numel()))
    ctypes.c_float.from_address(out.data_ptr()).value = total
    return out
