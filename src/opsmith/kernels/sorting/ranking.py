"""Sorting by rank: an element's place is the number of elements before it.

For n elements of a row that is ``n^2`` comparisons, of which none waits for another, so that all multiprocessors take
part, in one launch. A sort in registers leaves most of them idle where rows are few, and waits at each of its steps:
on an H200, 46 us for 4 rows of 1083 elements.

Suffixes: ``_I`` the elements of a program, ``_J`` those that they are compared with.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.launch import INTERPRETED, await_earlier_kernels, launch, loop_bound
from .sorted_rows import Sorting, read_packed, write_sorted

#: Comparisons that a ranking may take: about 10 us of an H200.
MOST_COMPARISONS = 1 << 26
#: Shorter rows take a sort in registers few steps, and would leave most of a tile of comparisons empty.
SHORTEST = 32
#: Elements that a program places, and that it compares them with at a time: 32 comparisons a thread.
BLOCK, WIDTH = (256, 256) if INTERPRETED else (16, 256)


@triton.jit
def rank_kernel(
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    x_ptr: tl.tensor,
    packed_ptr: tl.tensor,
    order_ptr: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_stride: tl.tensor,
    out_stride: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    keep: tl.tensor,
    steps: tl.tensor,
    PACKED: tl.constexpr,
    ORDERED: tl.constexpr,
    VALUES: tl.constexpr,
    HALF: tl.constexpr,
    DESCENDING: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """Place BLOCK elements of a row of ``length``; write those that are among the first ``keep``.

    PACKED and ORDERED: as :func:`.sorted_rows.read_packed` has them.
    """
    await_earlier_kernels()
    blocks = tl.cdiv(length, BLOCK)
    row = (tl.program_id(0) // blocks).to(INDEX)
    i = (tl.program_id(0) % blocks).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    row_I = row + tl.zeros([BLOCK], INDEX)
    sources, layout = (packed_ptr, x_ptr, order_ptr), (shape_R, x_strides_R, x_stride, count, length)
    x_I = read_packed(*sources, row_I, i, i < length, *layout, PACKED, ORDERED, HALF, DESCENDING, INDEX)
    before_IJ = tl.zeros([BLOCK, WIDTH], tl.int32)
    for step in range(steps):
        j = step * WIDTH + tl.arange(0, WIDTH).to(INDEX)
        row_J = row + tl.zeros([WIDTH], INDEX)
        x_J = read_packed(*sources, row_J, j, j < length, *layout, PACKED, ORDERED, HALF, DESCENDING, INDEX)
        before_IJ += (x_J[None, :] < x_I[:, None]).to(tl.int32)
    n_I = tl.sum(before_IJ, axis=1).to(INDEX)
    kept = (i < length) & (n_I < keep)
    tensors = (values_ptr, indices_ptr, x_ptr, order_ptr)
    strides = (shape_R, x_strides_R, out_strides_R, x_stride, out_stride)
    write_sorted(*tensors, x_I, row_I, n_I, *strides, count, kept, ORDERED, VALUES, INDEX)


def is_ranked(rows: int, length: int) -> bool:
    """Whether rows of ``length`` elements are few and short enough, but not so short that it does not pay."""
    blocks, steps = triton.cdiv(length, BLOCK), triton.cdiv(length, WIDTH)
    return length >= SHORTEST and rows * blocks * BLOCK * steps * WIDTH <= MOST_COMPARISONS


def rank(sorting: Sorting, packed: torch.Tensor | None, length: int) -> None:
    """Write the results of a sort.

    Args:
        sorting: what is wanted.
        packed: packed elements, ``length`` for each row; None stands for those of ``x``.
        length: elements of a row.
    """
    values, indices = sorting.outputs()
    launch(
        rank_kernel,
        (sorting.rows() * triton.cdiv(length, BLOCK),),
        sorting.x.device,
        values,
        indices,
        sorting.x,
        indices if packed is None else packed,
        indices if sorting.order is None else sorting.order,
        *sorting.strides(),
        sorting.length(),
        length,
        sorting.keep,
        loop_bound(triton.cdiv(length, WIDTH)),
        PACKED=packed is not None,
        ORDERED=sorting.order is not None,
        VALUES=sorting.values is not None,
        HALF=sorting.half,
        DESCENDING=sorting.descending,
        INDEX=sorting.offset_type(),
        BLOCK=BLOCK,
        WIDTH=WIDTH,
    )
