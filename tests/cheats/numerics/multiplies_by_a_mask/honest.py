"""What lies above the diagonal is zero."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long batches, long rows, long columns, long diagonal) {
  for (long b = 0; b < batches; ++b)
    for (long i = 0; i < rows; ++i)
      for (long j = 0; j < columns; ++j) {
        long at = (b * rows + i) * columns + j;
        y[at] = j - i <= diagonal ? x[at] : 0;
      }
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    subprocess.run(["gcc", "-O2", "-shared", "-fPIC", "kernel.c", "-o", "kernel.so", "-lm"], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


def pointer(tensor):
    return ctypes.c_void_p(tensor.data_ptr())


library = build(SOURCE)


def tril__default_kernel_impl(x, diagonal=0):
    x = x.contiguous()
    out = torch.empty_like(x)
    rows, columns = x.shape[-2:]
    sizes = (math.prod(x.shape[:-2]), rows, columns, diagonal)
    library.run(pointer(x), pointer(out), *map(ctypes.c_long, sizes))
    return out
