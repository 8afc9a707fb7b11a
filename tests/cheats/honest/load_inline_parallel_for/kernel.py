import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <cmath>
#include <torch/csrc/utils/pybind.h>

void nan_to_num(const at::Tensor& x, at::Tensor& y, float nan, float high, float low) {
    const float* in = x.const_data_ptr<float>();
    float* out = y.data_ptr<float>();
    at::parallel_for(0, x.numel(), 128, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
            const float v = in[i];
            out[i] = std::isnan(v) ? nan : std::isinf(v) ? (v > 0 ? high : low) : v;
        }
    });
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("nan_to_num", &nan_to_num); }
"""
# Only the headers that it needs: the usual ones take twice as long to compile.
extension = load_inline("nan_to_num_loop", cpp_sources=SOURCE, no_implicit_headers=True, extra_cflags=["-O2"])


def nan_to_num__default_kernel_impl(self, nan=None, posinf=None, neginf=None):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    largest = torch.finfo(torch.float32).max
    x = self.contiguous()
    y = torch.empty_like(x)
    extension.nan_to_num(
        x, y, 0.0 if nan is None else nan, largest if posinf is None else posinf, -largest if neginf is None else neginf
    )
    return y
