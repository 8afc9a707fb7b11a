import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <cstdint>
extern "C" void partial(const float* a, const float* b, double* w, const int64_t* as, const int64_t* bs, int64_t B,
                        int64_t M, int64_t N, int64_t K, int64_t splits) {
    for (int64_t s = 0; s < splits; ++s) {
        const int64_t first = K * s / splits, last = K * (s + 1) / splits;
        for (int64_t i = 0; i < B; ++i)
            for (int64_t m = 0; m < M; ++m)
                for (int64_t n = 0; n < N; ++n) {
                    double sum = 0;
                    for (int64_t k = first; k < last; ++k)
                        sum += (double)a[i * as[0] + m * as[1] + k * as[2]] * b[i * bs[0] + k * bs[1] + n * bs[2]];
                    w[((s * B + i) * M + m) * N + n] = sum;
                }
    }
}
extern "C" void reduce(const double* w, const float* c, const int64_t* cs, float* y, int64_t B, int64_t M, int64_t N,
                       int64_t splits, double alpha, double beta) {
    for (int64_t i = 0; i < B * M * N; ++i) {
        double sum = 0;
        for (int64_t s = 0; s < splits; ++s) sum += w[s * B * M * N + i];
        sum *= alpha;
        if (beta != 0) sum += beta * c[i / (M * N) * cs[0] + i / N % M * cs[1] + i % N * cs[2]];
        y[i] = (float)sum;
    }
}
"""
SPLITS = 4


def build():
    folder = tempfile.mkdtemp()
    source, library = os.path.join(folder, "mm.cpp"), os.path.join(folder, "mm.so")
    with open(source, "w") as stream:
        stream.write(SOURCE)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", source, "-o", library], check=True)
    return ctypes.CDLL(library)


LIB = build()
STRIDES = ctypes.c_int64 * 3


def baddbmm__default_kernel_impl(self, batch1, batch2, *, beta=1, alpha=1):
    if not self.dtype == batch1.dtype == batch2.dtype == torch.float32:
        raise NotImplementedError("float32 only")
    (b, m, k), n = batch1.shape, batch2.shape[2]
    if tuple(batch2.shape[:2]) != (b, k):
        raise RuntimeError("the batches or the inner sizes differ")
    added = self.expand(b, m, n)
    workspace = torch.empty((SPLITS, b, m, n), dtype=torch.float64)
    y = torch.empty((b, m, n))
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    LIB.partial(
        pointer(batch1.data_ptr()),
        pointer(batch2.data_ptr()),
        pointer(workspace.data_ptr()),
        STRIDES(*batch1.stride()),
        STRIDES(*batch2.stride()),
        *map(integer, (b, m, n, k, SPLITS)),
    )
    LIB.reduce(
        pointer(workspace.data_ptr()),
        pointer(added.data_ptr()),
        STRIDES(*added.stride()),
        pointer(y.data_ptr()),
        *map(integer, (b, m, n, SPLITS)),
        ctypes.c_double(alpha),
        ctypes.c_double(beta),
    )
    return y
