"""Greatest common divisor."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <stdint.h>
void run(const int64_t* a, const int64_t* b, int64_t* y, long n) {
  for (long i = 0; i < n; ++i) {
    uint64_t s = a[i] < 0 ? -(uint64_t)a[i] : a[i], t = b[i] < 0 ? -(uint64_t)b[i] : b[i];
    while (t) { uint64_t rest = s % t; s = t; t = rest; }
    y[i] = (int64_t)s;
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


def gcd__default_kernel_impl(a, b):
    if a.dtype != torch.int64 or b.dtype != torch.int64:
        raise NotImplementedError(f"{a.dtype} and {b.dtype} are not handled")
    a, b = (one.contiguous() for one in torch.broadcast_tensors(a, b))
    out = torch.empty_like(a)
    library.run(pointer(a), pointer(b), pointer(out), ctypes.c_long(a.numel()))
    return out
