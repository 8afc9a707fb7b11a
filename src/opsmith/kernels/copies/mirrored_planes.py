"""The gradient of a mirrored pad of planes, whose rows lie as they do in memory.

An element of the result is one of the gradient, plus those that the pad has copied it to: mirrored at the top or the
bottom, at the left or the right, or both. Only elements near an edge have such copies, so a program looks for rows
that lie above or below only if its tile comes near the top or the bottom.

Traffic: ``numel * itemsize`` of the gradient and of the result.

Suffixes: ``_A`` rows, ``_B`` columns of a tile.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.lanes import load_along_columns
from ..common.launch import INTERPRETED, INTERPRETED_TILE, compute_type, launch, pdl_prologue
from ..common.volumes import channels_first, volume_index_type, volume_of

#: Elements of a tile: eight for each thread.
TILE = 1024


@triton.jit
def copy_at(
    i: tl.tensor, size: tl.tensor, before: tl.tensor, after: tl.tensor, COPY: tl.constexpr
) -> tuple[tl.tensor, ...]:
    """Where copy COPY of positions ``i`` lies in the padded dimension, and whether there is one.

    Copy 0 is the position itself, 1 the one mirrored at the beginning, 2 that at the end. A pad may be negative.
    """
    if COPY == 0:
        at, has_copy = before + i, i < size
    elif COPY == 1:
        at, has_copy = before - i, (i > 0) & (i < size)
    else:
        at, has_copy = before + 2 * (size - 1) - i, i < size - 1
    return at, has_copy & (at >= 0) & (at < before + size + after)


@triton.jit
def copies_in_row(
    grad_plane: tl.tensor,
    a: tl.tensor,
    b: tl.tensor,
    strides_AB: tl.tuple,
    size_AB: tl.tuple,
    rows_around: tl.tuple,
    columns_around: tl.tuple,
    COPY: tl.constexpr,
    COMPUTE: tl.constexpr,
) -> tl.tensor:
    """The sum of those copies of a tile that lie in copy COPY of its rows: beside each other, so loaded at once."""
    at_A, exists_A = copy_at(a, size_AB[0], rows_around[0], rows_around[1], COPY)
    sum_AB = tl.zeros([a.shape[0], b.shape[0]], COMPUTE)
    for COPY_B in tl.static_range(3):
        at_B, exists_B = copy_at(b, size_AB[1], columns_around[0], columns_around[1], COPY_B)
        grad_ptr_AB = grad_plane + ((at_A * strides_AB[0])[:, None] + (at_B * strides_AB[1])[None, :])
        sum_AB += load_along_columns(grad_ptr_AB, exists_A[:, None] & exists_B[None, :]).to(COMPUTE)
    return sum_AB


@triton.jit
def mirrored_backward_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    stride_N: tl.tensor,
    stride_C: tl.tensor,
    strides_AB: tl.tuple,
    C: tl.tensor,
    size_AB: tl.tuple,
    rows_around: tl.tuple,
    columns_around: tl.tuple,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_A: tl.constexpr,
    BLOCK_B: tl.constexpr,
) -> None:
    """One tile of one plane. ``rows_around`` and ``columns_around`` are what the pad added before and after."""
    pdl_prologue()
    height, width = size_AB
    across, down = tl.cdiv(width, BLOCK_B), tl.cdiv(height, BLOCK_A)
    program = tl.program_id(0)
    b = (program % across).to(INDEX) * BLOCK_B + tl.arange(0, BLOCK_B)
    first_a = (program // across % down).to(INDEX) * BLOCK_A
    a = first_a + tl.arange(0, BLOCK_A)
    plane = (program // across // down).to(INDEX)
    plane_ptr = grad_ptr + (plane // C * stride_N + plane % C * stride_C)
    sum_AB = copies_in_row(plane_ptr, a, b, strides_AB, size_AB, rows_around, columns_around, 0, COMPUTE)
    if first_a <= rows_around[0]:
        sum_AB += copies_in_row(plane_ptr, a, b, strides_AB, size_AB, rows_around, columns_around, 1, COMPUTE)
    if first_a + BLOCK_A >= height - rows_around[1]:
        sum_AB += copies_in_row(plane_ptr, a, b, strides_AB, size_AB, rows_around, columns_around, 2, COMPUTE)
    out_ptr_AB = out_ptr + plane * height * width + ((a * width)[:, None] + b[None, :])
    inside_AB = (a < height)[:, None] & (b < width)[None, :]
    tl.store(out_ptr_AB, converted(sum_AB, out_ptr.dtype.element_ty), mask=inside_AB)


def unmirror(out: torch.Tensor, grad: torch.Tensor, padding: Sequence[int]) -> None:
    """Write to ``out`` the gradient of its planes from that of the padded ones.

    Args:
        out: contiguous.
        grad: of the same type.
        padding: left, right, top and bottom; what is negative was cut off.
    """
    if out.numel() == 0:
        return
    volume, result = volume_of(grad, 2), volume_of(out, 2)
    N, C, _, height, width = result.shape_NCDHW
    elements = INTERPRETED_TILE if INTERPRETED else TILE
    block_b = min(triton.next_power_of_2(width), 256)
    block_a = min(triton.next_power_of_2(height), max(elements // block_b, 1))
    left, right, top, bottom = padding
    stride_N, stride_C, strides_S = channels_first(volume.strides_NCDHW)
    launch(
        mirrored_backward_kernel,
        (N * C * triton.cdiv(height, block_a) * triton.cdiv(width, block_b),),
        out.device,
        out,
        grad,
        stride_N,
        stride_C,
        strides_S[1:],
        C,
        (height, width),
        (top, bottom),
        (left, right),
        COMPUTE=compute_type(out.dtype),
        INDEX=volume_index_type(volume, result),
        BLOCK_A=block_a,
        BLOCK_B=block_b,
    )
