"""GELU, exact or with tanh, as asked."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, int fast, long n) {
  for (long i = 0; i < n; ++i) {
    double v = x[i];
    y[i] = fast ? 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v))) : 0.5 * v * erfc(-v * 0.7071067811865476);
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


def gelu__default_kernel_impl(x, *, approximate="none"):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(pointer(x), pointer(out), ctypes.c_int(approximate == "tanh"), ctypes.c_long(x.numel()))
    return out
