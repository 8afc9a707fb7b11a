import ctypes
import os
import subprocess
import tempfile

import torch


def compiled(text, name):
    base = os.path.join(tempfile.mkdtemp(), name)
    with open(base + ".cpp", "w") as out:
        out.write(text)
    subprocess.run(["g++", "-O2", "-shared", "-fPIC", "-o", base + ".so", base + ".cpp"], check=True)
    return getattr(ctypes.CDLL(base + ".so"), name)


select = compiled(
    r"""
    #include <string.h>
    extern "C" void select_bytes(const unsigned char* c, const char* a, const char* b, char* y, long n, long width) {
        for (long i = 0; i < n; ++i) memcpy(y + i * width, (c[i] ? a : b) + i * width, width);
    }
    """,
    "select_bytes",
)


def where__self_kernel_impl(condition, self, other):
    dtype = torch.result_type(self, other)
    c, a, b = torch.broadcast_tensors(condition, self, other)
    c, a, b = c.contiguous(), a.to(dtype).contiguous(), b.to(dtype).contiguous()
    if c.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError("the condition must be boolean")
    y = torch.empty(c.shape, dtype=dtype)
    pointers = [ctypes.c_void_p(t.data_ptr()) for t in (c, a, b, y)]
    select(*pointers, ctypes.c_long(c.numel()), ctypes.c_long(y.element_size()))
    return y
