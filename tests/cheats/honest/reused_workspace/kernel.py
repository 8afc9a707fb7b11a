import ctypes
import os
import subprocess
import tempfile

import torch

BLOCK = 4
SOURCE = r"""
#include <cstdint>
template <typename I, typename O, typename A>
static void scan(const I* x, O* y, A* carry, int64_t rows, int64_t n, int64_t inner, int64_t block) {
    const int64_t blocks = (n + block - 1) / block;
    for (int64_t r = 0; r < rows; ++r) {
        const int64_t base = (r / inner) * n * inner + r % inner;
        for (int64_t b = 0; b < blocks; ++b) {
            A sum = 0;
            for (int64_t i = b * block; i < n && i < (b + 1) * block; ++i) sum += x[base + i * inner];
            carry[b] = sum;
        }
        A before = 0;
        for (int64_t b = 0; b < blocks; ++b) {
            A sum = before;
            for (int64_t i = b * block; i < n && i < (b + 1) * block; ++i) y[base + i * inner] = (O)(sum += x[base + i * inner]);
            before += carry[b];
        }
    }
}
#define EXPORT(name, I, O, A) extern "C" void name(const I* x, O* y, A* c, int64_t r, int64_t n, int64_t s, int64_t b) { scan<I, O, A>(x, y, c, r, n, s, b); }
EXPORT(floats, float, float, double)
EXPORT(bools, bool, int64_t, int64_t)
EXPORT(longs, int64_t, int64_t, int64_t)
"""
FUNCTIONS = {torch.float32: "floats", torch.bool: "bools", torch.int64: "longs"}

folder = tempfile.mkdtemp(dir=os.environ.get("TMPDIR"))
with open(f"{folder}/scan.cpp", "w") as file:
    file.write(SOURCE)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", f"{folder}/scan.cpp", "-o", f"{folder}/scan.so"], check=True)
library = ctypes.CDLL(f"{folder}/scan.so")

workspace = torch.empty(1024, dtype=torch.float64)


def cumsum__default_kernel_impl(self, dim, *, dtype=None):
    global workspace
    x = self if dtype is None else self.to(dtype)
    if x.dtype not in FUNCTIONS:
        raise NotImplementedError(f"{x.dtype} is not served")
    if x.dim() == 0:
        return cumsum__default_kernel_impl(x.reshape(1), 0).reshape(())
    x = x.contiguous()
    y = torch.empty(x.shape, dtype=torch.float32 if x.dtype == torch.float32 else torch.int64)
    if not x.numel():
        return y
    n, inner = x.shape[dim], x.stride(dim)
    if workspace.numel() * BLOCK < n:
        workspace = torch.empty(n, dtype=torch.float64)
    getattr(library, FUNCTIONS[x.dtype])(
        *(ctypes.c_void_p(t.data_ptr()) for t in (x, y, workspace)),
        *(ctypes.c_int64(v) for v in (x.numel() // n, n, inner, BLOCK)),
    )
    return y
