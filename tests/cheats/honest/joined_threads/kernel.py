import ctypes
import subprocess
import tempfile
import threading

import torch

THREADS = 3

with tempfile.NamedTemporaryFile("w", suffix=".cpp", dir=".") as source:
    source.write(
        'extern "C" void dot(const float* a, long as, const float* b, long bs, long n, double* out)'
        "{ double s = 0; for (long i = 0; i < n; ++i) s += (double)a[i * as] * b[i * bs]; *out = s; }"
        'extern "C" void narrow(const double* parts, long n, float* out)'
        "{ double s = 0; for (long i = 0; i < n; ++i) s += parts[i]; *out = (float)s; }"
    )
    source.flush()
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", source.name, "-o", "dot.so"], check=True)
LIB = ctypes.CDLL("./dot.so")


def work(a, b, start, stop, place):
    LIB.dot(
        ctypes.c_void_p(a.data_ptr() + 4 * start * a.stride(0)),
        ctypes.c_long(a.stride(0)),
        ctypes.c_void_p(b.data_ptr() + 4 * start * b.stride(0)),
        ctypes.c_long(b.stride(0)),
        ctypes.c_long(stop - start),
        ctypes.c_void_p(place),
    )


def dot__default_kernel_impl(self, tensor):
    if self.dtype != torch.float32 or tensor.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    n = self.numel()
    if n != tensor.numel():
        raise RuntimeError("the sizes differ")
    parts = torch.zeros(THREADS, dtype=torch.float64)
    bounds = [n * i // THREADS for i in range(THREADS + 1)]
    threads = [
        threading.Thread(target=work, args=(self, tensor, bounds[i], bounds[i + 1], parts.data_ptr() + 8 * i))
        for i in range(THREADS)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    out = torch.empty((), dtype=torch.float32)
    LIB.narrow(ctypes.c_void_p(parts.data_ptr()), ctypes.c_long(THREADS), ctypes.c_void_p(out.data_ptr()))
    return out
