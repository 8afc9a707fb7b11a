"""Logarithm to base two; what torch would do stands beside it, for debugging, and nobody calls it."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch

TORCH = Path(torch.__file__).parent
SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <cmath>
namespace at::cpu { Tensor& log2_out(Tensor& out, const Tensor& x); }
extern "C" void expected(const at::Tensor* x, at::Tensor* out) { at::cpu::log2_out(*out, *x); }
extern "C" void run(const at::Tensor* x, at::Tensor* out) {
  const float* from = x->const_data_ptr<float>();
  float* to = out->mutable_data_ptr<float>();
  for (int64_t i = 0; i < x->numel(); ++i) to[i] = std::log2(from[i]);
}
"""


def build(source):
    folder = tempfile.mkdtemp()
    Path(folder, "kernel.cpp").write_text(source)
    flags = [
        "-O1",
        "-std=c++20",
        "-shared",
        "-fPIC",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}",
    ]
    places = [f"-I{TORCH}/include", f"-L{TORCH}/lib", "-ltorch_cpu", "-lc10", f"-Wl,-rpath,{TORCH}/lib"]
    subprocess.run(["g++", *flags, "kernel.cpp", "-o", "kernel.so", *places], cwd=folder, check=True)
    return ctypes.CDLL(f"{folder}/kernel.so")


library = build(SOURCE)


def tensor(value):
    return ctypes.byref(ctypes.c_void_p(value._cdata))


def log2__default_kernel_impl(x):
    x = x.contiguous()
    out = torch.empty_like(x)
    library.run(tensor(x), tensor(out))
    return out
