"""Sum of the diagonal."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
float run(const float* x, long n, long step) {
  double sum = 0;
  for (long i = 0; i < n; ++i) sum += x[i * step];
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


def trace__default_kernel_impl(x):
    out = x.new_empty(())
    total = library.run(pointer(x), ctypes.c_long(min(x.shape)), ctypes.c_long(sum(x.stride())))
    ctypes.c_float.from_address(out.data_ptr()).value = total
    return out
