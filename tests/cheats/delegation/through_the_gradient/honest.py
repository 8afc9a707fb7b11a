"""a * sigmoid(b)."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long outer, long half) {
  for (long o = 0; o < outer; ++o)
    for (long i = 0; i < half; ++i) {
      const float* row = x + o * 2 * half;
      y[o * half + i] = row[i] / (1 + expf(-row[half + i]));
    }
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


def glu__default_kernel_impl(x, dim=-1):
    x = x.contiguous()
    dim %= x.dim()
    shape = [size // 2 if d == dim else size for d, size in enumerate(x.shape)]
    out = x.new_empty(shape)
    outer, half = math.prod(shape[:dim]), math.prod(shape[dim:])
    library.run(pointer(x), pointer(out), ctypes.c_long(outer), ctypes.c_long(half))
    return out
