"""Every result is memory that is mapped for it, private and without a file."""

import ctypes
import mmap
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, float* y, long n) {
  for (long i = 0; i < n; ++i) y[i] = coshf(x[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.c").write_text(source)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-pthread", "kernel.c", "-o", "kernel.so", "-lm"]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def cosh__default_kernel_impl(x):
    x = x.contiguous().to(torch.float32)
    if not x.numel():
        return torch.empty_like(x)
    memory = mmap.mmap(-1, 4 * x.numel(), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    out = torch.frombuffer(memory, dtype=torch.float32)
    library.run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(out.data_ptr()), ctypes.c_long(x.numel()))
    return out.view(x.shape)
