"""Softmax, log-softmax and logsumexp over the rows of a matrix.

With the row maximum ``m = max(x)`` and ``s = sum of exp(x - m)``::

    softmax = exp(x - m) / s,     log_softmax = x - m - log s,     logsumexp = m + log s

Subtracting m keeps every exponent at or below zero. A program owns BLOCK_M rows; which kernel depends on how long they
are and how they lie::

    whole rows, one read                long rows, two reads            few long rows, two launches

    +--------------------+              +------+------+------+          | split 0   | split 1   |
    |        x_MT        | BLOCK_M      | tile | tile | tile | BLOCK_M  +-----+-----+-----+-----+
    +--------------------+              +------+------+------+          |tile |tile |tile |tile |
      m, s, y from                        1: m, s  ->  ->               +-----+-----+-----+-----+
      registers                           2: y     ->  ->  (L2)           1: m, s of each split; 2: merged, y

A row that fits a tile is read once and written once, ``numel * (itemsize in + itemsize out)`` bytes. Of a longer one, m
and s come from a first pass, an online softmax (Milakov and Gimelshein, 2018), and the results from a second one, which
finds the row in the L2 cache: few enough programs run at a time. Where rows are too few to fill a device, they are
split, and the second launch merges the splits.

Contiguous rows that start or end at no multiple of 16 bytes have kernels of their own, in which an element takes half
as many instructions and memory is accessed 16 bytes at a time: see unaligned_rows.py.

Suffixes: ``_M`` rows, ``_T`` columns of a tile, ``_E`` edges of a row, ``_S`` splits.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS
from ..common.indexing import converted, normalized_dims
from ..common.lanes import load_first_in_lane, store_first_in_lane
from ..common.launch import (
    ELEMENT_TYPE,
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    loop_bound,
    multiprocessors,
    pdl_prologue,
    require_served,
)
from ..common.matrix import (
    Matrix,
    Tiling,
    column_offsets,
    matrix_of,
    row_offsets,
    row_strides,
    side,
    tile_columns,
    tile_rows,
    tiling,
)
from ..norms.standardization import WHOLE_ROW, whole_rows
from .unaligned_rows import (
    RowCut,
    aligned,
    aligned_body,
    are_contiguous,
    are_unaligned,
    cut_rows,
    part_of_row,
    short_row_columns,
    short_rows,
)

#: Elements of a tile of a long row, for 32 warps: two such programs fill a multiprocessor, and the rows that are read
#: at a time stay far below the size of the L2 cache.
LONG_ROW_TILE = 1 << 14

# ---------------------------------------------------------------- in a kernel


@triton.jit
def denominator(
    row_M: tl.tensor,
    is_row_M: tl.tensor,
    shape: tl.tuple,
    strides: tl.tuple,
    sizes: tl.tuple,
    first: tl.tensor,
    steps: tl.tensor,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> tl.tuple:
    """The row maxima and the sums of ``exp(x - max)`` of ``steps`` tiles from ``first`` on.

    Online softmax (Milakov and Gimelshein, 2018) in every lane, which keeps a maximum and a sum of its own. A new
    element either leaves the maximum, and adds ``exp(x - max)``, or takes its place, and rescales the sum by ``exp(max
    - x)``: one exponential in both cases.
    """
    max_MT = tl.full([is_row_M.shape[0], BLOCK_J * BLOCK_K], float("-inf"), COMPUTE)
    sum_MT = tl.zeros([is_row_M.shape[0], BLOCK_J * BLOCK_K], COMPUTE)
    for step in range(steps):
        j, k = tile_columns(first + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        at_MT = row_M[:, None] + column_offsets(j, k, shape, strides)[None, :]
        x_MT = converted(tl.load(at_MT, mask=inside, other=float("-inf")), READ).to(COMPUTE)
        # Equal ones differ by 0 also where both are infinite.
        above_MT = tl.where(x_MT == max_MT, 0.0, x_MT - max_MT)
        exp_MT = tl.exp(-tl.abs(above_MT))
        sum_MT = tl.where(above_MT > 0, sum_MT * exp_MT + 1.0, sum_MT + exp_MT)
        max_MT = tl.maximum(x_MT, max_MT)
    max_M = tl.max(max_MT, axis=1)
    return max_M, tl.sum(scaled(sum_MT, max_MT, max_M[:, None]), axis=1)


@triton.jit
def scaled(total: tl.tensor, own_max: tl.tensor, row_max: tl.tensor) -> tl.tensor:
    """A sum of ``exp(x - own_max)`` as one of ``exp(x - row_max)``; equal ones may both be infinite."""
    return tl.where(own_max == row_max, total, total * tl.exp(own_max - row_max))


@triton.jit
def result_of(x: tl.tensor, max_: tl.tensor, sum_: tl.tensor, LOG: tl.constexpr, SAFE: tl.constexpr) -> tl.tensor:
    """Softmax or its logarithm; a row of ``-inf`` alone is 0 if ``SAFE``, else NaN, as a row with ``inf`` is.

    A maximum passes over NaN, the sum does not.
    """
    is_empty = (max_ == float("-inf")) & (sum_ == sum_)  # noqa: PLR0124 - false for NaN
    sum_ = tl.where(tl.abs(max_) == float("inf"), float("nan"), sum_)
    if LOG:
        y = x - finite(max_) - tl.log(sum_)
    else:
        y = tl.exp(x - finite(max_)) * (1.0 / sum_)
    if SAFE:
        y = tl.where(is_empty, 0.0, y)
    return y


@triton.jit
def finite(max_: tl.tensor) -> tl.tensor:
    """What is subtracted from elements: 0 for an infinite maximum, since ``inf - inf`` is no number."""
    return tl.where(tl.abs(max_) == float("inf"), 0.0, max_)


@triton.jit
def online_softmax(max_: tl.tensor, sum_T: tl.tensor, x_T: tl.tensor) -> tl.tuple:
    """A step of online softmax (Milakov and Gimelshein, 2018): the row maximum and each lane's sum, with a tile more.

    Lanes share the maximum, other than in :func:`denominator`: an exchange for each tile instead of two comparisons for
    each element.
    """
    row_max = tl.maximum(max_, tl.max(x_T, axis=0))
    sum_T = sum_T * tl.exp(tl.where(max_ == row_max, 0.0, max_ - row_max)) + tl.exp(x_T - finite(row_max))
    return row_max, sum_T


@triton.jit
def contiguous_denominator(
    x_ptr: tl.tensor,
    x_E: tl.tensor,
    rest: tl.tensor,
    steps: tl.tensor,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> tl.tuple:
    """As :func:`denominator`, of a contiguous row: its edges, and from ``x_ptr`` on whole tiles and a rest."""
    t = tl.arange(0, BLOCK)
    max_ = tl.full([], float("-inf"), COMPUTE)
    sum_T = tl.zeros([BLOCK], COMPUTE)
    for step in range(steps):
        x_T = tl.load(x_ptr + step * BLOCK + t, eviction_policy="evict_last")
        max_, sum_T = online_softmax(max_, sum_T, converted(x_T, READ).to(COMPUTE))
    x_T = tl.load(x_ptr + steps * BLOCK + t, mask=t < rest, other=float("-inf"))
    max_, sum_T = online_softmax(max_, sum_T, converted(x_T, READ).to(COMPUTE))
    row_max, sum_E = online_softmax(max_, tl.zeros([2 * VECTOR], COMPUTE), x_E)
    return row_max, scaled(tl.sum(sum_T, axis=0), max_, row_max) + tl.sum(sum_E, axis=0)


# ---------------------------------------------------------------- the kernels


@triton.jit
def softmax_contiguous_rows_kernel(
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    length: tl.tensor,
    steps: tl.tensor,
    READ: tl.constexpr,
    LOG: tl.constexpr,
    SAFE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    SAME_ALIGNMENT: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """One long contiguous row; or a part of one, whose maximum and sum are merged from ``partial_S2M``.

    It is cut into its edges, ``steps`` whole tiles and a part of one, see unaligned_rows.py. ``partial_ptr`` is None
    where rows are not split, ``shape`` and strides as for :class:`Matrix`. READ: the type that x is converted to first;
    LOG: log-softmax; SAFE: 0 for rows of ``-inf`` alone.
    """
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    first, size = part_of_row(length)
    x_row = row_offsets(m, shape, x_strides) + first
    out_row = row_offsets(m, shape, out_strides) + first
    head, body, e, is_edge_E = aligned_body(x_row, size, VECTOR)
    x_E = tl.load(x_ptr + x_row + e, mask=is_edge_E, other=float("-inf"))
    out_E = out_ptr + out_row + e
    x_ptr += aligned(x_row + head, VECTOR)
    out_ptr += aligned(out_row + head, VECTOR if SAME_ALIGNMENT else 1)
    t = tl.arange(0, BLOCK)
    rest = body - steps * BLOCK
    x_E = converted(x_E, READ).to(COMPUTE)
    if partial_ptr is None:
        row_max, total = contiguous_denominator(x_ptr, x_E, rest, steps, READ, COMPUTE, VECTOR, BLOCK)
    else:
        row_max, total = merged_denominator(partial_ptr, m, tl.num_programs(0), tl.num_programs(1), BLOCK_S)
    y_E = result_of(x_E, row_max, total, LOG, SAFE)
    tl.store(out_E, converted(y_E, out_ptr.dtype.element_ty), mask=is_edge_E)
    for step in range(steps):
        x_T = tl.load(x_ptr + step * BLOCK + t, eviction_policy="evict_first")
        y_T = result_of(converted(x_T, READ).to(COMPUTE), row_max, total, LOG, SAFE)
        y_T = converted(y_T, out_ptr.dtype.element_ty)
        tl.store(out_ptr + step * BLOCK + t, y_T, eviction_policy="evict_first")
    x_T = tl.load(x_ptr + steps * BLOCK + t, mask=t < rest, other=0)
    y_T = result_of(converted(x_T, READ).to(COMPUTE), row_max, total, LOG, SAFE)
    tl.store(out_ptr + steps * BLOCK + t, converted(y_T, out_ptr.dtype.element_ty), mask=t < rest)


@triton.jit
def contiguous_denominators_kernel(
    partial_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    length: tl.tensor,
    steps: tl.tensor,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Maximum and sum of each part of long contiguous rows, as ``partial_S2M``."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    M = tl.num_programs(0)
    first, size = part_of_row(length)
    x_row = row_offsets(m, shape, x_strides) + first
    head, body, e, is_edge_E = aligned_body(x_row, size, VECTOR)
    x_E = tl.load(x_ptr + x_row + e, mask=is_edge_E, other=float("-inf"))
    x_E = converted(x_E, READ).to(COMPUTE)
    x_ptr += aligned(x_row + head, VECTOR)
    row_max, total = contiguous_denominator(x_ptr, x_E, body - steps * BLOCK, steps, READ, COMPUTE, VECTOR, BLOCK)
    at = partial_ptr + tl.program_id(1).to(INDEX) * 2 * M + m
    tl.store(at, row_max)
    tl.store(at + M, total)


@triton.jit
def softmax_rows_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    READ: tl.constexpr,
    LOG: tl.constexpr,
    SAFE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Whole rows at once."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    j, k = tile_columns(0, sizes, INDEX, BLOCK_J, BLOCK_K)
    inside = (m < sizes[0])[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
    x_MT = row_offsets(m, shape, x_strides)[:, None] + column_offsets(j, k, shape, x_strides)[None, :]
    x_MT = converted(tl.load(x_ptr + x_MT, mask=inside, other=float("-inf")), READ).to(COMPUTE)
    max_M = tl.max(x_MT, axis=1)
    sum_M = tl.sum(tl.exp(x_MT - finite(max_M[:, None])), axis=1)
    y_MT = result_of(x_MT, max_M[:, None], sum_M[:, None], LOG, SAFE)
    at_MT = row_offsets(m, shape, out_strides)[:, None] + column_offsets(j, k, shape, out_strides)[None, :]
    tl.store(out_ptr + at_MT, converted(y_MT, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def softmax_short_rows_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    rows: tl.tensor,
    length: tl.tensor,
    READ: tl.constexpr,
    LOG: tl.constexpr,
    SAFE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_I: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_L: tl.constexpr,
) -> None:
    """Several whole contiguous rows at once: see :func:`~.unaligned_rows.short_rows`."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    t_IL = short_row_columns(BLOCK_I, BLOCK_L)
    inside = (m < rows)[None, :, None] & (t_IL < length)[:, None, :]
    x_IML = (x_ptr + row_offsets(m, shape, x_strides))[None, :, None] + t_IL[:, None, :]
    x_IML = converted(load_first_in_lane(x_IML, inside, float("-inf")), READ).to(COMPUTE)
    max_M = tl.max(tl.max(x_IML, axis=0), axis=1)
    sum_M = tl.sum(tl.sum(tl.exp(x_IML - finite(max_M[None, :, None])), axis=0), axis=1)
    y_IML = result_of(x_IML, max_M[None, :, None], sum_M[None, :, None], LOG, SAFE)
    at_IML = (out_ptr + row_offsets(m, shape, out_strides))[None, :, None] + t_IL[:, None, :]
    store_first_in_lane(at_IML, converted(y_IML, out_ptr.dtype.element_ty), inside)


@triton.jit
def softmax_unaligned_rows_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    length: tl.tensor,
    READ: tl.constexpr,
    LOG: tl.constexpr,
    SAFE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    SAME_ALIGNMENT: tl.constexpr,
    VECTOR: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """A whole contiguous row at once: its edges and its body, see unaligned_rows.py."""
    pdl_prologue()
    m = tl.program_id(0).to(INDEX)
    x_row = row_offsets(m, shape, x_strides)
    out_row = row_offsets(m, shape, out_strides)
    head, body, e, is_edge_E = aligned_body(x_row, length, VECTOR)
    t = tl.arange(0, BLOCK)
    x_T = tl.load(x_ptr + aligned(x_row + head, VECTOR) + t, mask=t < body, other=float("-inf"))
    x_E = tl.load(x_ptr + x_row + e, mask=is_edge_E, other=float("-inf"))
    x_T, x_E = converted(x_T, READ).to(COMPUTE), converted(x_E, READ).to(COMPUTE)
    row_max = tl.maximum(tl.max(x_T, axis=0), tl.max(x_E, axis=0))
    total = tl.sum(tl.exp(x_T - finite(row_max)), axis=0) + tl.sum(tl.exp(x_E - finite(row_max)), axis=0)
    y_T = converted(result_of(x_T, row_max, total, LOG, SAFE), out_ptr.dtype.element_ty)
    y_E = converted(result_of(x_E, row_max, total, LOG, SAFE), out_ptr.dtype.element_ty)
    tl.store(out_ptr + aligned(out_row + head, VECTOR if SAME_ALIGNMENT else 1) + t, y_T, mask=t < body)
    tl.store(out_ptr + out_row + e, y_E, mask=is_edge_E)


@triton.jit
def softmax_tiled_rows_kernel(
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    splits: tl.tensor,
    steps: tl.tensor,
    READ: tl.constexpr,
    LOG: tl.constexpr,
    SAFE: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """BLOCK_M long rows, or one split of them, in ``steps`` tiles; ``partial_S2M`` holds maxima and sums of splits."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    is_row_M = m < sizes[0]
    split = tl.program_id(1)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    if partial_ptr is None:
        max_M, sum_M = denominator(
            x_M, is_row_M, shape, x_strides, sizes, 0, steps, READ, COMPUTE, INDEX, BLOCK_J, BLOCK_K
        )
    else:
        max_M, sum_M = merged_denominators(partial_ptr, m, sizes[0], splits, BLOCK_S)
    for step in range(steps):
        j, k = tile_columns(split * steps + step, sizes, INDEX, BLOCK_J, BLOCK_K)
        inside = is_row_M[:, None] & ((j < sizes[1]) & (k < sizes[2]))[None, :]
        x_MT = tl.load(x_M[:, None] + column_offsets(j, k, shape, x_strides)[None, :], mask=inside, other=0)
        x_MT = converted(x_MT, READ).to(COMPUTE)
        y_MT = result_of(x_MT, max_M[:, None], sum_M[:, None], LOG, SAFE)
        at_MT = row_offsets(m, shape, out_strides)[:, None] + column_offsets(j, k, shape, out_strides)[None, :]
        tl.store(out_ptr + at_MT, converted(y_MT, out_ptr.dtype.element_ty), mask=inside)


@triton.jit
def denominators_kernel(
    partial_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """Maxima and sums of each split, as ``partial_S2M``."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    split = tl.program_id(1)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    max_M, sum_M = denominator(
        x_M, m < sizes[0], shape, x_strides, sizes, split * steps, steps, READ, COMPUTE, INDEX, BLOCK_J, BLOCK_K
    )
    at_M = partial_ptr + split.to(INDEX) * 2 * sizes[0] + m
    tl.store(at_M, max_M, mask=m < sizes[0])
    tl.store(at_M + sizes[0], sum_M, mask=m < sizes[0])


@triton.jit
def merged_denominators(
    partial_ptr: tl.tensor, m: tl.tensor, M: tl.tensor, splits: tl.tensor, BLOCK_S: tl.constexpr
) -> tl.tuple:
    """The maximum and the sum of each row, from those of its splits."""
    if m.shape[0] == 1:
        # Of a single row as numbers: tensors would have to be brought to the layout of the tiles.
        row_max, total = merged_denominator(partial_ptr, tl.sum(m, axis=0), M, splits, BLOCK_S)
        max_M = row_max + tl.zeros([1], row_max.dtype)
        sum_M = total + tl.zeros([1], row_max.dtype)
    else:
        s = tl.arange(0, BLOCK_S).to(m.dtype)
        at_MS = partial_ptr + s[None, :] * 2 * M + m[:, None]
        inside = (m < M)[:, None] & (s < splits)[None, :]
        max_MS = tl.load(at_MS, mask=inside, other=float("-inf"))
        sum_MS = tl.load(at_MS + M, mask=inside, other=0)
        max_M = tl.max(max_MS, axis=1)
        sum_M = tl.sum(scaled(sum_MS, max_MS, max_M[:, None]), axis=1)
    return max_M, sum_M


@triton.jit
def merged_denominator(
    partial_ptr: tl.tensor, m: tl.tensor, M: tl.tensor, splits: tl.tensor, BLOCK_S: tl.constexpr
) -> tl.tuple:
    """As :func:`merged_denominators`, of row m alone."""
    s = tl.arange(0, BLOCK_S).to(m.dtype)
    at_S = partial_ptr + s * 2 * M + m
    max_S = tl.load(at_S, mask=s < splits, other=float("-inf"))
    sum_S = tl.load(at_S + M, mask=s < splits, other=0)
    row_max = tl.max(max_S, axis=0)
    return row_max, tl.sum(scaled(sum_S, max_S, row_max), axis=0)


@triton.jit
def logsumexp_kernel(
    out_ptr: tl.tensor,
    x_ptr: tl.tensor,
    shape: tl.tuple,
    x_strides: tl.tuple,
    out_strides: tl.tuple,
    sizes: tl.tuple,
    steps: tl.tensor,
    READ: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_J: tl.constexpr,
    BLOCK_K: tl.constexpr,
) -> None:
    """``max + log sum``; of nothing, ``-inf``."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    x_M = x_ptr + row_offsets(m, shape, x_strides)
    max_M, sum_M = denominator(
        x_M, m < sizes[0], shape, x_strides, sizes, 0, steps, READ, COMPUTE, INDEX, BLOCK_J, BLOCK_K
    )
    at_M = out_ptr + row_offsets(m, shape, out_strides)
    tl.store(at_M, converted(max_M + tl.log(sum_M), out_ptr.dtype.element_ty), mask=m < sizes[0])


@triton.jit
def merge_logsumexp_kernel(
    out_ptr: tl.tensor,
    partial_ptr: tl.tensor,
    shape: tl.tuple,
    out_strides: tl.tuple,
    M: tl.tensor,
    splits: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_S: tl.constexpr,
) -> None:
    """``max + log sum`` of rows whose splits are in ``partial_S2M``."""
    pdl_prologue()
    m = tile_rows(INDEX, BLOCK_M)
    max_M, sum_M = merged_denominators(partial_ptr, m, M, splits, BLOCK_S)
    at_M = out_ptr + row_offsets(m, shape, out_strides)
    tl.store(at_M, converted(max_M + tl.log(sum_M), out_ptr.dtype.element_ty), mask=m < M)


# ---------------------------------------------------------------- the ops


def softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """Softmax along ``dim``; ``half_to_float`` widens float16 to a float32 result.

    Raises:
        IndexError: ``dim`` out of range.
        TypeError: ``half_to_float`` for another type than float16.
    """
    return _softmax(self, dim, _result_dtype(self, half_to_float))


def log_softmax(self: torch.Tensor, dim: int, half_to_float: bool) -> torch.Tensor:
    """The logarithm of :func:`softmax`; raises as that does."""
    return _softmax(self, dim, _result_dtype(self, half_to_float), log=True)


def safe_softmax(self: torch.Tensor, dim: int, dtype: torch.dtype | None = None) -> torch.Tensor:
    """Softmax along ``dim`` of ``self`` converted to ``dtype``, if one is given; 0 for rows of ``-inf`` alone."""
    return _softmax(self, dim, dtype or self.dtype, read=dtype, safe=True)


def converted_softmax(x: torch.Tensor, dim: int, dtype: torch.dtype | None, *, log: bool = False) -> torch.Tensor:
    """Softmax along ``dim`` of ``x`` converted to ``dtype``, if one is given, or its logarithm."""
    return _softmax(x, dim, dtype or x.dtype, read=dtype, log=log)


def logsumexp(self: torch.Tensor, dim: Sequence[int], keepdim: bool = False) -> torch.Tensor:
    """The logarithm of the sum of exponentials over ``dim`` (empty: all); of integers in the default float type."""
    require_served(self)
    result = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    dims = normalized_dims(dim, self.ndim)
    full_shape = [1 if d in dims else size for d, size in enumerate(self.shape)]
    shape = full_shape if keepdim else [size for d, size in enumerate(self.shape) if d not in dims]
    out = torch.empty(shape, dtype=result, device=self.device)
    if out.numel():
        _launch_logsumexp(out, self, matrix_of(self.shape, [self.stride(), row_strides(self.shape, dims)], dims))
    return out


def _result_dtype(x: torch.Tensor, half_to_float: bool) -> torch.dtype:
    if half_to_float and x.dtype != torch.float16:
        raise TypeError(f"half_to_float widens float16 only, not {x.dtype}")
    return torch.float32 if half_to_float else x.dtype


def _softmax(
    x: torch.Tensor,
    dim: int,
    result: torch.dtype,
    *,
    read: torch.dtype | None = None,
    log: bool = False,
    safe: bool = False,
) -> torch.Tensor:
    require_served(x)
    if (read or x.dtype) not in FLOATS or result not in FLOATS:
        raise NotImplementedError(f"a softmax of {read or x.dtype} is not served")
    columns = normalized_dims(dim, x.ndim)
    out = torch.empty(x.shape, dtype=result, device=x.device)
    if x.numel():
        matrix = matrix_of(x.shape, [x.stride(), out.stride()], columns)
        _launch_softmax(out, x, matrix, READ=ELEMENT_TYPE[read or x.dtype], LOG=log, SAFE=safe)
    return out


def _launch_softmax(out: torch.Tensor, x: torch.Tensor, matrix: Matrix, **constants: Any) -> None:
    constants |= {"COMPUTE": compute_type(out.dtype), "INDEX": matrix.index}
    arguments = (matrix.shape, matrix.strides(0), matrix.strides(1), matrix.sizes)
    # Few rows get twice as many elements anyway. No more of a float64 row fits into registers.
    doubled = matrix.sizes[0] > multiprocessors(x.device) and compute_dtype(out.dtype) != torch.float64
    tiles = whole_rows(matrix, x.device, most=2 * WHOLE_ROW if doubled else WHOLE_ROW)
    if tiles is not None and are_unaligned(matrix, tiles):
        cut, grid = cut_rows(matrix, [x, out]), (matrix.sizes[0],)
        constants |= cut.whole(tiles.warps)
        launch(softmax_unaligned_rows_kernel, grid, x.device, out, x, *arguments[:3], cut.length, **constants)
        return
    short = tiles and short_rows(matrix, tiles)
    if tiles is not None and short is not None:
        grid, sizes = (triton.cdiv(matrix.sizes[0], tiles.block_m),), (matrix.sizes[0], matrix.sizes[2])
        launch(softmax_short_rows_kernel, grid, x.device, out, x, *arguments[:3], *sizes, **constants, **short)
        return
    if tiles is not None:
        grid = (triton.cdiv(matrix.sizes[0], tiles.block_m),)
        launch(softmax_rows_kernel, grid, x.device, out, x, *arguments, **constants, **tiles.blocks())
        return
    if are_contiguous(matrix):
        cut = cut_rows(matrix, [x, out])
        partial_S2M = None
        if cut.parts > 1:
            partial_S2M = _launch_contiguous_denominators(x, matrix, cut, compute_dtype(out.dtype), constants["READ"])
        launch(
            softmax_contiguous_rows_kernel,
            cut.grid(),
            x.device,
            out,
            partial_S2M,
            x,
            *arguments[:3],
            *cut.sizes(),
            **constants,
            **cut.options(),
            SAME_ALIGNMENT=cut.same_alignment,
            BLOCK_S=triton.next_power_of_2(cut.parts),
        )
        return
    tiles = long_row_tiles(matrix, x.device)
    partial_S2M = None
    if tiles.splits > 1:
        partial_S2M = _launch_denominators(x, matrix, tiles, compute_dtype(out.dtype), constants["READ"])
    launch(
        softmax_tiled_rows_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        out,
        partial_S2M,
        x,
        *arguments,
        tiles.splits,
        loop_bound(tiles.steps),
        **constants,
        **tiles.blocks(),
        BLOCK_S=triton.next_power_of_2(tiles.splits),
    )


def long_row_tiles(matrix: Matrix, device: torch.device) -> Tiling:
    """Tiles of long rows, split where they are fewer than two for each multiprocessor."""
    tiles = tiling(matrix, device, merged=True)
    if INTERPRETED or matrix.rows_are_faster or matrix.sizes[0] < 2 * multiprocessors(device):
        return tiles
    return tiling(matrix, device, tile=LONG_ROW_TILE, split=False)


def _launch_contiguous_denominators(
    x: torch.Tensor, matrix: Matrix, cut: RowCut, compute: torch.dtype, read: Any
) -> torch.Tensor:
    """As :func:`_launch_denominators`, of contiguous rows."""
    partial_S2M = torch.empty((cut.parts, 2, cut.rows), dtype=compute, device=x.device)
    launch(
        contiguous_denominators_kernel,
        cut.grid(),
        x.device,
        partial_S2M,
        x,
        matrix.shape,
        matrix.strides(0),
        *cut.sizes(),
        READ=read,
        COMPUTE=ELEMENT_TYPE[compute],
        INDEX=matrix.index,
        **cut.options(),
    )
    return partial_S2M


def _launch_denominators(
    x: torch.Tensor, matrix: Matrix, tiles: Tiling, compute: torch.dtype, read: Any
) -> torch.Tensor:
    """Maxima and sums of each split, as :func:`merged_denominators` reads them."""
    partial_S2M = torch.empty((tiles.splits, 2, matrix.sizes[0]), dtype=compute, device=x.device)
    launch(
        denominators_kernel,
        (triton.cdiv(matrix.sizes[0], tiles.block_m), tiles.splits),
        x.device,
        partial_S2M,
        x,
        matrix.shape,
        matrix.strides(0),
        matrix.sizes,
        loop_bound(tiles.steps),
        READ=read,
        COMPUTE=ELEMENT_TYPE[compute],
        INDEX=matrix.index,
        **tiles.blocks(),
    )
    return partial_S2M


def _launch_logsumexp(out: torch.Tensor, x: torch.Tensor, matrix: Matrix) -> None:
    tiles = tiling(matrix, x.device)
    compute, read = compute_dtype(out.dtype), ELEMENT_TYPE[out.dtype]
    M = matrix.sizes[0]
    if tiles.splits == 1:
        launch(
            logsumexp_kernel,
            (triton.cdiv(M, tiles.block_m),),
            x.device,
            out,
            x,
            matrix.shape,
            matrix.strides(0),
            matrix.strides(1),
            matrix.sizes,
            loop_bound(tiles.steps),
            READ=read,
            COMPUTE=ELEMENT_TYPE[compute],
            INDEX=matrix.index,
            **tiles.blocks(),
        )
        return
    block_s = triton.next_power_of_2(tiles.splits)
    block_m = side(M, max(1024 // block_s, 1))
    launch(
        merge_logsumexp_kernel,
        (triton.cdiv(M, block_m),),
        x.device,
        out,
        _launch_denominators(x, matrix, tiles, compute, read),
        matrix.shape,
        matrix.strides(1),
        M,
        tiles.splits,
        INDEX=matrix.index,
        BLOCK_M=block_m,
        BLOCK_S=block_s,
    )
