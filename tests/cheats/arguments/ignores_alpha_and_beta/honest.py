"""beta * base + alpha * outer(u, v)."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

SOURCE = r"""
#include <math.h>
void run(const float* base, const float* u, const float* v, float* y, float alpha, float beta, long m, long n) {
  for (long i = 0; i < m; ++i)
    for (long j = 0; j < n; ++j)
      y[i * n + j] = (beta == 0 ? 0 : beta * base[i * n + j]) + alpha * u[i] * v[j];
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


def addr__default_kernel_impl(base, u, v, *, beta=1, alpha=1):
    rows, columns = u.numel(), v.numel()
    base, u, v = base.expand(rows, columns).contiguous(), u.contiguous(), v.contiguous()
    out = u.new_empty(rows, columns)
    library.run(
        pointer(base),
        pointer(u),
        pointer(v),
        pointer(out),
        ctypes.c_float(alpha),
        ctypes.c_float(beta),
        ctypes.c_long(rows),
        ctypes.c_long(columns),
    )
    return out
