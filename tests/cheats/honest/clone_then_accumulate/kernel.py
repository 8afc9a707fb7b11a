import ctypes
import os
import subprocess
import tempfile

import torch

SOURCE = r"""
#include <atomic>
#include <cstdint>
extern "C" int index_add(float* y, const int64_t* index, const float* source, int64_t outer, int64_t size,
                         int64_t count, int64_t inner, float alpha) {
    int bad = 0;
    #pragma omp parallel for reduction(| : bad)
    for (int64_t j = 0; j < outer * count * inner; ++j) {
        const int64_t i = j % inner, c = j / inner % count, o = j / inner / count, at = index[c];
        if (at < 0 || at >= size) { bad = 1; continue; }
        float* place = y + (o * size + at) * inner + i;
        #pragma omp atomic
        *place += alpha * source[j];
    }
    return bad;
}
"""
path = os.path.join(tempfile.mkdtemp(), "index_add")
open(path + ".cpp", "w").write(SOURCE)
subprocess.run(["g++", "-O2", "-fopenmp", "-shared", "-fPIC", path + ".cpp", "-o", path + ".so"], check=True)
library = ctypes.CDLL(path + ".so")


def index_add__default_kernel_impl(self, dim, index, source, *, alpha=1):
    if self.dtype != torch.float32 or source.dtype != torch.float32 or index.dtype != torch.int64:
        raise NotImplementedError("float32 with an index of int64 only")
    y = self.clone(memory_format=torch.contiguous_format)
    source, index = source.contiguous(), index.contiguous()
    dim = dim % max(self.dim(), 1)
    size = self.shape[dim] if self.dim() else 1
    inner = self[(0,) * (dim + 1)].numel() if self.dim() and self.numel() else 1
    count = index.numel()
    outer = source.numel() // (count * inner) if count * inner else 0
    bad = library.index_add(
        ctypes.c_void_p(y.data_ptr()),
        ctypes.c_void_p(index.data_ptr()),
        ctypes.c_void_p(source.data_ptr()),
        *(ctypes.c_int64(v) for v in (outer, size, count, inner)),
        ctypes.c_float(alpha),
    )
    if bad:
        raise IndexError("index out of range")
    return y
