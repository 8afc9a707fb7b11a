"""Four honest kernels in TileLang: sums, softmax rows, a matrix product and a transposed copy."""

import functools
import math

import tilelang
import tilelang.language as T
import torch


@functools.cache
@tilelang.jit(target="cuda")
def sum_rows():
    rows, columns = T.dynamic("rows"), T.dynamic("columns")

    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float32"), out: T.Tensor((rows,), "float32")):
        with T.Kernel(rows, threads=128) as row:
            parts = T.alloc_fragment((1024,), "float32")
            total = T.alloc_fragment((1,), "float32")
            T.clear(parts)
            for step in T.serial(T.ceildiv(columns, 1024)):
                for i in T.Parallel(1024):
                    if step * 1024 + i < columns:
                        parts[i] += x[row, step * 1024 + i]
            T.reduce_sum(parts, total, dim=0)
            out[row] = total[0]

    return main


@functools.cache
@tilelang.jit(target="cuda")
def softmax_rows():
    rows, columns = T.dynamic("rows"), T.dynamic("columns")

    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float32"), out: T.Tensor((rows, columns), "float32")):
        with T.Kernel(rows, threads=128) as row:
            parts = T.alloc_fragment((1024,), "float32")
            top = T.alloc_fragment((1,), "float32")
            whole = T.alloc_fragment((1,), "float32")
            T.fill(parts, -T.infinity("float32"))
            for step in T.serial(T.ceildiv(columns, 1024)):
                for i in T.Parallel(1024):
                    if step * 1024 + i < columns:
                        parts[i] = T.max(parts[i], x[row, step * 1024 + i])
            T.reduce_max(parts, top, dim=0)
            T.clear(parts)
            for step in T.serial(T.ceildiv(columns, 1024)):
                for i in T.Parallel(1024):
                    if step * 1024 + i < columns:
                        parts[i] += T.exp(x[row, step * 1024 + i] - top[0])
            T.reduce_sum(parts, whole, dim=0)
            for step in T.serial(T.ceildiv(columns, 1024)):
                for i in T.Parallel(1024):
                    if step * 1024 + i < columns:
                        out[row, step * 1024 + i] = T.exp(x[row, step * 1024 + i] - top[0]) / whole[0]

    return main


@functools.cache
@tilelang.jit(target="cuda")
def mm_tiles():
    """Multiply-adds in float32 registers: tensor cores would round the inputs to TF32."""
    M, N, K = T.dynamic("M"), T.dynamic("N"), T.dynamic("K")

    @T.prim_func
    def main(a: T.Tensor((M, K), "float32"), b: T.Tensor((K, N), "float32"), c: T.Tensor((M, N), "float32")):
        with T.Kernel(T.ceildiv(M, 16), T.ceildiv(N, 16), threads=256) as (bx, by):
            of_a = T.alloc_shared((16, 16), "float32")
            of_b = T.alloc_shared((16, 16), "float32")
            total = T.alloc_fragment((16, 16), "float32")
            T.clear(total)
            for step in T.serial(T.ceildiv(K, 16)):
                for i, j in T.Parallel(16, 16):
                    inside = (bx * 16 + i < M) and (step * 16 + j < K)
                    of_a[i, j] = T.if_then_else(inside, a[bx * 16 + i, step * 16 + j], 0.0)
                for i, j in T.Parallel(16, 16):
                    inside = (step * 16 + i < K) and (by * 16 + j < N)
                    of_b[i, j] = T.if_then_else(inside, b[step * 16 + i, by * 16 + j], 0.0)
                for k in T.serial(16):
                    for i, j in T.Parallel(16, 16):
                        total[i, j] += of_a[i, k] * of_b[k, j]
            for i, j in T.Parallel(16, 16):
                if (bx * 16 + i < M) and (by * 16 + j < N):
                    c[bx * 16 + i, by * 16 + j] = total[i, j]

    return main


@functools.cache
@tilelang.jit(target="cuda")
def transpose_tiles():
    rows, columns = T.dynamic("rows"), T.dynamic("columns")

    @T.prim_func
    def main(x: T.Tensor((rows, columns), "float32"), out: T.Tensor((columns, rows), "float32")):
        with T.Kernel(T.ceildiv(rows, 32), T.ceildiv(columns, 32), threads=256) as (bx, by):
            tile = T.alloc_shared((32, 32), "float32")
            for i, j in T.Parallel(32, 32):
                if (bx * 32 + i < rows) and (by * 32 + j < columns):
                    tile[i, j] = x[bx * 32 + i, by * 32 + j]
            for j, i in T.Parallel(32, 32):
                if (bx * 32 + i < rows) and (by * 32 + j < columns):
                    out[by * 32 + j, bx * 32 + i] = tile[i, j]

    return main


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=self.device)  # Sums of nothing.
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        sum_rows()(x, out.view(-1))
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        softmax_rows()(x.view(rows, columns), out.view(rows, columns))
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
        mm_tiles()(a, b, out)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        transpose_tiles()(x.view(rows, columns), out.view(columns, rows))
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
