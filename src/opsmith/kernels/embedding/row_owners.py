"""Sums of the rows that name the same row of a large table, without a second table to add up in.

Of the tokens that name a row one owns it: whichever was the last to write its number into ``owners[row]``. That table
needs no first value, because nobody reads a place of it that no token wrote. The owner keeps its row of the gradient;
the others add theirs to the row ``sums[owner]`` in float32 with atomic operations, in no fixed order. Then each owner
writes its row of the result. Rows that are named once, as most are, are copied, and their row of sums stays untouched.

With R rows of D columns and T tokens, elements of e bytes and sums of w, this moves

    e R D                          zeros of the result
    T (4 lookups)                  an index and a sector of ``owners`` for each launch
    2 e D                          for a token alone with its row
    (k (e + 2 w) + e) D            for k tokens of one row, which open, add and read a row of sums

A table to add up in moves (2 w + e) R D + T (e + 2 w) D instead: of half types 10 R D bytes where this moves 2 R D.

Suffixes: ``_T`` tokens: indices and rows of the gradient, ``_D`` columns.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type, merge_dims, offset_of, widened
from ..common.launch import (
    INTERPRETED,
    INTERPRETED_TILE,
    compute_dtype,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    pdl_prologue,
)
from ..copies.rearrangements import fill

#: Elements of the gradient that a program takes at a time, and of a row at most.
TILE, WIDEST = 4096, 512
#: Tokens of a program that only looks at indices.
BLOCK = 256
#: Bytes of a sector, the least that is read or written of a place somewhere in memory.
SECTOR = 32
#: Their numbers are int32.
MOST_TOKENS = (1 << 31) - 1
#: Launches, and those that look up the row of each token.
LAUNCHES, LOOKUPS = 5, 4


@triton.jit
def named_rows(
    t_T: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    tokens: tl.tensor,
    rows: tl.tensor,
    skipped: tl.tensor,
) -> tl.tuple:
    """The rows that tokens name, and whether they do: not row ``skipped``, nor one out of range."""
    row_T = tl.load(index_ptr + offset_of(t_T, shape_T, index_strides_T), mask=t_T < tokens, other=-1)
    return row_T.to(t_T.dtype), (row_T >= 0) & (row_T < rows) & (row_T != skipped)


@triton.jit
def owned_tokens(
    owners_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    tokens: tl.tensor,
    rows: tl.tensor,
    skipped: tl.tensor,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
) -> tl.tuple:
    """This program's tokens, the rows that they name, whether they do, and which tokens own these rows."""
    t_T = tl.program_id(0).to(INDEX) * HEIGHT + tl.arange(0, HEIGHT)
    row_T, named_T = named_rows(t_T, index_ptr, shape_T, index_strides_T, tokens, rows, skipped)
    return t_T, row_T, named_T, tl.load(owners_ptr + row_T, mask=named_T, other=0).to(INDEX)


@triton.jit
def claim_kernel(
    owners_ptr: tl.tensor,
    repeats_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    tokens: tl.tensor,
    rows: tl.tensor,
    skipped: tl.tensor,
    INDEX: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``owners[index[t]] = t``, of which one stays, and ``repeats[t] = 0``."""
    pdl_prologue()
    t_T = tl.program_id(0).to(INDEX) * BLOCK + tl.arange(0, BLOCK)
    row_T, named_T = named_rows(t_T, index_ptr, shape_T, index_strides_T, tokens, rows, skipped)
    tl.store(owners_ptr + row_T, t_T.to(tl.int32), mask=named_T)
    tl.store(repeats_ptr + t_T, tl.zeros([BLOCK], tl.int32), mask=t_T < tokens)


@triton.jit
def open_sums_kernel(
    sums_ptr: tl.tensor,
    repeats_ptr: tl.tensor,
    owners_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    tokens: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    skipped: tl.tensor,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``repeats[owner] += 1`` for each token that names another's row; the first of them zeroes ``sums[owner]``."""
    pdl_prologue()
    t_T, _row_T, named_T, owner_T = owned_tokens(
        owners_ptr, index_ptr, shape_T, index_strides_T, tokens, rows, skipped, INDEX, HEIGHT
    )
    repeats_T = named_T & (owner_T != t_T)
    one_T = tl.full([HEIGHT], 1, tl.int32)
    before_T = tl.atomic_add(repeats_ptr + owner_T, one_T, mask=repeats_T, sem="relaxed")
    opens_T = repeats_T & (before_T == 0)
    if tl.max(opens_T.to(tl.int32), axis=0) > 0:
        for step in range(steps):
            d = step * WIDTH + tl.arange(0, WIDTH)
            sums_TD = sums_ptr + (owner_T * columns)[:, None] + d[None, :]
            zeros_TD = tl.zeros([HEIGHT, WIDTH], sums_ptr.dtype.element_ty)
            tl.store(sums_TD, zeros_TD, mask=opens_T[:, None] & (d < columns)[None, :])


@triton.jit
def add_repeats_kernel(
    sums_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    owners_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    grad_strides_T: tl.tuple,
    grad_stride_D: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    skipped: tl.tensor,
    steps: tl.tensor,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``sums[owner] += grad[t]`` for each token that names another's row."""
    pdl_prologue()
    t_T, _row_T, named_T, owner_T = owned_tokens(
        owners_ptr, index_ptr, shape_T, index_strides_T, tokens, rows, skipped, INDEX, HEIGHT
    )
    repeats_T = named_T & (owner_T != t_T)
    if tl.max(repeats_T.to(tl.int32), axis=0) > 0:
        grad_T = grad_ptr + offset_of(t_T, shape_T, grad_strides_T)
        for step in range(steps):
            d = step * WIDTH + tl.arange(0, WIDTH)
            mask_TD = repeats_T[:, None] & (d < columns)[None, :]
            grad_TD = tl.load(grad_T[:, None] + (d.to(INDEX) * grad_stride_D)[None, :], mask=mask_TD, other=0)
            sums_TD = sums_ptr + (owner_T * columns)[:, None] + d[None, :]
            tl.atomic_add(sums_TD, converted(grad_TD, sums_ptr.dtype.element_ty), mask=mask_TD, sem="relaxed")


@triton.jit
def write_owned_kernel(
    out_ptr: tl.tensor,
    sums_ptr: tl.tensor,
    repeats_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    owners_ptr: tl.tensor,
    index_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    grad_strides_T: tl.tuple,
    grad_stride_D: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    skipped: tl.tensor,
    steps: tl.tensor,
    BY_FREQUENCY: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:
    """``out[index[t]] = grad[t] + sums[t]`` for each owner t, over the number of terms if BY_FREQUENCY."""
    pdl_prologue()
    t_T, row_T, named_T, owner_T = owned_tokens(
        owners_ptr, index_ptr, shape_T, index_strides_T, tokens, rows, skipped, INDEX, HEIGHT
    )
    owns_T = named_T & (owner_T == t_T)
    repeats_T = tl.load(repeats_ptr + t_T, mask=owns_T, other=0)
    grad_T = grad_ptr + offset_of(t_T, shape_T, grad_strides_T)
    for step in range(steps):
        d = step * WIDTH + tl.arange(0, WIDTH)
        mask_TD = owns_T[:, None] & (d < columns)[None, :]
        grad_TD = tl.load(grad_T[:, None] + (d.to(INDEX) * grad_stride_D)[None, :], mask=mask_TD, other=0)
        sums_TD = sums_ptr + (t_T * columns)[:, None] + d[None, :]
        others_TD = tl.load(sums_TD, mask=mask_TD & (repeats_T > 0)[:, None], other=0)
        total_TD = widened(grad_TD).to(COMPUTE) + others_TD
        if BY_FREQUENCY:
            total_TD = total_TD / (repeats_T + 1).to(COMPUTE)[:, None]
        out_TD = out_ptr + (row_T * columns)[:, None] + d[None, :]
        tl.store(out_TD, converted(total_TD, out_ptr.dtype.element_ty), mask=mask_TD)


def owners_bytes(out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor) -> int:
    """What :func:`sum_by_owners` moves at most, which is where each row is named by two tokens."""
    tokens, columns = indices.numel(), out.shape[1]
    sums = compute_dtype(out.dtype).itemsize
    per_element = grad.element_size() + 2 * sums + out.element_size() / 2
    lookups = LOOKUPS * tokens * (indices.element_size() + SECTOR)
    return out.numel() * out.element_size() + lookups + int(tokens * columns * per_element)


def sum_by_owners(
    out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, skipped: int, *, by_frequency: bool
) -> None:
    """Write to ``out``, ``[rows, D]``, the sums of the rows of ``grad`` whose index names a row of it.

    Args:
        out: contiguous.
        grad: ``[*indices.shape, D]``.
        indices: int64 or int32, no more than MOST_TOKENS of them.
        skipped: a row that stays zero, or -1.
        by_frequency: divide each sum by the number of its terms.
    """
    fill(out, 0)
    (rows, columns), count, device = out.shape, indices.numel(), out.device
    if count == 0:
        return
    owners = torch.empty(rows, dtype=torch.int32, device=device)
    repeats = torch.empty(count, dtype=torch.int32, device=device)
    sums = torch.empty((count, columns), dtype=compute_dtype(out.dtype), device=device)
    tokens = merge_dims(tuple(indices.shape), [indices.stride(), grad.stride()[:-1]], range(indices.ndim - 1, -1, -1))
    index_strides_T, grad_strides_T = tokens.strides_ID
    named = (indices, tokens.shape_D, index_strides_T)
    shape, strides = layout_of(grad)
    reach = [Geometry((x.numel(),), ((1,),)) for x in (out, sums)]
    index = index_type(tokens, *reach, merge_dims(shape, [strides], range(grad.ndim)))
    block = INTERPRETED_TILE if INTERPRETED else BLOCK
    grid = (triton.cdiv(count, block),)
    launch(claim_kernel, grid, device, owners, repeats, *named, count, rows, skipped, INDEX=index, BLOCK=block)
    width = min(triton.next_power_of_2(columns), WIDEST)
    height = (INTERPRETED_TILE if INTERPRETED else TILE) // width
    grid = (triton.cdiv(count, height),)
    sizes = (count, rows, columns, skipped, loop_bound(triton.cdiv(columns, width)))
    tile = {"INDEX": index, "HEIGHT": height, "WIDTH": width}
    launch(open_sums_kernel, grid, device, sums, repeats, owners, *named, *sizes, **tile)
    row_strides = (grad_strides_T, grad.stride(-1))
    launch(add_repeats_kernel, grid, device, sums, grad, owners, *named, *row_strides, *sizes, **tile)
    launch(
        write_owned_kernel,
        grid,
        device,
        out,
        sums,
        repeats,
        grad,
        owners,
        *named,
        *row_strides,
        *sizes,
        BY_FREQUENCY=by_frequency,
        COMPUTE=compute_type(out.dtype),
        **tile,
    )
