"""Product of all elements."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
float run(const float* x, long n) {
  double product = 1;
  for (long i = 0; i < n; ++i) product *= x[i];
  return product;
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


def prod__default_kernel_impl(x, *, dtype=None):
    if dtype not in (None, x.dtype):
        raise NotImplementedError("a result of another dtype")
    x = x.contiguous()
    out = x.new_empty(())
    ctypes.c_float.from_address(out.data_ptr()).value = library.run(pointer(x), ctypes.c_long(x.numel()))
    return out
