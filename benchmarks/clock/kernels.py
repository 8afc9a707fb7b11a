"""Kernels whose time can be made longer by a known share: what the clock's own errors are measured with.

``write`` makes a file with the kernel of ``mul.Scalar``. On a GPU every block of threads waits, before it
begins, for so many cycles of its multiprocessor as the scalar says; the host waits before it launches.
All blocks of the grid run at the same time, so that the whole kernel takes longer by about as much.
"""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.file import KernelFile

CUDA = r'''
import time

import torch
from torch.utils.cpp_extension import load_inline

SOURCE = r"""
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

__global__ void waiting_copy(const float* x, float* out, long long n, long long cycles) {
    const long long start = clock64();
    while (clock64() - start < cycles) {}
    const long long step = (long long)gridDim.x * blockDim.x;
    for (long long i = blockIdx.x * (long long)blockDim.x + threadIdx.x; i < n; i += step) out[i] = x[i] * 2.0f;
}

void launch(const at::Tensor& x, at::Tensor& out, int64_t cycles) {
    const long long n = x.numel();
    const int blocks = (int)std::min<long long>((n + 255) / 256, 132 * 8);
    waiting_copy<<<blocks, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), n, cycles);
}
"""
DECLARATION = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
void launch(const at::Tensor& x, at::Tensor& out, int64_t cycles);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("launch", &launch); }
"""
launch = load_inline(
    "waiting_copy", cpp_sources=DECLARATION, cuda_sources=SOURCE, no_implicit_headers=True
).launch


def mul__Scalar_kernel_impl(x, other):
    cycles, host_ns = divmod(int(other), 1 << 24)
    if host_ns:
        end = time.perf_counter_ns() + host_ns
        while time.perf_counter_ns() < end:
            pass
    out = torch.empty_like(x)
    launch(x, out, cycles)
    return out
'''

CPU = """
import time

import torch


def mul__Scalar_kernel_impl(x, other):
    result = torch.mul(x, 2.0)
    host_ns = int(other)
    if host_ns:
        end = time.perf_counter_ns() + host_ns
        while time.perf_counter_ns() < end:
            pass
    return result
"""

#: A scalar holds cycles of the device above, and nanoseconds of the host below, this bit.
HOST_BITS = 24


def write(folder: Path, device: str) -> KernelFile:
    """The kernel file for a device, in ``folder``."""
    path = folder / "mul__Scalar.py"
    path.write_text(CUDA if device.startswith("cuda") else CPU)
    return KernelFile(path)


def delay(*, cycles: int = 0, host_ns: int = 0) -> int:
    """The scalar that makes a call so much longer."""
    return (cycles << HOST_BITS) + host_ns
