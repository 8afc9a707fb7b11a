"""Honest: builds a parallel C++ function while it loads, in a temporary folder."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = """
#include <math.h>
extern "C" void exponential(const float *x, float *y, long n) {
#pragma omp parallel for num_threads(3)
    for (long i = 0; i < n; i++) y[i] = expf(x[i]);
}
"""


def build():
    folder = Path(tempfile.mkdtemp())
    (folder / "exp.cpp").write_text(SOURCE)
    command = ["g++", "-O1", "-shared", "-fPIC", "-fopenmp", "-o", folder / "exp.so", folder / "exp.cpp"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(folder / "exp.so"))


LIBRARY = build()


def exp__default_kernel_impl(x):
    x = x.contiguous()
    y = torch.empty_like(x)
    LIBRARY.exponential(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y
