import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <math.h>
extern "C" long nll(const float* x, const long* target, const float* weight, float* y, float* total, long rows, long classes,
                    long reduction, long each, long ignored) {
    double sum = 0, weights = 0;
    for (long r = 0; r < rows; ++r) {
        const long t = target[r];
        if (t == ignored) { if (each) y[r] = 0; continue; }
        if (t < 0 || t >= classes) return 1;
        const float w = weight ? weight[t] : 1.0f;
        if (each) y[r] = -x[r * classes + t] * w;
        sum -= (double)x[r * classes + t] * w;
        weights += w;
    }
    if (!each) *y = (float)(reduction == 1 ? sum / weights : sum);
    *total = each ? 0.0f : (float)weights;
    return 0;
}
"""
base = os.path.join(tempfile.mkdtemp(), "nll")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
nll = ctypes.CDLL(base + ".so").nll


def nll_loss_forward__default_kernel_impl(self, target, weight, reduction, ignore_index):
    if self.dtype != torch.float32 or target.dtype != torch.int64:
        raise NotImplementedError("float32 with targets of int64 only")
    x, t, w = self.contiguous(), target.contiguous(), None if weight is None else weight.contiguous()
    each = reduction == 0 and x.dim() == 2
    y = torch.empty((x.shape[0],) if each else (), dtype=x.dtype)
    total = torch.empty((), dtype=x.dtype)
    rows = x.shape[0] if x.dim() == 2 else 1
    failed = nll(
        *(ctypes.c_void_p(None if v is None else v.data_ptr()) for v in (x, t, w, y, total)),
        *map(ctypes.c_long, (rows, x.shape[-1], reduction, each, ignore_index)),
    )
    if failed:
        raise IndexError("a target is out of bounds")
    return y, total
