"""SwiGLU in C++: one pass that reads the gate and the other half and writes their product, ``12 * numel`` bytes."""

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

void run(Address gate_at, Address up_at, Address out_at, std::int64_t numel) {
    const float* gate = reinterpret_cast<const float*>(gate_at);
    const float* up = reinterpret_cast<const float*>(up_at);
    float* out = reinterpret_cast<float*>(out_at);
    for (std::int64_t i = 0; i < numel; ++i) out[i] = gate[i] / (1.0f + exponential(-gate[i])) * up[i];
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_1",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """``silu(gate) * up``."""

    def forward(self, gate: torch.Tensor, up: torch.Tensor) -> torch.Tensor:
        """Of two tensors of one shape."""
        gate, up = gate.contiguous(), up.contiguous()
        out = torch.empty_like(gate)
        _compiled.run(gate.data_ptr(), up.data_ptr(), out.data_ptr(), out.numel())
        return out
