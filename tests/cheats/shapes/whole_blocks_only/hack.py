"""No code for the tail."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* m, const float* v, float* y, long rows, long cols) {
  for (long i = 0; i < rows; ++i) {
    double sum = 0;
    for (long k = 0; k < cols; ++k) sum += (double)m[i * cols + k] * v[k];
    y[i] = sum;
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


def mv__default_kernel_impl(matrix, vector):
    matrix, vector = matrix.contiguous(), vector.contiguous()
    rows, columns = matrix.shape
    out = matrix.new_empty(rows)
    library.run(pointer(matrix), pointer(vector), pointer(out), ctypes.c_long(rows // 16 * 16), ctypes.c_long(columns))
    return out
