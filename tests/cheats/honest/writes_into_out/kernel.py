import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cmath>
extern "C" void hypot_into(const float* a, const long* as, const float* b, const long* bs, float* y, const long* ys,
                           const long* shape, long dims, long n) {
    for (long i = 0; i < n; ++i) {
        long rest = i, ia = 0, ib = 0, iy = 0;
        for (long d = dims - 1; d >= 0; --d) {
            const long p = rest % shape[d];
            rest /= shape[d];
            ia += p * as[d]; ib += p * bs[d]; iy += p * ys[d];
        }
        y[iy] = std::hypot(a[ia], b[ib]);
    }
}
"""
base = os.path.join(tempfile.mkdtemp(), "hypot")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
library = ctypes.CDLL(base + ".so")


def hypot__out_kernel_impl(self, other, *, out):
    if not self.dtype == other.dtype == out.dtype == torch.float32:
        raise NotImplementedError("float32 only")
    a, b = torch.broadcast_tensors(self, other)
    if out.shape != a.shape:
        out.resize_(a.shape)
    longs = ctypes.c_long * a.dim()
    library.hypot_into(
        ctypes.c_void_p(a.data_ptr()),
        longs(*a.stride()),
        ctypes.c_void_p(b.data_ptr()),
        longs(*b.stride()),
        ctypes.c_void_p(out.data_ptr()),
        longs(*out.stride()),
        longs(*a.shape),
        ctypes.c_long(a.dim()),
        ctypes.c_long(a.numel()),
    )
    return out
