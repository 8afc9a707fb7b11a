"""Capped attention weights in C++: tanh, scale and softmax of a row while it is in the cache."""

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

static inline float capped(float x) {
    const float e = exponential(2.0f / 20.0f * (x < 0 ? x : -x));  // In (0, 1], so nothing overflows.
    const float tanh = (1.0f - e) / (1.0f + e);
    return 20.0f * (x < 0 ? -tanh : tanh);
}

void run(Address in_at, Address out_at, std::int64_t rows, std::int64_t columns) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* x = reinterpret_cast<const float*>(in_at) + row * columns;
        float* y = reinterpret_cast<float*>(out_at) + row * columns;
        float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
        for (std::int64_t i = 0; i < columns; ++i) {
            y[i] = capped(x[i]);
            largest = y[i] > largest ? y[i] : largest;
        }
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < columns; ++i) {
            y[i] = exponential(y[i] - largest);
            sum += y[i];
        }
        const float scale = static_cast<float>(1.0 / sum);
        for (std::int64_t i = 0; i < columns; ++i) y[i] *= scale;
    }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_17",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """``softmax(20 tanh(scores / 20))`` over the last dimension."""

    def forward(self, scores: torch.Tensor) -> torch.Tensor:
        """Of any leading dimensions."""
        scores = scores.contiguous()
        out = torch.empty_like(scores)
        columns = scores.shape[-1]
        _compiled.run(scores.data_ptr(), out.data_ptr(), scores.numel() // columns, columns)
        return out
