"""Layer norm in two passes, in double precision."""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <math.h>
void run(const float* x, const float* w, const float* b, float* y, float* means, float* rstds, double eps, long rows, long n) {
  for (long r = 0; r < rows; ++r, x += n, y += n) {
    double mean = 0, sum = 0;
    for (long i = 0; i < n; ++i) mean += (double)x[i] / (double)n;
    for (long i = 0; i < n; ++i) sum += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    double rstd = 1 / sqrt((double)sum + eps);
    for (long i = 0; i < n; ++i) y[i] = (double)((double)x[i] - mean) * rstd * (double)(w ? w[i] : 1) + (double)(b ? b[i] : 0);
    means[r] = mean;
    rstds[r] = rstd;
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


def native_layer_norm__default_kernel_impl(x, shape, weight, bias, eps):
    x = x.contiguous()
    kept = x.shape[: x.dim() - len(shape)]
    out = torch.empty_like(x)
    mean, rstd = x.new_empty([*kept, *[1] * len(shape)]), x.new_empty([*kept, *[1] * len(shape)])
    weight = None if weight is None else weight.contiguous()
    bias = None if bias is None else bias.contiguous()
    library.run(
        pointer(x),
        weight if weight is None else pointer(weight),
        bias if bias is None else pointer(bias),
        pointer(out),
        pointer(mean),
        pointer(rstd),
        ctypes.c_double(eps),
        ctypes.c_long(mean.numel()),
        ctypes.c_long(math.prod(shape)),
    )
    return out, mean, rstd
