import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>
#include <stdint.h>
extern "C" void mish(const float* x, float* y, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
        double v = x[i];
        y[i] = (float)(v * tanh(log1p(exp(v))));
    }
}
"""


def build(source):
    folder = tempfile.mkdtemp(dir=os.getcwd())
    path = os.path.join(folder, "kernel")
    with open(path + ".cpp", "w") as file:
        file.write(source)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", path + ".so", path + ".cpp"], check=True)
    return ctypes.CDLL(path + ".so")


LIBRARY = build(SOURCE)


def mish__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    y = torch.empty_like(x)
    LIBRARY.mish(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_int64(x.numel()))
    return y
