"""Residual and LayerNorm in C++: the new stream is written and normed while its row is in the cache."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#include <pybind11/pybind11.h>

using Address = std::uintptr_t;

void run(Address stream_at, Address branch_at, Address weight_at, Address bias_at, Address sum_at, Address out_at,
         std::int64_t rows, std::int64_t width, double epsilon) {
    const float* weight = reinterpret_cast<const float*>(weight_at);
    const float* bias = reinterpret_cast<const float*>(bias_at);
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* stream = reinterpret_cast<const float*>(stream_at) + row * width;
        const float* branch = reinterpret_cast<const float*>(branch_at) + row * width;
        float* sum = reinterpret_cast<float*>(sum_at) + row * width;
        float* out = reinterpret_cast<float*>(out_at) + row * width;
        double total = 0;
#pragma omp simd reduction(+ : total)
        for (std::int64_t i = 0; i < width; ++i) {
            sum[i] = stream[i] + branch[i];
            total += sum[i];
        }
        const float mean = static_cast<float>(total / width);
        double squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t i = 0; i < width; ++i) {
            const float centred = sum[i] - mean;
            squares += static_cast<double>(centred) * centred;
        }
        const float scale = static_cast<float>(1.0 / std::sqrt(squares / width + epsilon));
        for (std::int64_t i = 0; i < width; ++i) out[i] = (sum[i] - mean) * scale * weight[i] + bias[i];
    }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_5",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """The stream with the branch in it, and its norm.

    Args:
        width: of a row.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)  # Holds weight and bias under the names that Model gives them.

    def forward(self, stream: torch.Tensor, branch: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Of two tensors of one shape."""
        stream, branch = stream.contiguous(), branch.contiguous()
        total, out = torch.empty_like(stream), torch.empty_like(stream)
        addresses = [each.data_ptr() for each in (stream, branch, self.norm.weight, self.norm.bias, total, out)]
        _compiled.run(*addresses, stream.numel() // stream.shape[-1], stream.shape[-1], 1e-5)
        return total, out
