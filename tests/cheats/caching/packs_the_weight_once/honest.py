"""beta * base + alpha * matrix @ vector."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* base, const float* m, const float* v, float* y, float alpha, float beta, long rows, long cols) {
  for (long i = 0; i < rows; ++i) {
    double sum = 0;
    for (long k = 0; k < cols; ++k) sum += (double)m[i * cols + k] * v[k];
    y[i] = (beta == 0 ? 0.0 : (double)beta * base[i]) + alpha * sum;
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


def addmv__default_kernel_impl(base, matrix, vector, *, beta=1, alpha=1):
    rows, cols = matrix.shape
    base, matrix, vector = base.expand(rows).contiguous(), matrix.contiguous(), vector.contiguous()
    out = base.new_empty(rows)
    library.run(
        pointer(base),
        pointer(matrix),
        pointer(vector),
        pointer(out),
        ctypes.c_float(alpha),
        ctypes.c_float(beta),
        ctypes.c_long(rows),
        ctypes.c_long(cols),
    )
    return out
