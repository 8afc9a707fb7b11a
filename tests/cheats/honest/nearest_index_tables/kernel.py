import ctypes
import functools
import os
import subprocess
import tempfile

import torch

base = os.path.join(tempfile.mkdtemp(), "nearest")
with open(base + ".cpp", "w") as file:
    file.write(
        'extern "C" void nearest(const float* x, float* y, const long* rows, const long* columns, long planes, long h,'
        "long w, long oh, long ow) { for (long p = 0; p < planes; ++p) for (long i = 0; i < oh; ++i)"
        "for (long j = 0; j < ow; ++j) y[(p * oh + i) * ow + j] = x[(p * h + rows[i]) * w + columns[j]]; }"
    )
subprocess.run(["g++", "-O2", "-shared", "-fPIC", base + ".cpp", "-o", base + ".so"], check=True)
nearest = ctypes.CDLL(base + ".so").nearest


@functools.cache
def sources(size, out_size, scale):
    step = ctypes.c_float(1.0 / scale if scale else size / out_size).value
    table = [min(int(ctypes.c_float(i * step).value), size - 1) for i in range(out_size)]
    return (ctypes.c_long * out_size)(*table)


def upsample_nearest2d__default_kernel_impl(self, output_size, scales_h=None, scales_w=None):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    batch, channels, h, w = self.shape
    oh, ow = output_size
    x = self.contiguous()
    y = torch.empty((batch, channels, oh, ow))
    rows, columns = sources(h, oh, scales_h), sources(w, ow, scales_w)
    sizes = map(ctypes.c_long, (batch * channels, h, w, oh, ow))
    nearest(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), rows, columns, *sizes)
    return y
