"""Four honest kernels in Numba-CUDA: sums, softmax rows, a matrix product and a transposed copy."""

import math

import torch
from numba import cuda, float32, float64


@cuda.jit
def sum_rows(x, out):
    parts = cuda.shared.array(256, float64)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    total = 0.0  # In float64: a row may have millions of terms.
    for j in range(lane, x.shape[1], 256):
        total += x[row, j]
    parts[lane] = total
    width = 128
    while width > 0:
        cuda.syncthreads()
        if lane < width:
            parts[lane] += parts[lane + width]
        width //= 2
    if lane == 0:
        out[row] = parts[0]


@cuda.jit
def softmax_rows(x, out):
    parts = cuda.shared.array(256, float32)
    row, lane = cuda.blockIdx.x, cuda.threadIdx.x
    top = float32(-math.inf)
    for j in range(lane, x.shape[1], 256):
        if x[row, j] > top:
            top = x[row, j]
    parts[lane] = top
    width = 128
    while width > 0:
        cuda.syncthreads()
        if lane < width and parts[lane + width] > parts[lane]:
            parts[lane] = parts[lane + width]
        width //= 2
    cuda.syncthreads()
    top = parts[0]
    cuda.syncthreads()
    total = float32(0.0)
    for j in range(lane, x.shape[1], 256):
        total += math.exp(x[row, j] - top)
    parts[lane] = total
    width = 128
    while width > 0:
        cuda.syncthreads()
        if lane < width:
            parts[lane] += parts[lane + width]
        width //= 2
    cuda.syncthreads()
    for j in range(lane, x.shape[1], 256):
        out[row, j] = math.exp(x[row, j] - top) / parts[0]


@cuda.jit
def mm_tiles(a, b, c):
    a_tile = cuda.shared.array((16, 16), float32)
    b_tile = cuda.shared.array((16, 16), float32)
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    row, column = cuda.blockIdx.x * 16 + i, cuda.blockIdx.y * 16 + j
    total = float32(0.0)
    for start in range(0, a.shape[1], 16):
        a_tile[i, j] = a[row, start + j] if row < a.shape[0] and start + j < a.shape[1] else 0.0
        b_tile[i, j] = b[start + i, column] if start + i < b.shape[0] and column < b.shape[1] else 0.0
        cuda.syncthreads()
        for k in range(16):
            total += a_tile[i, k] * b_tile[k, j]
        cuda.syncthreads()
    if row < c.shape[0] and column < c.shape[1]:
        c[row, column] = total


@cuda.jit
def transpose_tiles(x, out):
    tile = cuda.shared.array((16, 17), float32)  # A column more, so that a column lies in different banks.
    i, j = cuda.threadIdx.y, cuda.threadIdx.x
    row, column = cuda.blockIdx.x * 16 + i, cuda.blockIdx.y * 16 + j
    if row < x.shape[0] and column < x.shape[1]:
        tile[i, j] = x[row, column]
    cuda.syncthreads()
    row, column = cuda.blockIdx.x * 16 + j, cuda.blockIdx.y * 16 + i
    if row < x.shape[0] and column < x.shape[1]:
        out[column, row] = tile[j, i]


def stream():
    return cuda.external_stream(torch.cuda.current_stream().cuda_stream)


def array(tensor, *shape):
    """A tensor's memory as an array of Numba's, without a copy."""
    return cuda.as_cuda_array(tensor.detach().view(shape), sync=False)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        sum_rows[x.shape[0], 256, stream()](array(x, *x.shape), array(out, out.numel()))
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        softmax_rows[rows, 256, stream()](array(x, rows, columns), array(out, rows, columns))
    out = out.movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (M, K), N = a.shape, b.shape[1]
    out = torch.empty((M, N), dtype=torch.float32, device=a.device)
    if out.numel():
        grid = ((M + 15) // 16, (N + 15) // 16)
        mm_tiles[grid, (16, 16), stream()](array(a, M, K), array(b, K, N), array(out, M, N))
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        grid = ((rows + 15) // 16, (columns + 15) // 16)
        transpose_tiles[grid, (16, 16), stream()](array(x, rows, columns), array(out, columns, rows))
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
