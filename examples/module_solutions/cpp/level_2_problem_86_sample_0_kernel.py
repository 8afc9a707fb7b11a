"""DCN v2's cross layer in C++: a tiled product whose rows are crossed with the features as they leave the registers."""

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
constexpr std::int64_t ROWS = 4, COLUMNS = 16, DEPTH = 256;

// Weights are [to, from]; a panel of COLUMNS of them is turned once for all rows, so that lanes lie side by side.
void run(Address first_at, Address x_at, Address weight_at, Address bias_at, Address out_at, Address panel_at,
         std::int64_t rows, std::int64_t width) {
    const float* first = reinterpret_cast<const float*>(first_at);
    const float* x = reinterpret_cast<const float*>(x_at);
    const float* weight = reinterpret_cast<const float*>(weight_at);
    const float* bias = reinterpret_cast<const float*>(bias_at);
    float* out = reinterpret_cast<float*>(out_at);
    float* panel = reinterpret_cast<float*>(panel_at);
    for (std::int64_t column = 0; column < width; column += COLUMNS) {
        const std::int64_t lanes = width - column < COLUMNS ? width - column : COLUMNS;
        for (std::int64_t k = 0; k < width; ++k)
            for (std::int64_t lane = 0; lane < COLUMNS; ++lane)
                panel[k * COLUMNS + lane] = lane < lanes ? weight[(column + lane) * width + k] : 0.0f;
        for (std::int64_t row = 0; row < rows; row += ROWS) {
            const std::int64_t count = rows - row < ROWS ? rows - row : ROWS;
            float sum[ROWS][COLUMNS] = {};
            for (std::int64_t start = 0; start < width; start += DEPTH) {
                const std::int64_t end = start + DEPTH < width ? start + DEPTH : width;
                float part[ROWS][COLUMNS] = {};
                for (std::int64_t k = start; k < end; ++k)
                    for (std::int64_t r = 0; r < ROWS; ++r) {
                        const float value = x[(row + (r < count ? r : 0)) * width + k];
#pragma omp simd
                        for (std::int64_t lane = 0; lane < COLUMNS; ++lane)
                            part[r][lane] += value * panel[k * COLUMNS + lane];
                    }
                for (std::int64_t r = 0; r < ROWS; ++r)
                    for (std::int64_t lane = 0; lane < COLUMNS; ++lane) sum[r][lane] += part[r][lane];
            }
            for (std::int64_t r = 0; r < count; ++r)
                for (std::int64_t lane = 0; lane < lanes; ++lane) {
                    const std::int64_t at = (row + r) * width + column + lane;
                    out[at] = first[at] * (sum[r][lane] + bias[column + lane]) + x[at];
                }
        }
    }
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    module.def("run", &run, pybind11::call_guard<pybind11::gil_scoped_release>());
}
"""

_compiled = load_inline(
    name="opsmith_module_2_86",
    cpp_sources=SOURCE,
    extra_cflags=["-O3", "-march=native", "-fopenmp-simd"],
    no_implicit_headers=True,
    verbose=False,
)


class ModelNew(nn.Module):
    """``first * (x W^T + b) + x``.

    Args:
        width: of a row.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.cross = nn.Linear(width, width)  # Holds weight and bias under the names that Model gives them.

    def forward(self, first: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        """Of two tensors ``[batch, width]``."""
        first, x = first.contiguous(), x.contiguous()
        out, panel = torch.empty_like(x), torch.empty(x.shape[1], 16)
        addresses = [each.data_ptr() for each in (first, x, self.cross.weight, self.cross.bias, out, panel)]
        _compiled.run(*addresses, *x.shape)
        return out
