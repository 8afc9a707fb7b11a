"""Four honest kernels in Triton: sums, softmax rows, a matrix product and a transposed copy."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def sum_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        total += tl.load(x_ptr + row * columns + at, mask=at < columns, other=0.0)
    tl.store(out_ptr + row, tl.sum(total, axis=0))


@triton.jit
def softmax_rows(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64) * columns
    highest = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        highest = tl.maximum(highest, tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf")))
    top = tl.max(highest, axis=0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns, other=float("-inf"))
        total += tl.where(at < columns, tl.exp(x - top), 0.0)
    whole = tl.sum(total, axis=0)
    for start in range(0, columns, BLOCK):
        at = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row + at, mask=at < columns, other=0.0)
        tl.store(out_ptr + row + at, tl.exp(x - top) / whole, mask=at < columns)


@triton.jit
def mm_tiles(a_ptr, b_ptr, c_ptr, M, N, K, TILE: tl.constexpr):
    rows = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    columns = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    total = tl.zeros((TILE, TILE), tl.float32)
    for start in range(0, K, TILE):
        inner = start + tl.arange(0, TILE)
        a = tl.load(
            a_ptr + rows[:, None] * K + inner[None, :], mask=(rows[:, None] < M) & (inner[None, :] < K), other=0.0
        )
        b = tl.load(
            b_ptr + inner[:, None] * N + columns[None, :], mask=(inner[:, None] < K) & (columns[None, :] < N), other=0.0
        )
        total += tl.dot(a, b, input_precision="ieee")
    tl.store(c_ptr + rows[:, None] * N + columns[None, :], total, mask=(rows[:, None] < M) & (columns[None, :] < N))


@triton.jit
def transpose_tiles(x_ptr, out_ptr, rows, columns, TILE: tl.constexpr):
    i = tl.program_id(0).to(tl.int64) * TILE + tl.arange(0, TILE)
    j = tl.program_id(1).to(tl.int64) * TILE + tl.arange(0, TILE)
    inside = (i[:, None] < rows) & (j[None, :] < columns)
    x = tl.load(x_ptr + i[:, None] * columns + j[None, :], mask=inside)
    tl.store(out_ptr + j[None, :] * rows + i[:, None], x, mask=inside)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        sum_rows[(out.numel(),)](x, out, x.shape[1], BLOCK=1024)
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        softmax_rows[(x.numel() // x.shape[-1],)](x, out, x.shape[-1], BLOCK=1024)
    return out.movedim(-1, dim).reshape(self.shape) if self.ndim == 0 else out.movedim(-1, dim)


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    out = torch.empty((a.shape[0], b.shape[1]), dtype=torch.float32, device=a.device)
    if out.numel():
        grid = (triton.cdiv(out.shape[0], 32), triton.cdiv(out.shape[1], 32))
        mm_tiles[grid](a, b, out, a.shape[0], b.shape[1], a.shape[1], TILE=32)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        grid = (triton.cdiv(rows, 32), triton.cdiv(columns, 32))
        transpose_tiles[grid](x, out, rows, columns, TILE=32)
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
