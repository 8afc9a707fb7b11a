"""Four honest kernels in Gluon: sums, softmax rows, a matrix product and a transposed copy, with layouts of their own."""

import math

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl


@gluon.jit
def sum_rows(x_ptr, out_ptr, columns, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    row = gl.program_id(0).to(gl.int64)
    total = gl.zeros([BLOCK], gl.float32, layout)
    for start in range(0, columns, BLOCK):
        at = start + gl.arange(0, BLOCK, layout)
        total += gl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    gl.store(out_ptr + row, gl.sum(total, axis=0))


@gluon.jit
def softmax_rows(x_ptr, out_ptr, columns, BLOCK: gl.constexpr):
    layout: gl.constexpr = gl.BlockedLayout([4], [32], [4], [0])
    row = gl.program_id(0).to(gl.int64) * columns
    highest = gl.full([BLOCK], float("-inf"), gl.float32, layout)
    for start in range(0, columns, BLOCK):
        at = start + gl.arange(0, BLOCK, layout)
        highest = gl.maximum(highest, gl.load(x_ptr + row + at, mask=at < columns, other=float("-inf")))
    top = gl.max(highest, axis=0)
    total = gl.zeros([BLOCK], gl.float32, layout)
    for start in range(0, columns, BLOCK):
        at = start + gl.arange(0, BLOCK, layout)
        x = gl.load(x_ptr + row + at, mask=at < columns, other=float("-inf"))
        total += gl.where(at < columns, gl.exp(x - top), 0.0)
    whole = gl.sum(total, axis=0)
    for start in range(0, columns, BLOCK):
        at = start + gl.arange(0, BLOCK, layout)
        x = gl.load(x_ptr + row + at, mask=at < columns, other=0.0)
        gl.store(out_ptr + row + at, gl.exp(x - top) / whole, mask=at < columns)


@gluon.jit
def mm_tiles(a_ptr, b_ptr, c_ptr, M, N, K, TILE: gl.constexpr):
    """Multiply-adds in float32 registers: tensor cores would round the inputs to TF32."""
    result: gl.constexpr = gl.BlockedLayout([2, 2], [4, 8], [4, 1], [1, 0])
    first: gl.constexpr = gl.DotOperandLayout(0, result, 0)
    second: gl.constexpr = gl.DotOperandLayout(1, result, 0)
    i = gl.program_id(0).to(gl.int64) * TILE + gl.arange(0, TILE, gl.SliceLayout(1, result))
    j = gl.program_id(1).to(gl.int64) * TILE + gl.arange(0, TILE, gl.SliceLayout(0, result))
    total = gl.zeros([TILE, TILE], gl.float32, result)
    for start in range(0, K, TILE):
        of_a = start + gl.arange(0, TILE, gl.SliceLayout(0, result))
        of_b = start + gl.arange(0, TILE, gl.SliceLayout(1, result))
        a = gl.load(a_ptr + i[:, None] * K + of_a[None, :], mask=(i[:, None] < M) & (of_a[None, :] < K), other=0.0)
        b = gl.load(b_ptr + of_b[:, None] * N + j[None, :], mask=(of_b[:, None] < K) & (j[None, :] < N), other=0.0)
        total = gl.dot_fma(gl.convert_layout(a, first), gl.convert_layout(b, second), total)
    gl.store(c_ptr + i[:, None] * N + j[None, :], total, mask=(i[:, None] < M) & (j[None, :] < N))


@gluon.jit
def transpose_tiles(x_ptr, out_ptr, rows, columns, TILE: gl.constexpr):
    """Reads along rows of the input and writes along rows of the output: the layouts differ, shared memory converts."""
    reading: gl.constexpr = gl.BlockedLayout([1, 1], [1, 32], [4, 1], [1, 0])
    writing: gl.constexpr = gl.BlockedLayout([1, 1], [32, 1], [1, 4], [0, 1])
    first_i, first_j = gl.program_id(0).to(gl.int64) * TILE, gl.program_id(1).to(gl.int64) * TILE
    i = first_i + gl.arange(0, TILE, gl.SliceLayout(1, reading))
    j = first_j + gl.arange(0, TILE, gl.SliceLayout(0, reading))
    x = gl.load(x_ptr + i[:, None] * columns + j[None, :], mask=(i[:, None] < rows) & (j[None, :] < columns), other=0.0)
    i = first_i + gl.arange(0, TILE, gl.SliceLayout(1, writing))
    j = first_j + gl.arange(0, TILE, gl.SliceLayout(0, writing))
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    gl.store(out_ptr + j[None, :] * rows + i[:, None], gl.convert_layout(x, writing), mask=inside)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        sum_rows[(out.numel(),)](x, out, x.shape[1], BLOCK=1024, num_warps=4)
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        softmax_rows[(x.numel() // x.shape[-1],)](x, out, x.shape[-1], BLOCK=1024, num_warps=4)
    return out.movedim(-1, dim).reshape(self.shape) if self.ndim == 0 else out.movedim(-1, dim)


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    if out.numel():
        grid = (triton.cdiv(out.shape[0], 32), triton.cdiv(out.shape[1], 32))
        mm_tiles[grid](a, b, out, a.shape[0], b.shape[1], a.shape[1], TILE=32, num_warps=4)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
        transpose_tiles[grid](x, out, rows, columns, TILE=32, num_warps=4)
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
