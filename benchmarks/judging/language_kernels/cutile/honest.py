"""Four honest kernels in cuTile Python: sums, softmax rows, a matrix product and a transposed copy."""

import math

import cuda.tile as ct
import torch

ZERO, LOWEST = ct.PaddingMode.ZERO, ct.PaddingMode.NEG_INF


@ct.kernel
def sum_rows(x, out, BLOCK: ct.Constant[int]):
    row = ct.bid(0)
    total = ct.zeros((1, BLOCK), ct.float32)
    for j in range(ct.num_tiles(x, 1, (1, BLOCK))):
        total = total + ct.load(x, (row, j), (1, BLOCK), padding_mode=ZERO)
    ct.store(out, (row,), ct.sum(total, axis=1))


@ct.kernel
def softmax_rows(x, out, BLOCK: ct.Constant[int]):
    row = ct.bid(0)
    steps = ct.num_tiles(x, 1, (1, BLOCK))
    highest = ct.full((1, BLOCK), -math.inf, ct.float32)
    for j in range(steps):
        highest = ct.maximum(highest, ct.load(x, (row, j), (1, BLOCK), padding_mode=LOWEST))
    top = ct.max(highest, axis=1, keepdims=True)
    total = ct.zeros((1, BLOCK), ct.float32)
    for j in range(steps):
        total = total + ct.exp(ct.load(x, (row, j), (1, BLOCK), padding_mode=LOWEST) - top)
    whole = ct.sum(total, axis=1, keepdims=True)
    for j in range(steps):
        values = ct.load(x, (row, j), (1, BLOCK), padding_mode=LOWEST)
        ct.store(out, (row, j), ct.exp(values - top) / whole)


@ct.kernel
def mm_tiles(a, b, c, TILE: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    total = ct.zeros((TILE, TILE), ct.float32)
    for k in range(ct.num_tiles(a, 1, (TILE, TILE))):
        of_a = ct.load(a, (i, k), (TILE, TILE), padding_mode=ZERO)
        of_b = ct.load(b, (k, j), (TILE, TILE), padding_mode=ZERO)
        total = ct.mma(of_a, of_b, total)
    ct.store(c, (i, j), total)


@ct.kernel
def transpose_tiles(x, out, TILE: ct.Constant[int]):
    i, j = ct.bid(0), ct.bid(1)
    ct.store(out, (j, i), ct.transpose(ct.load(x, (i, j), (TILE, TILE), padding_mode=ZERO)))


def launch(kernel, grid, *arguments):
    ct.launch(torch.cuda.current_stream(), (*grid, 1, 1)[:3], kernel, arguments)


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=self.device)  # Sums of nothing.
    out = torch.empty(shape, dtype=torch.float32, device=self.device)
    if out.numel():
        launch(sum_rows, (x.shape[0],), x, out.view(-1), 1024)
    return out


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    out = torch.empty_like(x)
    if x.numel():
        rows, columns = x.numel() // x.shape[-1], x.shape[-1]
        launch(softmax_rows, (rows,), x.view(rows, columns), out.view(rows, columns), 1024)
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
        launch(mm_tiles, (ct.cdiv(M, 32), ct.cdiv(N, 32)), a, b, out, 32)
    return out


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    out = torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    if x.numel():
        flat, turned = x.view(rows, columns), out.view(columns, rows)
        launch(transpose_tiles, (ct.cdiv(rows, 32), ct.cdiv(columns, 32)), flat, turned, 32)
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
