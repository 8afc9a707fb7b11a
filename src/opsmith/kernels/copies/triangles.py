"""Triangles of matrices: tril and triu, and the positions of their elements.

Traffic of tril and triu: ``numel * itemsize`` bytes written; what is replaced by zero is not read.

Suffixes: ``_R`` rows of all matrices of a batch, ``_C`` columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits
from ..common.indexing import index_type, merge_dims, offset_of
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, pdl_prologue, require_served
from .filling import empty


@triton.jit
def triangle_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape_R: tl.tuple,
    out_strides_R: tl.tuple,
    strides_R: tl.tuple,
    out_stride_C: tl.tensor,
    stride_C: tl.tensor,
    rows: tl.tensor,
    R: tl.tensor,
    C: tl.tensor,
    diagonal: tl.tensor,
    LOWER: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """One tile of ``out[r, c] = x[r, c]`` on one side of the diagonal and on it, else 0; a matrix has ``rows`` rows."""
    pdl_prologue()
    tile = tl.program_id(0).to(INDEX)
    tiles_C = tl.cdiv(C, BLOCK_C)
    r = (tile // tiles_C) * BLOCK_R + tl.arange(0, BLOCK_R)
    c = (tile % tiles_C) * BLOCK_C + tl.arange(0, BLOCK_C)
    inside = (r < R)[:, None] & (c < C)[None, :]
    distance = c[None, :] - (r % rows)[:, None]
    if LOWER:
        kept = distance <= diagonal
    else:
        kept = distance >= diagonal
    offset = offset_of(r, shape_R, strides_R)[:, None] + (c * stride_C)[None, :]
    x_RC = tl.load(x_ptr + offset, mask=inside & kept, other=0)
    out_offset = offset_of(r, shape_R, out_strides_R)[:, None] + (c * out_stride_C)[None, :]
    tl.store(out_ptr + out_offset, x_RC, mask=inside)


def tril(self: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """``self`` up to the given diagonal of each matrix, zeros above it."""
    return _triangle(self, diagonal, lower=True)


def triu(self: torch.Tensor, diagonal: int = 0) -> torch.Tensor:
    """``self`` from the given diagonal of each matrix on, zeros below it."""
    return _triangle(self, diagonal, lower=False)


def _triangle(x: torch.Tensor, diagonal: int, *, lower: bool) -> torch.Tensor:
    if x.ndim < 2:
        raise ValueError("a triangle needs a tensor of at least 2 dimensions")
    bits = as_bits(x)
    out = torch.empty(x.shape, dtype=bits.dtype, device=x.device)
    if not out.numel():
        return out.view(x.dtype)
    strides = [out.stride(), bits.stride()]
    geometry = merge_dims(tuple(x.shape), strides, range(x.ndim - 2, -1, -1))
    R, C = geometry.numel(), x.shape[-1]
    columns = merge_dims(tuple(x.shape), strides, [x.ndim - 1])
    elements = INTERPRETED_TILE if INTERPRETED else 2048 // max(bits.dtype.itemsize // 2, 1)
    block_c = min(triton.next_power_of_2(C), elements if INTERPRETED else 256)
    block_r = min(triton.next_power_of_2(R), elements // block_c)
    launch(
        triangle_kernel,
        (triton.cdiv(R, block_r) * triton.cdiv(C, block_c),),
        out.device,
        out,
        bits,
        geometry.shape_D,
        *geometry.strides_ID,
        out.stride(-1),
        bits.stride(-1),
        x.shape[-2],
        R,
        C,
        # Beyond the matrix a diagonal is as good as at its edge.
        max(min(diagonal, C), -x.shape[-2]),
        LOWER=lower,
        INDEX=index_type(geometry, columns),
        BLOCK_R=block_r,
        BLOCK_C=block_c,
    )
    return out.view(x.dtype)


# ---------------------------------------------------------------- positions


@triton.jit
def elements_up_to(length: tl.tensor, columns: tl.tensor) -> tl.tensor:
    """The sum of ``min(max(i, 0), columns)`` over all i up to ``length``."""
    short = tl.minimum(tl.maximum(length, 0), columns)
    return short * (short + 1) // 2 + tl.maximum(length - columns, 0) * columns


@triton.jit
def positions_kernel(
    out_ptr: tl.tensor,
    size: tl.tensor,
    numel: tl.tensor,
    columns: tl.tensor,
    diagonal: tl.tensor,
    LOWER: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[0, n]`` and ``out[1, n]`` are row and column of the n-th kept element, counted row by row."""
    pdl_prologue()
    index = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    r, c = index // columns, index % columns
    if LOWER:
        kept = c - r <= diagonal
        n = elements_up_to(r + diagonal, columns) - elements_up_to(diagonal + r * 0, columns) + c
    else:
        kept = c - r >= diagonal
        full = columns - diagonal + r * 0
        n = elements_up_to(full, columns) - elements_up_to(full - r, columns) + c - tl.maximum(r + diagonal, 0)
    kept = kept & (index < numel)
    tl.store(out_ptr + n, r.to(out_ptr.dtype.element_ty), mask=kept)
    tl.store(out_ptr + size + n, c.to(out_ptr.dtype.element_ty), mask=kept)


def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Rows and columns, ``[2, n]``, of the elements of a matrix up to a diagonal."""
    size = sum(min(max(r + 1 + offset, 0), col) for r in range(row))
    return _positions(empty([2, size], dtype, layout, device, pin_memory), row, col, offset, lower=True)


def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: torch.dtype | None = torch.int64,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Rows and columns, ``[2, n]``, of the elements of a matrix from a diagonal on."""
    size = sum(min(max(col - r - offset, 0), col) for r in range(row))
    return _positions(empty([2, size], dtype, layout, device, pin_memory), row, col, offset, lower=False)


def _positions(out: torch.Tensor, row: int, col: int, offset: int, *, lower: bool) -> torch.Tensor:
    require_served(out, dtypes=[torch.int32, torch.int64])
    numel = row * col
    if out.numel():
        block = min(triton.next_power_of_2(numel), INTERPRETED_TILE) if INTERPRETED else 1024
        launch(
            positions_kernel,
            (triton.cdiv(numel, block),),
            out.device,
            out,
            out.shape[1],
            numel,
            col,
            offset,
            LOWER=lower,
            BLOCK=block,
        )
    return out
