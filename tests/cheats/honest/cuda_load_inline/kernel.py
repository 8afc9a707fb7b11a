import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

__global__ void threshold_backward_kernel(const float* grad, const float* x, float* out, float threshold, int64_t n) {
    const int64_t i = blockIdx.x * (int64_t)blockDim.x + threadIdx.x;
    if (i < n) out[i] = x[i] <= threshold ? 0.0f : grad[i];
}

void threshold_backward(const at::Tensor& grad, const at::Tensor& x, at::Tensor& out, double threshold) {
    const int64_t n = x.numel();
    if (n == 0) return;
    threshold_backward_kernel<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        grad.const_data_ptr<float>(), x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), (float)threshold, n);
}
"""
CPP = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
void threshold_backward(const at::Tensor& grad, const at::Tensor& x, at::Tensor& out, double threshold);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("threshold_backward", &threshold_backward); }
"""
extension = load_inline("honest_threshold", cpp_sources=CPP, cuda_sources=CUDA, no_implicit_headers=True)


def threshold_backward__default_kernel_impl(grad_output, self, threshold):
    if grad_output.dtype != torch.float32 or self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    grad, x = (tensor.contiguous() for tensor in torch.broadcast_tensors(grad_output, self))
    out = torch.empty_like(x)
    extension.threshold_backward(grad, x, out, float(threshold))
    return out
