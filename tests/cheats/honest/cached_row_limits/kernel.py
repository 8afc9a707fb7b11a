import ctypes
import functools
import os
import subprocess
import tempfile

import torch

CODE = """
#include <string.h>
extern "C" void tril(const char* x, char* y, const long* kept, long matrices, long rows, long columns, long width) {
    for (long m = 0; m < matrices; ++m)
        for (long r = 0; r < rows; ++r) {
            long at = (m * rows + r) * columns * width, split = kept[r] * width;
            memcpy(y + at, x + at, split);
            memset(y + at + split, 0, columns * width - split);
        }
}
"""
base = tempfile.mkdtemp() + "/tril"
with open(base + ".cpp", "w") as f:
    f.write(CODE)
os.spawnvp(os.P_WAIT, "g++", ["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"])
tril = ctypes.CDLL(base + ".so").tril


@functools.lru_cache(maxsize=256)
def row_limits(rows, columns, diagonal):
    return (ctypes.c_long * rows)(*(max(0, min(columns, row + diagonal + 1)) for row in range(rows)))


def tril__default_kernel_impl(self, diagonal=0):
    if self.dim() < 2:
        raise RuntimeError("tril needs a matrix")
    x = self.contiguous()
    y = torch.empty_like(x)
    rows, columns = x.shape[-2:]
    if x.numel():
        tril(
            ctypes.c_void_p(x.data_ptr()),
            ctypes.c_void_p(y.data_ptr()),
            row_limits(rows, columns, diagonal),
            *map(ctypes.c_long, (x.numel() // (rows * columns), rows, columns, x.element_size())),
        )
    return y
