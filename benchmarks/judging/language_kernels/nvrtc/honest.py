"""Four honest kernels in CUDA C++ through NVRTC and cuda.core: sums, softmax rows, a product, a transposed copy."""

import functools
import math

import numpy
import torch

try:
    from cuda.core import Device, LaunchConfig, Program, ProgramOptions, launch
except ImportError:  # Before 0.5.
    from cuda.core.experimental import Device, LaunchConfig, Program, ProgramOptions, launch

CUDA = r"""
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
"""


class OfTorch:
    """torch's current stream, as cuda.core takes streams of others."""

    def __cuda_stream__(self):
        return 0, torch.cuda.current_stream().cuda_stream


@functools.cache
def compiled(name):
    device = Device(torch.cuda.current_device())
    device.set_current()
    options = ProgramOptions(arch=f"sm_{device.arch}")
    return Program(CUDA, "c++", options=options).compile("cubin").get_kernel(name)


def launch_on(name, grid, block, *arguments):
    """Launch a kernel on torch's stream; tensors go as addresses, sizes as 32-bit integers."""
    device = Device(torch.cuda.current_device())
    device.set_current()
    values = [a.data_ptr() if isinstance(a, torch.Tensor) else numpy.int32(a) for a in arguments]
    launch(device.create_stream(OfTorch()), LaunchConfig(grid=grid, block=block), compiled(name), *values)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        launch_on("sum_rows", x.shape[0], 256, x, out, x.shape[1])
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        launch_on("softmax_rows", rows, 256, x, out, columns)
    out = out.movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=a.device)
    if out.numel():
        launch_on("mm_tiles", ((M + 15) // 16, (N + 15) // 16), (16, 16), a, b, out, M, N, K)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        launch_on("transpose_tiles", ((rows + 15) // 16, (columns + 15) // 16), (16, 16), x, out, rows, columns)
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
