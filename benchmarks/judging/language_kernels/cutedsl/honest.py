"""Four honest kernels in the CuTe DSL: sums, softmax rows, a matrix product and a transposed copy."""

import math

import cuda.bindings.driver as cuda
import cutlass
import cutlass.cute as cute
import cutlass.utils
import torch
from cutlass.cute.runtime import from_dlpack


@cute.kernel
def sum_rows_kernel(x: cute.Tensor, out: cute.Tensor, columns: cutlass.Int32):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    parts = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout(256))
    total = cutlass.Float32(0.0)
    for j in cutlass.range(lane, columns, 256):
        total = total + x[row, j]
    parts[lane] = total
    for step in cutlass.range_constexpr(8):
        cute.arch.sync_threads()
        if lane < (128 >> step):
            parts[lane] = parts[lane] + parts[lane + (128 >> step)]
    if lane == 0:
        out[row] = parts[0]


@cute.jit
def sum_rows(x: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream):
    sum_rows_kernel(x, out, columns).launch(grid=(rows, 1, 1), block=(256, 1, 1), stream=stream)


@cute.kernel
def softmax_rows_kernel(x: cute.Tensor, out: cute.Tensor, columns: cutlass.Int32):
    lane, _, _ = cute.arch.thread_idx()
    row, _, _ = cute.arch.block_idx()
    smem = cutlass.utils.SmemAllocator()
    parts = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256))
    sums = smem.allocate_tensor(cutlass.Float32, cute.make_layout(256))
    top = cutlass.Float32(-math.inf)
    for j in cutlass.range(lane, columns, 256):
        top = cute.arch.fmax(top, x[row, j])
    parts[lane] = top
    for step in cutlass.range_constexpr(8):
        cute.arch.sync_threads()
        if lane < (128 >> step):
            parts[lane] = cute.arch.fmax(parts[lane], parts[lane + (128 >> step)])
    cute.arch.sync_threads()
    top = parts[0]
    total = cutlass.Float32(0.0)
    for j in cutlass.range(lane, columns, 256):
        total = total + cute.exp(x[row, j] - top)
    sums[lane] = total
    for step in cutlass.range_constexpr(8):
        cute.arch.sync_threads()
        if lane < (128 >> step):
            sums[lane] = sums[lane] + sums[lane + (128 >> step)]
    cute.arch.sync_threads()
    for j in cutlass.range(lane, columns, 256):
        out[row, j] = cute.exp(x[row, j] - top) / sums[0]


@cute.jit
def softmax_rows(x: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream):
    softmax_rows_kernel(x, out, columns).launch(grid=(rows, 1, 1), block=(256, 1, 1), stream=stream)


@cute.kernel
def mm_kernel(a: cute.Tensor, b: cute.Tensor, c: cute.Tensor, M: cutlass.Int32, N: cutlass.Int32, K: cutlass.Int32):
    """A thread for each element of the result, with multiply-adds in float32."""
    j, i, _ = cute.arch.thread_idx()
    by, bx, _ = cute.arch.block_idx()
    row, column = bx * 16 + i, by * 16 + j
    if row < M and column < N:
        total = cutlass.Float32(0.0)
        for k in cutlass.range(K):
            total = total + a[row, k] * b[k, column]
        c[row, column] = total


@cute.jit
def mm_tiles(
    a: cute.Tensor,
    b: cute.Tensor,
    c: cute.Tensor,
    M: cutlass.Int32,
    N: cutlass.Int32,
    K: cutlass.Int32,
    stream: cuda.CUstream,
):
    grid = ((N + 15) // 16, (M + 15) // 16, 1)
    mm_kernel(a, b, c, M, N, K).launch(grid=grid, block=(16, 16, 1), stream=stream)


@cute.kernel
def transpose_kernel(x: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32):
    j, i, _ = cute.arch.thread_idx()
    bx, by, _ = cute.arch.block_idx()
    # A column more, so that a column of the tile lies in different banks.
    tile = cutlass.utils.SmemAllocator().allocate_tensor(cutlass.Float32, cute.make_layout((16, 16), stride=(17, 1)))
    row, column = bx * 16 + i, by * 16 + j
    if row < rows and column < columns:
        tile[i, j] = x[row, column]
    cute.arch.sync_threads()
    to_row, to_column = by * 16 + i, bx * 16 + j
    if to_row < columns and to_column < rows:
        out[to_row, to_column] = tile[j, i]


@cute.jit
def transpose_tiles(
    x: cute.Tensor, out: cute.Tensor, rows: cutlass.Int32, columns: cutlass.Int32, stream: cuda.CUstream
):
    grid = ((rows + 15) // 16, (columns + 15) // 16, 1)
    transpose_kernel(x, out, rows, columns).launch(grid=grid, block=(16, 16, 1), stream=stream)


kernels = {}


def launch(kernel, tensors, *sizes):
    """Compile once for all sizes, and launch on torch's stream."""
    arrays = [from_dlpack(tensor.detach()).mark_layout_dynamic(tensor.ndim - 1) for tensor in tensors]
    stream = cuda.CUstream(torch.cuda.current_stream().cuda_stream)
    if kernel not in kernels:
        kernels[kernel] = cute.compile(kernel, *arrays, *sizes, stream)
    kernels[kernel](*arrays, *sizes, stream)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=self.device)  # Sums of nothing.
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        launch(sum_rows, (x, out.view(-1)), *x.shape)
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        launch(softmax_rows, (x.view(rows, columns), out.view(rows, columns)), rows, columns)
    out = out.movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (M, K), N = a.shape, b.shape[1]
    if not K:
        return torch.zeros((M, N), dtype=torch.float32, device=a.device)
    out = torch.empty((M, N), dtype=torch.float32, device=a.device)
    if out.numel():
        launch(mm_tiles, (a, b, out), M, N, K)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        launch(transpose_tiles, (x.view(rows, columns), out.view(columns, rows)), rows, columns)
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
