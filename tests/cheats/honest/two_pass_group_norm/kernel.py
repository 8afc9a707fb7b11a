import ctypes
import os
import subprocess
from pathlib import Path

import torch

CODE = r"""
#include <cmath>
#include <cstdint>
extern "C" void group_norm(const float* x, const float* w, const float* b, float* y, float* mean, float* rstd,
                           int64_t N, int64_t C, int64_t HW, int64_t G, double eps) {
    const int64_t D = C / G, n = D * HW;
    #pragma omp parallel for
    for (int64_t g = 0; g < N * G; ++g) {
        const float* in = x + g * n;
        double sum = 0, squares = 0;
        for (int64_t i = 0; i < n; ++i) sum += in[i];
        const double m = sum / n;
        for (int64_t i = 0; i < n; ++i) squares += (in[i] - m) * (in[i] - m);
        const double r = 1.0 / std::sqrt(squares / n + eps);
        for (int64_t d = 0; d < D; ++d) {
            const int64_t c = (g % G) * D + d;
            const double scale = r * (w ? w[c] : 1.0f), shift = (b ? b[c] : 0.0f) - m * scale;
            for (int64_t i = 0; i < HW; ++i) y[g * n + d * HW + i] = (float)(in[d * HW + i] * scale + shift);
        }
        mean[g] = (float)m;
        rstd[g] = (float)r;
    }
}
"""
Path("group_norm.cpp").write_text(CODE)
subprocess.run("g++ -O2 -fopenmp -shared -fPIC group_norm.cpp -o group_norm.so".split(), check=True)
lib = ctypes.CDLL(os.path.abspath("group_norm.so"))


def native_group_norm__default_kernel_impl(input, weight, bias, N, C, HxW, group, eps):
    if input.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = input.contiguous()
    y = torch.empty_like(x)
    mean, rstd = torch.empty((N, group)), torch.empty((N, group))
    weight, bias = (None if t is None else t.contiguous() for t in (weight, bias))
    lib.group_norm(
        *(ctypes.c_void_p(None if t is None else t.data_ptr()) for t in (x, weight, bias, y, mean, rstd)),
        *map(ctypes.c_int64, (N, C, HxW, group)),
        ctypes.c_double(eps),
    )
    return y, mean, rstd
