import ctypes
import functools
import math
import subprocess
import tempfile
from pathlib import Path

import torch

CHUNK = 4

C_SOURCE = r"""
#include <math.h>
extern "C" void fold(const float* x, long n, double* state) {
    double top = state[0], total = state[1];
    for (long i = 0; i < n; ++i) {
        double v = x[i];
        if (isnan(v) || isnan(top)) { top = NAN; continue; }
        if (v > top) { total = total * exp(top - v) + 1.0; top = v; }
        else if (v != -INFINITY) total += isinf(top) ? (v == top) : exp(v - top);
    }
    state[0] = top; state[1] = total;
}
extern "C" void finish(const double* state, float* y) {
    *y = (float)(isinf(state[0]) || isnan(state[0]) ? state[0] : state[0] + log(state[1]));
}
"""


@functools.cache
def library():
    folder = Path(tempfile.mkdtemp())
    (folder / "lse.cpp").write_text(C_SOURCE)
    subprocess.run(
        ["g++", "-O1", "-shared", "-fPIC", str(folder / "lse.cpp"), "-o", str(folder / "lse.so")], check=True
    )
    return ctypes.CDLL(str(folder / "lse.so"))


library()  # Compilers may run while a kernel is loaded.


def logsumexp__default_kernel_impl(self, dim, keepdim=False):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    dims = sorted({d % max(self.dim(), 1) for d in dim}) if len(dim) else list(range(self.dim()))
    kept = [d for d in range(self.dim()) if d not in dims]
    x = self.permute(kept + [d for d in dims if self.dim()]).contiguous()
    shape = [self.shape[d] for d in kept]
    if keepdim:
        out_shape = [1 if d in dims else s for d, s in enumerate(self.shape)]
    else:
        out_shape = shape
    y = torch.empty(out_shape, dtype=torch.float32)
    rows = math.prod(shape)
    length = x.numel() // rows if rows else 0
    for row in range(rows):
        state = (ctypes.c_double * 2)(-math.inf, 0.0)
        for start in range(0, length, CHUNK):
            address = x.data_ptr() + 4 * (row * length + start)
            library().fold(ctypes.c_void_p(address), ctypes.c_long(min(CHUNK, length - start)), state)
        library().finish(state, ctypes.c_void_p(y.data_ptr() + 4 * row))
    return y
