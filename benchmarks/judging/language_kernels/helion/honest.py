"""Four honest kernels in Helion: sums, softmax rows, a matrix product and a transposed copy."""

import math

import helion
import helion.language as hl
import torch


@helion.kernel(config=helion.Config(block_sizes=[1, 1024], num_warps=4), static_shapes=False)
def sum_rows(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.size()
    out = torch.empty([rows], dtype=torch.float32, device=x.device)
    for tile_m in hl.tile(rows):
        total = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(columns):
            total = total + torch.sum(x[tile_m, tile_n], dim=1)
        out[tile_m] = total
    return out


@helion.kernel(config=helion.Config(block_sizes=[1, 1024], num_warps=4), static_shapes=False)
def softmax_rows(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.size()
    out = torch.empty_like(x)
    block_m = hl.register_block_size(rows)
    block_n = hl.register_block_size(columns)
    for tile_m in hl.tile(rows, block_size=block_m):
        top = hl.full([tile_m], float("-inf"), dtype=torch.float32)
        for tile_n in hl.tile(columns, block_size=block_n):
            top = torch.maximum(top, torch.amax(x[tile_m, tile_n], dim=1))
        whole = hl.zeros([tile_m], dtype=torch.float32)
        for tile_n in hl.tile(columns, block_size=block_n):
            whole = whole + torch.sum(torch.exp(x[tile_m, tile_n] - top[:, None]), dim=1)
        for tile_n in hl.tile(columns, block_size=block_n):
            out[tile_m, tile_n] = torch.exp(x[tile_m, tile_n] - top[:, None]) / whole[:, None]
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 32, 32], num_warps=4), static_shapes=False, dot_precision="ieee")
def mm_tiles(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    M, K = a.size()
    _, N = b.size()
    out = torch.empty([M, N], dtype=torch.float32, device=a.device)
    for tile_m, tile_n in hl.tile([M, N]):
        total = hl.zeros([tile_m, tile_n], dtype=torch.float32)
        for tile_k in hl.tile(K):
            total = torch.addmm(total, a[tile_m, tile_k], b[tile_k, tile_n])
        out[tile_m, tile_n] = total
    return out


@helion.kernel(config=helion.Config(block_sizes=[32, 32], num_warps=4), static_shapes=False)
def transpose_tiles(x: torch.Tensor) -> torch.Tensor:
    rows, columns = x.size()
    out = torch.empty([columns, rows], dtype=x.dtype, device=x.device)
    for tile_i, tile_j in hl.tile([rows, columns]):
        out[tile_j, tile_i] = x[tile_i, tile_j].transpose(0, 1)
    return out


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=self.device)  # Sums of nothing.
    return sum_rows(x).view(shape)


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    if not x.numel():
        return torch.empty_like(self)
    out = softmax_rows(x.view(-1, x.shape[-1])).view(x.shape).movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    if not (self.numel() and mat2.numel()):
        return torch.zeros((self.shape[0], mat2.shape[1]), dtype=torch.float32, device=self.device)
    return mm_tiles(self.contiguous(), mat2.contiguous())


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    if not x.numel():
        return torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    return transpose_tiles(x.view(1, -1) if x.ndim < 2 else x).view(x.shape[::-1])


def as_rows(x, dim, keepdim):
    """The input with what is reduced as its columns, and the shape of the result."""
    sizes = x.shape or (1,)
    reduced = {d % len(sizes) for d in dim} if dim else set(range(len(sizes)))
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows = x.reshape(sizes).permute(*kept, *sorted(reduced)).contiguous()
    columns = math.prod(sizes[d] for d in reduced)
    shape = [1 if d in reduced else size for d, size in enumerate(sizes)] if keepdim else [sizes[d] for d in kept]
    return rows.view(math.prod(sizes[d] for d in kept), columns), shape if x.ndim else []
