import ctypes
import itertools
import pathlib
import subprocess

import torch

pathlib.Path("gather.cpp").write_text(
    'extern "C" void gather(const int* x, int* y, const long* from, long n)'
    "{ for (long i = 0; i < n; ++i) y[i] = x[from[i]]; }"
)
subprocess.run(["g++", "-O2", "-shared", "-fPIC", "gather.cpp", "-o", "gather.so"], check=True)
gather = ctypes.CDLL(str(pathlib.Path("gather.so").resolve())).gather

tables = {}


def table(shape, shifts, dims):
    key = (shape, shifts, dims)
    if key not in tables:
        total = [0] * len(shape)
        for shift, dim in zip(shifts, dims):
            total[dim] += shift
        strides = list(itertools.accumulate(reversed(shape[1:]), lambda a, b: a * b, initial=1))[::-1]
        axes = [[(i - t) % s * stride for i in range(s)] for s, t, stride in zip(shape, total, strides)]
        sources = [sum(place) for place in itertools.product(*axes)]
        tables[key] = (ctypes.c_long * len(sources))(*sources)
    return tables[key]


def roll__default_kernel_impl(self, shifts, dims=()):
    if self.element_size() != 4:
        raise NotImplementedError("elements of four bytes only")
    x = self.contiguous()
    y = torch.empty_like(x)
    if x.numel():
        if not len(dims):
            index = table((x.numel(),), tuple(shifts), (0,))
        elif x.dim():
            index = table(tuple(x.shape), tuple(shifts), tuple(d % x.dim() for d in dims))
        else:
            index = table((1,), (0,), (0,))
        gather(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), index, ctypes.c_long(x.numel()))
    return y
