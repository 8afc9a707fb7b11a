"""Cross-entropy with a z-loss in C++: the largest logit and the partition function of each token, two numbers a row."""

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

void run(Address logits_at, Address targets_at, Address out_at, std::int64_t rows, std::int64_t columns) {
    const std::int64_t* targets = reinterpret_cast<const std::int64_t*>(targets_at);
    float* out = reinterpret_cast<float*>(out_at);
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* x = reinterpret_cast<const float*>(logits_at) + row * columns;
        float largest = -INFINITY;
#pragma omp simd reduction(max : largest)
        for (std::int64_t i = 0; i < columns; ++i) largest = x[i] > largest ? x[i] : largest;
        double sum = 0;
#pragma omp simd reduction(+ : sum)
        for (std::int64_t i = 0; i < columns; ++i) sum += exponential(x[i] - largest);
        const double partition = largest + std::log(sum);
        out[row] = static_cast<float>(partition - x[targets[row]] + 0.01 * partition * partition);
    }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_26",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """Each token's loss, and a hundredth of its squared log partition function."""

    def forward(self, logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Of ``[tokens, vocabulary]`` and the index of each token's class."""
        logits, targets = logits.contiguous(), targets.contiguous()
        out = torch.empty(logits.shape[0])
        _compiled.run(logits.data_ptr(), targets.data_ptr(), out.data_ptr(), *logits.shape)
        return out
