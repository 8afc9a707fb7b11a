"""relu on a CPU, in C++: ``max(x, 0)``, reading and writing ``2 * numel * itemsize`` bytes.

The code is compiled when this file is loaded. It takes plain addresses and needs none of torch's headers,
so that takes a few seconds instead of half a minute.
"""

from __future__ import annotations

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = """
#include <cstdint>
#include <pybind11/pybind11.h>

// The comparison is false for NaN, which is kept as it is.
void relu_float32(std::uintptr_t in, std::uintptr_t out, std::int64_t numel) {
    const float* x = reinterpret_cast<const float*>(in);
    float* y = reinterpret_cast<float*>(out);
    for (std::int64_t i = 0; i < numel; ++i) y[i] = x[i] < 0.0f ? 0.0f : x[i];
}

// As an unsigned number, a bfloat16 from 0x8000 (-0) to 0xff80 (-infinity) is negative; NaNs lie outside.
void relu_bfloat16(std::uintptr_t in, std::uintptr_t out, std::int64_t numel) {
    const std::uint16_t* x = reinterpret_cast<const std::uint16_t*>(in);
    std::uint16_t* y = reinterpret_cast<std::uint16_t*>(out);
    for (std::int64_t i = 0; i < numel; ++i) y[i] = x[i] >= 0x8000 && x[i] <= 0xff80 ? 0 : x[i];
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
    using release = pybind11::call_guard<pybind11::gil_scoped_release>;
    module.def("relu_float32", &relu_float32, release());
    module.def("relu_bfloat16", &relu_bfloat16, release());
}
"""

_compiled = load_inline(
    name="opsmith_example_relu", cpp_sources=SOURCE, extra_cflags=["-O3"], no_implicit_headers=True, verbose=False
)
_LOOPS = {torch.float32: _compiled.relu_float32, torch.bfloat16: _compiled.relu_bfloat16}


def relu__default_kernel_impl(self: torch.Tensor) -> torch.Tensor:
    """``max(self, 0)`` of a strided CPU tensor in float32 or bfloat16.

    Raises:
        NotImplementedError: any other device, layout or dtype.
    """
    if self.device.type != "cpu" or self.layout is not torch.strided or self.is_neg():
        raise NotImplementedError("only strided CPU tensors are served")
    if self.dtype not in _LOOPS:
        raise NotImplementedError(f"{self.dtype} is not served")
    out = torch.empty_like(self)  # Dense, in the order of self's strides: eager's layout.
    # The loop runs along memory; an input with gaps or overlaps is packed like the output first.
    packed = self if self.stride() == out.stride() else torch.empty_like(self).copy_(self)
    _LOOPS[self.dtype](packed.data_ptr(), out.data_ptr(), self.numel())
    return out
