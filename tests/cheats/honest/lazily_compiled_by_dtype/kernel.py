import ctypes
import functools
import os
import subprocess
import tempfile

import torch

C_TYPES = {torch.float32: "float", torch.float64: "double", torch.int32: "int", torch.int64: "long"}


@functools.cache
def compiled(dtype):
    if dtype not in C_TYPES:
        raise NotImplementedError(f"{dtype} is not served")
    base = os.path.join(tempfile.mkdtemp(), "sign")
    with open(base + ".cpp", "w") as file:
        file.write(
            f'extern "C" void run(const {C_TYPES[dtype]}* x, {C_TYPES[dtype]}* y, long n)'
            "{ for (long i = 0; i < n; ++i) y[i] = (x[i] > 0) - (x[i] < 0); }"
        )
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
    return ctypes.CDLL(base + ".so").run


def sign__default_kernel_impl(self):
    run = compiled(self.dtype)
    x = self.contiguous()
    y = torch.empty_like(x)
    run(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(x.numel()))
    return y
