"""Four honest kernels in Pallas through DLPack: sums, softmax rows, a matrix product and a transposed copy."""

import functools
import math

import jax
import jax.numpy as jnp
import torch
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton as plgpu

BLOCK = 1024
TILE = 32


def sum_rows(x_ref, out_ref, *, columns):
    row = pl.program_id(0)

    def step(i, total):
        inside = i * BLOCK + jnp.arange(BLOCK) < columns
        return total + plgpu.load(x_ref.at[pl.ds(row * columns + i * BLOCK, BLOCK)], mask=inside, other=0.0)

    total = jax.lax.fori_loop(0, pl.cdiv(columns, BLOCK), step, jnp.zeros((BLOCK,), jnp.float32))
    out_ref[row] = jnp.sum(total)


def softmax_rows(x_ref, out_ref, *, columns):
    start = pl.program_id(0) * columns

    def part(i):
        inside = i * BLOCK + jnp.arange(BLOCK) < columns
        return pl.ds(start + i * BLOCK, BLOCK), inside

    def highest(i, top):
        at, inside = part(i)
        return jnp.maximum(top, plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf))

    def summed(i, total):
        at, inside = part(i)
        x = plgpu.load(x_ref.at[at], mask=inside, other=-jnp.inf)
        return total + jnp.where(inside, jnp.exp(x - top), 0.0)

    def written(i, nothing):
        at, inside = part(i)
        x = plgpu.load(x_ref.at[at], mask=inside, other=0.0)
        plgpu.store(out_ref.at[at], jnp.exp(x - top) / whole, mask=inside)
        return nothing

    steps = pl.cdiv(columns, BLOCK)
    top = jnp.max(jax.lax.fori_loop(0, steps, highest, jnp.full((BLOCK,), -jnp.inf, jnp.float32)))
    whole = jnp.sum(jax.lax.fori_loop(0, steps, summed, jnp.zeros((BLOCK,), jnp.float32)))
    jax.lax.fori_loop(0, steps, written, 0)


def mm_tiles(a_ref, b_ref, c_ref):
    (M, K), N = a_ref.shape, b_ref.shape[1]
    i, j = pl.program_id(0) * TILE, pl.program_id(1) * TILE
    lanes = jnp.arange(TILE)

    def step(s, total):
        k = s * TILE
        of_a = (i + lanes[:, None] < M) & (k + lanes[None, :] < K)
        of_b = (k + lanes[:, None] < K) & (j + lanes[None, :] < N)
        a = plgpu.load(a_ref.at[pl.ds(i, TILE), pl.ds(k, TILE)], mask=of_a, other=0.0)
        b = plgpu.load(b_ref.at[pl.ds(k, TILE), pl.ds(j, TILE)], mask=of_b, other=0.0)
        return total + plgpu.dot(a, b, allow_tf32=False)

    total = jax.lax.fori_loop(0, pl.cdiv(K, TILE), step, jnp.zeros((TILE, TILE), jnp.float32))
    inside = (i + lanes[:, None] < M) & (j + lanes[None, :] < N)
    plgpu.store(c_ref.at[pl.ds(i, TILE), pl.ds(j, TILE)], total, mask=inside)


def transpose_tiles(x_ref, out_ref):
    rows, columns = x_ref.shape
    i, j = pl.program_id(0) * TILE, pl.program_id(1) * TILE
    lanes = jnp.arange(TILE)
    inside = (i + lanes[:, None] < rows) & (j + lanes[None, :] < columns)
    x = plgpu.load(x_ref.at[pl.ds(i, TILE), pl.ds(j, TILE)], mask=inside, other=0.0)
    turned = (j + lanes[:, None] < columns) & (i + lanes[None, :] < rows)
    plgpu.store(out_ref.at[pl.ds(j, TILE), pl.ds(i, TILE)], x.T, mask=turned)


@functools.cache
def of_rows(kernel, rows, columns, size):
    """A kernel whose programs have a row each, compiled for one shape; ``size`` elements come out."""
    body = functools.partial(kernel, columns=columns)
    return compiled(body, (rows,), (size,))


@functools.cache
def of_tiles(kernel, rows, columns, shape):
    """A kernel whose programs have a tile each, compiled for one shape of the result."""
    return compiled(kernel, (pl.cdiv(rows, TILE), pl.cdiv(columns, TILE)), shape)


def compiled(kernel, grid, shape):
    result = jax.ShapeDtypeStruct(shape, jnp.float32)
    parameters = plgpu.CompilerParams(num_warps=4)
    return jax.jit(pl.pallas_call(kernel, grid=grid, out_shape=result, compiler_params=parameters))


def array(tensor, *shape):
    """A tensor's memory as an array of JAX's, without a copy."""
    return jax.dlpack.from_dlpack(tensor.detach().view(shape))


def sum__dim_IntList_kernel_impl(self, dim, keepdim=False, *, dtype=None):
    if self.dtype != torch.float32 or dtype not in (None, torch.float32):
        raise NotImplementedError("float32 only")
    x, shape = as_rows(self, dim, keepdim)
    rows, columns = x.shape
    if not x.numel():
        return torch.zeros(shape, dtype=torch.float32, device=self.device)  # Sums of nothing.
    return torch.from_dlpack(of_rows(sum_rows, rows, columns, rows)(array(x, -1))).view(shape)


def _softmax__default_kernel_impl(self, dim, half_to_float):
    if self.dtype != torch.float32 or half_to_float:
        raise NotImplementedError("float32 only")
    x = (self.reshape(1) if self.ndim == 0 else self).movedim(dim, -1).contiguous()
    if not x.numel():
        return torch.empty_like(self)
    n, columns = x.numel(), x.shape[-1]
    out = torch.from_dlpack(of_rows(softmax_rows, n // columns, columns, n)(array(x, -1))).view(x.shape)
    out = out.movedim(-1, dim)
    return out.reshape([]) if self.ndim == 0 else out


def mm__default_kernel_impl(self, mat2):
    if self.dtype != torch.float32 or mat2.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    a, b = self.contiguous(), mat2.contiguous()
    (M, K), N = a.shape, b.shape[1]
    if not (M and N and K):
        return torch.zeros((M, N), dtype=torch.float32, device=a.device)
    return torch.from_dlpack(of_tiles(mm_tiles, M, N, (M, N))(array(a, M, K), array(b, K, N)))


def t_copy__default_kernel_impl(self):
    if self.dtype != torch.float32:
        raise NotImplementedError("float32 only")
    x = self.contiguous()
    rows, columns = (1, x.numel()) if x.ndim < 2 else x.shape
    if not x.numel():
        return torch.empty(x.shape[::-1], dtype=x.dtype, device=x.device)
    turned = of_tiles(transpose_tiles, rows, columns, (columns, rows))(array(x, rows, columns))
    return torch.from_dlpack(turned).view(x.shape[::-1])


def as_rows(x, dim, keepdim):
    """The input with what is reduced as its columns, and the shape of the result."""
    sizes = x.shape or (1,)
    reduced = {d % len(sizes) for d in dim} if dim else set(range(len(sizes)))
    kept = [d for d in range(len(sizes)) if d not in reduced]
    rows = x.reshape(sizes).permute(*kept, *sorted(reduced)).contiguous()
    columns = math.prod(sizes[d] for d in reduced)
    shape = [1 if d in reduced else size for d, size in enumerate(sizes)] if keepdim else [sizes[d] for d in kept]
    return rows.view(math.prod(sizes[d] for d in kept), columns), shape if x.ndim else []
