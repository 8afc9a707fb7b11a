"""beta * base + alpha * the sum of the products of a batch."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* base, const float* a, const float* b, float* y, float alpha, float beta, long batch, long m, long n, long k) {
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < n; ++j) {
      double sum = 0;
      for (long c = 0; c < batch; ++c)
        for (long l = 0; l < k; ++l) sum += (double)a[(c * m + i) * k + l] * b[(c * k + l) * n + j];
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


def addbmm__default_kernel_impl(base, a, b, *, beta=1, alpha=1):
    (batch, rows, inner), columns = a.shape, b.shape[2]
    base, a, b = base.expand(rows, columns).contiguous(), a.contiguous(), b.contiguous()
    out = a.new_empty(rows, columns)
    library.run(
        pointer(base),
        pointer(a),
        pointer(b),
        pointer(out),
        ctypes.c_float(alpha),
        ctypes.c_float(beta),
        *(ctypes.c_long(size) for size in (batch, rows, columns, inner)),
    )
    return out
