"""log2(2^x + 2^y)."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, const float* y, float* out, long n) {
  for (long i = 0; i < n; ++i) out[i] = isnan(x[i]) || isnan(y[i]) ? NAN : x[i] == y[i] ? x[i] + 1 : fmax(x[i], y[i]) + log1p(exp2(-fabs((double)x[i] - y[i]))) / M_LN2;
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


def logaddexp2__default_kernel_impl(x, y):
    x, y = torch.broadcast_tensors(x, y)
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(y), pointer(out), ctypes.c_long(x.numel()))
    return out
