import ctypes
import os
import subprocess
import tempfile
from pathlib import Path

import torch

library = os.path.join(tempfile.mkdtemp(), "argmax.so")
source = Path(__file__).with_name("argmax.cpp")
subprocess.run(["g++", "-O2", "-shared", "-fPIC", str(source), "-o", library], check=True)
argmax = ctypes.CDLL(library).argmax_rows


def argmax__default_kernel_impl(self, dim=None, keepdim=False):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if self.numel() == 0 and (dim is None or self.shape[dim] == 0):
        raise IndexError("nothing to choose from")
    if dim is None or self.dim() == 0:
        x, shape = self.contiguous(), [1] * self.dim() if keepdim else []
        n = x.numel()
    else:
        x = self.movedim(dim, -1).contiguous()
        n = x.shape[-1]
        shape = list(self.shape)
        shape[dim] = 1
        if not keepdim:
            del shape[dim]
    y = torch.empty(shape, dtype=torch.int64)
    argmax(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), ctypes.c_long(y.numel()), ctypes.c_long(n))
    return y
