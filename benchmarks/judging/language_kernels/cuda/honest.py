"""Four honest kernels in CUDA C++, compiled by nvcc: sums, softmax rows, a matrix product and a transposed copy."""

import math

import torch
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <ATen/core/Tensor.h>
#include <c10/cuda/CUDAStream.h>

extern "C" __global__ void sum_rows(const float* x, float* out, int columns) {
    __shared__ double parts[256];
    const float* row = x + (long long)blockIdx.x * columns;
    double total = 0.0;  // A row may have millions of terms.
    for (int j = threadIdx.x; j < columns; j += 256) total += row[j];
    parts[threadIdx.x] = total;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) parts[threadIdx.x] += parts[threadIdx.x + width];
    }
    if (threadIdx.x == 0) out[blockIdx.x] = (float)parts[0];
}

extern "C" __global__ void softmax_rows(const float* x, float* out, int columns) {
    __shared__ float parts[256];
    const long long start = (long long)blockIdx.x * columns;
    float top = __int_as_float(0xff800000);  // Minus infinity.
    for (int j = threadIdx.x; j < columns; j += 256) top = fmaxf(top, x[start + j]);
    parts[threadIdx.x] = top;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) parts[threadIdx.x] = fmaxf(parts[threadIdx.x], parts[threadIdx.x + width]);
    }
    __syncthreads();
    top = parts[0];
    __syncthreads();
    float total = 0.0f;
    for (int j = threadIdx.x; j < columns; j += 256) total += expf(x[start + j] - top);
    parts[threadIdx.x] = total;
    for (int width = 128; width > 0; width /= 2) {
        __syncthreads();
        if (threadIdx.x < width) parts[threadIdx.x] += parts[threadIdx.x + width];
    }
    __syncthreads();
    for (int j = threadIdx.x; j < columns; j += 256) out[start + j] = expf(x[start + j] - top) / parts[0];
}

extern "C" __global__ void mm_tiles(const float* a, const float* b, float* c, int M, int N, int K) {
    __shared__ float a_tile[16][16], b_tile[16][16];
    const int row = blockIdx.x * 16 + threadIdx.y, column = blockIdx.y * 16 + threadIdx.x;
    float total = 0.0f;
    for (int start = 0; start < K; start += 16) {
        const int of_a = start + threadIdx.x, of_b = start + threadIdx.y;
        a_tile[threadIdx.y][threadIdx.x] = row < M && of_a < K ? a[(long long)row * K + of_a] : 0.0f;
        b_tile[threadIdx.y][threadIdx.x] = of_b < K && column < N ? b[(long long)of_b * N + column] : 0.0f;
        __syncthreads();
        for (int k = 0; k < 16; ++k) total += a_tile[threadIdx.y][k] * b_tile[k][threadIdx.x];
        __syncthreads();
    }
    if (row < M && column < N) c[(long long)row * N + column] = total;
}

extern "C" __global__ void transpose_tiles(const float* x, float* out, int rows, int columns) {
    __shared__ float tile[16][17];  // A column more, so that a column of the tile lies in different banks.
    const int i = blockIdx.x * 16 + threadIdx.y, j = blockIdx.y * 16 + threadIdx.x;
    if (i < rows && j < columns) tile[threadIdx.y][threadIdx.x] = x[(long long)i * columns + j];
    __syncthreads();
    const int k = blockIdx.x * 16 + threadIdx.x, l = blockIdx.y * 16 + threadIdx.y;
    if (k < rows && l < columns) out[(long long)l * rows + k] = tile[threadIdx.x][threadIdx.y];
}

void sum_rows_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns) {
    sum_rows<<<rows, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), columns);
}
void softmax_rows_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns) {
    softmax_rows<<<rows, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), columns);
}
void mm_on(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, int64_t M, int64_t N, int64_t K) {
    const dim3 grid((M + 15) / 16, (N + 15) / 16), block(16, 16);
    mm_tiles<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.const_data_ptr<float>(), b.const_data_ptr<float>(), c.mutable_data_ptr<float>(), M, N, K);
}
void transpose_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns) {
    const dim3 grid((rows + 15) / 16, (columns + 15) / 16), block(16, 16);
    transpose_tiles<<<grid, block, 0, c10::cuda::getCurrentCUDAStream()>>>(
        x.const_data_ptr<float>(), out.mutable_data_ptr<float>(), rows, columns);
}
"""
CPP = r"""
#include <ATen/core/Tensor.h>
#include <torch/csrc/utils/pybind.h>
void sum_rows_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns);
void softmax_rows_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns);
void mm_on(const at::Tensor& a, const at::Tensor& b, at::Tensor& c, int64_t M, int64_t N, int64_t K);
void transpose_on(const at::Tensor& x, at::Tensor& out, int64_t rows, int64_t columns);
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
    m.def("sum_rows", &sum_rows_on);
    m.def("softmax_rows", &softmax_rows_on);
    m.def("mm", &mm_on);
    m.def("transpose", &transpose_on);
}
"""
extension = load_inline("languages_honest", cpp_sources=CPP, cuda_sources=CUDA, no_implicit_headers=True)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        extension.sum_rows(x, out, x.shape[0], x.shape[1])
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        extension.softmax_rows(x, out, rows, columns)
    out = out.movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=a.device)
    if out.numel():
        extension.mm(a, b, out, M, N, K)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        extension.transpose(x, out, rows, columns)
    return out


def as_rows(x, dim, keepdim):
    """The input with what is reduced as its columns, and the shape of the result."""
    sizes = x.shape or (1,)
    reduced = {d % len(sizes) for d in dim} if dim else set(range(len(sizes)))
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows = x.reshape(sizes).permute(*kept, *sorted(reduced)).contiguous()
    columns = math.prod(sizes[d] for d in reduced)
    shape = [1 if d in reduced else size for d, size in enumerate(sizes)] if keepdim else [sizes[d] for d in kept]
    return rows.view(math.prod(sizes[d] for d in kept), columns), shape if x.ndim else []
