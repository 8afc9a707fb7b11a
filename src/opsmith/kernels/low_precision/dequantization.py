"""Weights out of 8 bits, and into the 8 bits of another vendor.

- Block scales: ``out[m, n] = weight[m, n] * scale[m // B, n // B]``, in float32, rounded once to bfloat16. 3 bytes an
  element. A tile lies within one block, so that its scale is one number.
- E4M3 to E4M3 without a negative zero (``fnuz``, AMD's MI300): the same bits stand for half as much, so the scales
  double, and the byte 0x80, which would be NaN there, becomes zero. 2 bytes an element.

Suffixes: ``_R`` rows of a tile, ``_C`` its columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.launch import INTERPRETED, launch, pdl_prologue, require_served
from .formats import E4M3, FLOAT8, FNUZ, ROUNDED, SOURCES, as_bytes, from_float8, require_low, scale_at

#: Elements of a tile: 32 for each of 128 threads. Under the interpreter a program costs milliseconds whatever its size.
TILE = 1 << 16 if INTERPRETED else 4096
#: Columns of a tile of bytes: a warp reads a row of them, 16 bytes a thread.
BYTE_COLUMNS = 512
_NEGATIVE_ZERO = tl.constexpr(0x80)


@triton.jit
def dequantize_blocks_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    size: tl.tensor,
    x_strides: tl.tuple,
    scale_strides: tl.tuple,
    PER_BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """One of the PER_BLOCK tiles of ROWS rows that a block of ``size`` x ``size`` elements has."""
    pdl_prologue()
    across = tl.cdiv(columns, size)
    down, block_C = tl.program_id(0) // across, tl.program_id(0) % across
    block_R, part = down // PER_BLOCK, down % PER_BLOCK
    within_R, within_C = part * ROWS + tl.arange(0, ROWS), tl.arange(0, COLUMNS)
    row, column = (block_R * size + within_R).to(tl.int64), (block_C * size + within_C).to(tl.int64)
    inside_RC = ((within_R < size) & (row < rows))[:, None] & ((within_C < size) & (column < columns))[None, :]
    scale = scale_at(scale_ptr + block_R.to(tl.int64) * scale_strides[0] + block_C.to(tl.int64) * scale_strides[1])
    x_RC = tl.load(x_ptr + row[:, None] * x_strides[0] + column[None, :] * x_strides[1], mask=inside_RC, other=0.0)
    y_RC = from_float8(x_RC) * scale
    tl.store(
        out_ptr + row[:, None] * columns + column[None, :], converted(y_RC, out_ptr.dtype.element_ty), mask=inside_RC
    )


@triton.jit
def to_fnuz_kernel(
    out_ptr: tl.tensor,
    doubled_ptr: tl.tensor,
    x_ptr: tl.tensor,
    scale_ptr: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    x_strides: tl.tuple,
    scale_stride: tl.tensor,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
) -> None:
    """A tile of bytes; the programs of the first columns double the scales of their rows."""
    pdl_prologue()
    across = tl.cdiv(columns, COLUMNS)
    row = (tl.program_id(0) // across).to(tl.int64) * ROWS + tl.arange(0, ROWS)
    column = (tl.program_id(0) % across) * COLUMNS + tl.arange(0, COLUMNS)
    inside_RC = (row < rows)[:, None] & (column < columns)[None, :]
    x_RC = tl.load(x_ptr + row[:, None] * x_strides[0] + column[None, :] * x_strides[1], mask=inside_RC, other=0)
    y_RC = tl.where(x_RC == _NEGATIVE_ZERO, 0, x_RC).to(tl.uint8)
    tl.store(out_ptr + row[:, None] * columns + column[None, :], y_RC, mask=inside_RC)
    first = (tl.program_id(0) % across == 0) & (row < rows)
    doubled = converted(tl.load(scale_ptr + row * scale_stride, mask=first, other=0.0), tl.float32) * 2
    tl.store(doubled_ptr + row, converted(doubled, doubled_ptr.dtype.element_ty), mask=first)


def dequantize_blocks(weight: torch.Tensor, scale: torch.Tensor, size: int) -> torch.Tensor:
    """bfloat16 of ``weight[M, N]``, of whose blocks of ``size`` x ``size`` elements each has a scale.

    Raises:
        NotImplementedError: another type, number of dimensions or device.
        ValueError: scales that do not fit.
    """
    require_low(weight, dtypes=FLOAT8)
    require_served(scale, dtypes=SOURCES)
    if weight.ndim != 2 or scale.ndim != 2:
        raise NotImplementedError("blocks are served in two dimensions")
    rows, columns = weight.shape
    if size < 1 or tuple(scale.shape) != (triton.cdiv(rows, size), triton.cdiv(columns, size)):
        raise ValueError(f"{list(scale.shape)} scales are not those of {rows} x {columns} elements in blocks of {size}")
    out = torch.empty((rows, columns), dtype=ROUNDED, device=weight.device)
    block = triton.next_power_of_2(size)
    tall = max(1, min(block, TILE // block))
    per_block = triton.cdiv(size, tall)
    if out.numel():
        launch(
            dequantize_blocks_kernel,
            (scale.shape[0] * per_block * scale.shape[1],),
            weight.device,
            out,
            weight,
            scale,
            rows,
            columns,
            size,
            weight.stride(),
            scale.stride(),
            PER_BLOCK=per_block,
            ROWS=tall,
            COLUMNS=block,
            num_warps=4,
        )
    return out


def to_fnuz(weight: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``weight[M, N]`` from E4M3 to E4M3 ``fnuz``, and ``scale[M, 1]`` doubled.

    Raises:
        NotImplementedError: another type, shape or device.
    """
    require_low(weight, dtypes=(E4M3,))
    require_served(scale, dtypes=SOURCES)
    if weight.ndim != 2 or not weight.numel() or tuple(scale.shape) != (weight.shape[0], 1):
        raise NotImplementedError(f"{list(scale.shape)} scales of {list(weight.shape)} elements are not served")
    rows, columns = weight.shape
    out = torch.empty((rows, columns), dtype=FNUZ, device=weight.device)
    doubled = torch.empty(scale.shape, dtype=scale.dtype, device=scale.device)
    wide = min(triton.next_power_of_2(columns), TILE if INTERPRETED else BYTE_COLUMNS)
    # Four times as many as of a half type: 128 bytes for each of 128 threads.
    tall = max(1, TILE // wide if INTERPRETED else 4 * TILE // wide)
    launch(
        to_fnuz_kernel,
        (triton.cdiv(rows, tall) * triton.cdiv(columns, wide),),
        weight.device,
        as_bytes(out),
        doubled,
        as_bytes(weight),
        scale,
        rows,
        columns,
        weight.stride(),
        scale.stride(0),
        ROWS=tall,
        COLUMNS=wide,
        num_warps=4,
    )
    return out, doubled


# ---------------------------------------------------------------- problems


class BlockDequantize(torch.nn.Module):
    """Problem 4."""

    def __init__(self, block: int) -> None:
        super().__init__()
        self.block = block

    def forward(self, weight: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        """``weight[M, N]`` in bfloat16."""
        return dequantize_blocks(weight, scale, self.block)


class ToFnuz(torch.nn.Module):
    """Problem 18."""

    def forward(self, weight: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``weight[M, N]`` in the other format, and its scales."""
        return to_fnuz(weight, scale)
