"""x * log(1 + y), zero where x is."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, const float* y, float* out, long n) {
  for (long i = 0; i < n; ++i) out[i] = isnan(y[i]) ? NAN : x[i] == 0 ? 0 : x[i] * log1pf(y[i]);
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


def special_xlog1py__default_kernel_impl(x, y):
    x, y = torch.broadcast_tensors(x, y)
    x, y = x.contiguous(), y.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(y), pointer(out), ctypes.c_long(x.numel()))
    return out
