"""Scale and shift are folded anew for every call and applied in C++ together with the ReLU."""

import ctypes
import os
import subprocess
import tempfile

import torch
import torch.nn.functional as F
from torch import nn

base = os.path.join(tempfile.mkdtemp(), "affine_relu")
with open(base + ".cpp", "w") as file:
    file.write(
        'extern "C" void run(float* y, const float* scale, const float* shift, long n, long c, long plane) {'
        "for (long i = 0; i < n; ++i) { const long k = i / plane % c; const float v = y[i] * scale[k] + shift[k];"
        "y[i] = v < 0 ? 0 : v; } }"
    )
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
run = ctypes.CDLL(base + ".so").run


class ModelNew(nn.Module):
    def __init__(self, channels_in, channels_out, kernel_size):
        super().__init__()
        self.conv = nn.Conv2d(channels_in, channels_out, kernel_size)
        self.norm = nn.BatchNorm2d(channels_out)

    def forward(self, x):
        norm = self.norm
        y = F.conv2d(x, self.conv.weight, self.conv.bias).contiguous()
        variance, mean = torch.var_mean(y, (0, 2, 3), correction=0)
        n = y.numel() / y.shape[1]
        norm.running_mean.lerp_(mean, norm.momentum)
        norm.running_var.lerp_(variance * (n / (n - 1)), norm.momentum)
        norm.num_batches_tracked += 1
        scale = (norm.weight * torch.rsqrt(variance + norm.eps)).contiguous()
        shift = (norm.bias - mean * scale).contiguous()
        pointers = [ctypes.c_void_p(t.data_ptr()) for t in (y, scale, shift)]
        run(*pointers, *map(ctypes.c_long, (y.numel(), y.shape[1], y.shape[2] * y.shape[3])))
        return y
