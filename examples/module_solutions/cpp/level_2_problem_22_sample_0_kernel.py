"""Gated RMSNorm in C++: a row's gate, its mean square and its scale while the row is in the cache."""

from __future__ import annotations

import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#include <pybind11/pybind11.h>

// exp(x) in a form that compilers vectorise: 2^n times a polynomial in what remains, to about one rounding.
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    const float n = std::nearbyint(x * 1.44269504f);
    const float r = (x - n * 0.693145752f) - n * 1.42860677e-6f;
    float p = 1.0f / 5040;
    p = p * r + 1.0f / 720;
    p = p * r + 1.0f / 120;
    p = p * r + 1.0f / 24;
    p = p * r + 1.0f / 6;
    p = p * r + 0.5f;
    p = p * r + 1.0f;
    p = p * r + 1.0f;
    const std::int32_t bits = (static_cast<std::int32_t>(n) + 127) << 23;
    float power;
    std::memcpy(&power, &bits, 4);
    return p * power;
}

using Address = std::uintptr_t;

void run(Address x_at, Address gate_at, Address weight_at, Address out_at, std::int64_t rows, std::int64_t width,
         double epsilon) {
    const float* weight = reinterpret_cast<const float*>(weight_at);
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* x = reinterpret_cast<const float*>(x_at) + row * width;
        const float* gate = reinterpret_cast<const float*>(gate_at) + row * width;
        float* out = reinterpret_cast<float*>(out_at) + row * width;
        double squares = 0;
#pragma omp simd reduction(+ : squares)
        for (std::int64_t i = 0; i < width; ++i) {
            out[i] = x[i] * (gate[i] / (1.0f + exponential(-gate[i])));
            squares += static_cast<double>(out[i]) * out[i];
        }
        const float scale = static_cast<float>(1.0 / std::sqrt(squares / width + epsilon));
        for (std::int64_t i = 0; i < width; ++i) out[i] = out[i] * scale * weight[i];
    }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_22",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """``norm(x * silu(gate))``.

    Args:
        width: of a row.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.norm = nn.RMSNorm(width, eps=1e-5)  # Holds the weight under the name that Model gives it.

    def forward(self, x: torch.Tensor, gate: torch.Tensor) -> torch.Tensor:
        """Of two tensors of one shape."""
        x, gate, weight = x.contiguous(), gate.contiguous(), self.norm.weight
        out = torch.empty_like(x)
        rows, width = x.numel() // x.shape[-1], x.shape[-1]
        _compiled.run(x.data_ptr(), gate.data_ptr(), weight.data_ptr(), out.data_ptr(), rows, width, 1e-5)
        return out
