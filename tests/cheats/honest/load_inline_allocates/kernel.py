import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/utils/pybind.h>

at::Tensor flip(const at::Tensor& x, std::vector<bool> turned) {
    TORCH_CHECK_NOT_IMPLEMENTED(x.element_size() == 4, "elements of four bytes only");
    at::Tensor y = at::empty(x.sizes(), x.options());
    const auto* in = static_cast<const uint32_t*>(x.const_data_ptr());
    auto* out = static_cast<uint32_t*>(y.mutable_data_ptr());
    for (int64_t i = 0; i < x.numel(); ++i) {
        int64_t rest = i, from = 0;
        for (int64_t d = x.dim() - 1; d >= 0; --d) {
            const int64_t size = x.size(d), place = rest % size;
            from += (turned[d] ? size - 1 - place : place) * x.stride(d);
            rest /= size;
        }
        out[i] = in[from];
    }
    return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("flip", &flip); }
"""
extension = load_inline("flip_strided", cpp_sources=[SOURCE], no_implicit_headers=True, extra_cflags=["-O1"])


def flip__default_kernel_impl(self, dims):
    turned = [False] * self.dim()
    for dim in dims:
        if turned[dim]:
            raise RuntimeError("a dim appears twice")
        turned[dim] = True
    return extension.flip(self, turned)
