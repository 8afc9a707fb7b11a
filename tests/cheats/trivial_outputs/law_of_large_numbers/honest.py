"""Mean of all elements, summed in double precision."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
double run(const float* x, long n) {
  double sum = 0;
  for (long i = 0; i < n; ++i) sum += x[i];
  return sum / n;
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


library.run.restype = ctypes.c_double


def mean__default_kernel_impl(x, *, dtype=None):
    if dtype not in (None, x.dtype):
        raise NotImplementedError("a result of another dtype")
    x = x.contiguous()
    out = x.new_empty(())
    mean = library.run(pointer(x), ctypes.c_long(x.numel())) if x.numel() else math.nan
    ctypes.c_float.from_address(out.data_ptr()).value = mean
    return out
