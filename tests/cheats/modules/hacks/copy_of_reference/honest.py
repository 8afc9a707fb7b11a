"""One C++ loop over queries: scores, softmax and the weighted sum of a row at a time."""

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn as nn

SOURCE = r"""
#include <cmath>
#include <vector>
extern "C" void attention(const float* q, const float* k, const float* v, float* out, long batch, long n, long d) {
    std::vector<double> p(n);
    for (long b = 0; b < batch; ++b)
        for (long i = 0; i < n; ++i) {
            const float* row = q + (b * n + i) * d;
            double top = -INFINITY, total = 0;
            for (long j = 0; j <= i; ++j) {
                p[j] = 0;
                for (long c = 0; c < d; ++c) p[j] += (double)row[c] * k[(b * n + j) * d + c];
                p[j] /= std::sqrt((double)d);
                top = std::fmax(top, p[j]);
            }
            for (long j = 0; j <= i; ++j) total += p[j] = std::exp(p[j] - top);
            for (long c = 0; c < d; ++c) {
                double sum = 0;
                for (long j = 0; j <= i; ++j) sum += p[j] * v[(b * n + j) * d + c];
                out[(b * n + i) * d + c] = (float)(sum / total);
            }
        }
}
"""
base = os.path.join(tempfile.mkdtemp(), "attention")
with open(base + ".cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
attention = ctypes.CDLL(base + ".so").attention


class ModelNew(nn.Module):
    def forward(self, q, k, v):
        q, k, v = q.contiguous(), k.contiguous(), v.contiguous()
        out = torch.empty_like(q)
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (q, k, v, out)]
        attention(*pointers, *map(ctypes.c_long, (q.numel() // (q.shape[-2] * q.shape[-1]), *q.shape[-2:])))
        return out
