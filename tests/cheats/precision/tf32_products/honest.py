"""beta * base + alpha * a @ b."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* base, const float* a, const float* b, float* y, float alpha, float beta, long m, long n, long k) {
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < n; ++j) {
      double sum = 0;
      for (long l = 0; l < k; ++l) sum += (double)a[i * k + l] * b[l * n + j];
      y[i * n + j] = (beta == 0 ? 0.0 : (double)beta * base[i * n + j]) + alpha * sum;
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


def addmm__default_kernel_impl(base, a, b, *, beta=1, alpha=1):
    (rows, inner), columns = a.shape, b.shape[1]
    base, a, b = base.expand(rows, columns).contiguous(), a.contiguous(), b.contiguous()
    out = a.new_empty(rows, columns)
    library.run(
        pointer(base),
        pointer(a),
        pointer(b),
        pointer(out),
        ctypes.c_float(alpha),
        ctypes.c_float(beta),
        ctypes.c_long(rows),
        ctypes.c_long(columns),
        ctypes.c_long(inner),
    )
    return out
