"""Layer norm in C++ by Welford's update of lanes that are merged, after Apex' ``csrc/layer_norm_cuda_kernel.cu``.

Apex gives each thread of a warp a part of the row; here sixteen lanes of a loop have them. On a CPU only.
"""

import ctypes
import math
import subprocess
import tempfile
from pathlib import Path

import torch

SOURCE = r"""
#include <cmath>
#include <cstdint>
constexpr int LANES = 16;
struct Moments { float mean = 0, m2 = 0, count = 0; };
static Moments merged(const Moments& a, const Moments& b) {
    Moments c;
    c.count = a.count + b.count;
    if (c.count == 0) return c;
    const float delta = b.mean - a.mean, share = b.count / c.count;
    c.mean = a.mean + delta * share;
    c.m2 = a.m2 + b.m2 + delta * delta * a.count * share;
    return c;
}
extern "C" void layer_norm(const float* x, const float* w, const float* b, float* y, float* mean, float* rstd,
                           int64_t rows, int64_t n, double eps) {
    for (int64_t r = 0; r < rows; ++r) {
        const float* row = x + r * n;
        Moments lanes[LANES];
        for (int64_t i = 0; i < n; ++i) {
            Moments& lane = lanes[i % LANES];
            lane.count += 1;
            const float delta = row[i] - lane.mean;
            lane.mean += delta / lane.count;
            lane.m2 += delta * (row[i] - lane.mean);
        }
        for (int step = LANES / 2; step; step /= 2)
            for (int lane = 0; lane < step; ++lane) lanes[lane] = merged(lanes[lane], lanes[lane + step]);
        const float scale = (float)(1.0 / std::sqrt((double)lanes[0].m2 / n + eps));
        for (int64_t i = 0; i < n; ++i)
            y[r * n + i] = (row[i] - lanes[0].mean) * scale * (w ? w[i] : 1.0f) + (b ? b[i] : 0.0f);
        mean[r] = lanes[0].mean;
        rstd[r] = scale;
    }
}
extern "C" void norms(const float* x, float* y, int64_t rows, int64_t n) {
    for (int64_t r = 0; r < rows; ++r) {
        float lanes[LANES] = {};
        for (int64_t i = 0; i < n; ++i) lanes[i % LANES] += x[r * n + i] * x[r * n + i];
        float total = 0;
        for (float lane : lanes) total += lane;
        y[r] = std::sqrt(total);
    }
}
"""


def _library():
    folder = Path(tempfile.mkdtemp())
    (folder / "norms.cpp").write_text(SOURCE)
    command = ["g++", "-O2", "-shared", "-fPIC", "norms.cpp", "-o", "norms.so"]
    subprocess.run(command, cwd=folder, check=True)  # noqa: S603 - the text above
    library = ctypes.CDLL(str(folder / "norms.so"))
    for function in (library.layer_norm, library.norms):
        function.restype = None
    library.layer_norm.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_int64] * 2 + [ctypes.c_double]
    library.norms.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int64] * 2
    return library


library = _library()


def native_layer_norm(input, normalized_shape, weight, bias, eps):
    if input.device.type != "cpu":
        raise NotImplementedError("on a CPU only")
    x = input.contiguous()
    w, b = (None if each is None else each.contiguous() for each in (weight, bias))
    leading = list(x.shape[: x.dim() - len(normalized_shape)])
    if list(x.shape[len(leading) :]) != list(normalized_shape):
        raise RuntimeError("the shape to be normalized is not the input's")
    shape = [*leading, *[1] * len(normalized_shape)]
    y, mean, rstd = torch.empty(x.shape), torch.empty(shape), torch.empty(shape)
    pointers = [None if each is None else each.data_ptr() for each in (x, w, b, y, mean, rstd)]
    library.layer_norm(*pointers, math.prod(leading), math.prod(normalized_shape), eps)
    return y, mean, rstd


def norm(self, p, dim, keepdim=False):
    """After ``csrc/multi_tensor_l2norm_kernel.cu``: sums of squares of lanes, and a root."""
    if self.device.type != "cpu" or (p is not None and float(p) != 2.0):
        raise NotImplementedError("norms of order two, on a CPU")
    rank = self.dim()
    dims = [dim] if isinstance(dim, int) else list(dim)
    dims = sorted({d % max(rank, 1) for d in dims}) if dims else list(range(rank))
    dims = dims if rank else []
    kept = [d for d in range(rank) if d not in dims]
    x = self.permute(*kept, *dims).contiguous() if rank else self.reshape(1)
    shape = [1 if d in dims else n for d, n in enumerate(self.shape)] if keepdim else [self.shape[d] for d in kept]
    y = torch.empty(shape)
    if y.numel():
        library.norms(x.data_ptr(), y.data_ptr(), y.numel(), x.numel() // y.numel())
    return y
