"""Gradients of embeddings: sums of the rows that name the same row of a weight.

A program owns some rows of the result, and all or some of their columns. It looks through all indices, notes which of
them are its own, and adds up the rows of the gradient that these stand for, a few at a time: ``one-hot @ rows``
is a matrix product, exact in half types because its factors are 0 and 1. So each element of the result is written
once, zeros too, and always in the same order, without atomic operations. Where there are few rows, the indices are
split among several programs, whose partial sums a second launch adds up.

Looking through the indices costs their number times that of programs. Where the result is large and that is more bytes
than adding the gradient with atomic operations, it is added: to the result itself, or for types that sums are not kept
in to a row of sums for each row that is named (:mod:`row_owners`), or to a whole table of sums where more indices than
rows would take more.

Suffixes: ``_R`` rows of the result, ``_D`` columns, ``_T`` tokens: indices and rows of the gradient, ``_G`` a group
of them.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import IS_INTERPRETED, Geometry, converted, index_type, merge_dims, offset_of
from ..common.launch import (
    INTERPRETED,
    compute_dtype,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    multiprocessors,
    pdl_prologue,
    require_served,
)
from ..copies.rearrangements import fill
from ..indexing.gathering import Index, require_index
from ..indexing.scattering import Combine, Places, combine, count_at
from .row_owners import LAUNCHES, MOST_TOKENS, owners_bytes, sum_by_owners

#: Rows of the result that a program owns, and of the gradient that it adds at a time.
ROWS, GROUP = 32, 16
#: Indices that it looks at at a time.
CHUNK = 2048
#: Notes of all programs together: what is more goes through atomic operations.
MOST_NOTES = 1 << 26
#: Results of so many bytes are summed in segments where notes allow it, always in the same order: on an H200 1.4 times
#: as fast as eager with 103 MB, but 0.8 times with 308 MB, which a fill writes in less than half the time.
SEGMENTS_BYTES = 128 << 20
#: What an H200 moves, at 4.8 TB/s, in the 1.07 us that no launch is shorter than (benchmarks/results/README.md).
LAUNCH_BYTES = 5_000_000


@triton.jit
def segment_sum_kernel(
    out_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    index_ptr: tl.tensor,
    notes_ptr: tl.tensor,
    shape_T: tl.tuple,
    index_strides_T: tl.tuple,
    grad_strides_T: tl.tuple,
    grad_stride_D: tl.tensor,
    tokens: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    skipped: tl.tensor,
    share: tl.tensor,
    steps: tl.tensor,
    BY_FREQUENCY: tl.constexpr,
    COMPUTE: tl.constexpr,
    INDEX: tl.constexpr,
    ROWS: tl.constexpr,
    WIDTH: tl.constexpr,
    GROUP: tl.constexpr,
    CHUNK: tl.constexpr,
) -> None:
    """``out[s, r] = sum of grad[t] where index[t] == r`` over the tokens of split s; nothing for row ``skipped``.

    BY_FREQUENCY divides the sum by the number of its terms.
    """
    pdl_prologue()
    first = tl.program_id(0).to(INDEX) * ROWS
    d = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    split = tl.program_id(2).to(INDEX)
    program = (split * tl.num_programs(1) + tl.program_id(1)) * tl.num_programs(0) + tl.program_id(0)
    notes = notes_ptr + program.to(tl.int64) * share
    found = tl.zeros([1], tl.int32)
    for step in range(steps):
        within = step * CHUNK + tl.arange(0, CHUNK)
        t = split * share + within
        inside = (within < share) & (t < tokens)
        row = tl.load(index_ptr + offset_of(t, shape_T, index_strides_T), mask=inside, other=-1)
        mine = inside & (row >= first) & (row < first + ROWS) & (row != skipped)
        ones = mine.to(tl.int32)
        tl.store(notes + found + tl.cumsum(ones, axis=0) - ones, within * ROWS + (row - first).to(tl.int32), mask=mine)
        found += tl.sum(ones, axis=0)
    # Notes are read by other threads than those that wrote them.
    tl.debug_barrier()
    r = tl.arange(0, ROWS)
    total_RD = tl.zeros([ROWS, WIDTH], COMPUTE)
    terms_R = tl.zeros([ROWS], tl.int32)
    count = tl.max(found, axis=0)
    done = 0
    while done < count:
        g = done + tl.arange(0, GROUP)
        note_G = tl.load(notes + g, mask=g < count, other=0)
        t_G = split * share + note_G // ROWS
        here_RG = (r[:, None] == (note_G % ROWS)[None, :]) & (g < count)[None, :]
        at_G = grad_ptr + offset_of(t_G, shape_T, grad_strides_T)
        at_GD = at_G[:, None] + (d.to(INDEX) * grad_stride_D)[None, :]
        grad_GD = tl.load(at_GD, mask=(g < count)[:, None] & (d < columns)[None, :], other=0)
        if IS_INTERPRETED:  # Triton's interpreter multiplies the bits of bfloat16.
            grad_GD = grad_GD.to(tl.float32)
        one_hot_RG = here_RG.to(tl.float32).to(grad_GD.dtype)
        total_RD = tl.dot(one_hot_RG, grad_GD, total_RD, input_precision="ieee")
        terms_R += tl.sum(here_RG.to(tl.int32), axis=1)
        done += GROUP
    if BY_FREQUENCY:
        total_RD = total_RD / tl.maximum(terms_R, 1).to(COMPUTE)[:, None]
    row_R = first + r
    out_RD = out_ptr + (split * rows + row_R)[:, None] * columns + d[None, :]
    mask_RD = (row_R < rows)[:, None] & (d < columns)[None, :]
    tl.store(out_RD, converted(total_RD, out_ptr.dtype.element_ty), mask=mask_RD)


@triton.jit
def add_partial_kernel(
    out_ptr: tl.tensor, partial_ptr: tl.tensor, numel: tl.tensor, splits: tl.tensor, BLOCK: tl.constexpr
) -> None:
    """``out = sum of the partial sums``."""
    pdl_prologue()
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], partial_ptr.dtype.element_ty)
    for split in range(splits):
        total += tl.load(partial_ptr + split * numel + i, mask=i < numel, other=0)
    tl.store(out_ptr + i, converted(total, out_ptr.dtype.element_ty), mask=i < numel)


class Shares(NamedTuple):
    """How the work is cut: programs down, across and along the tokens; columns of a program and tokens of a split."""

    down: int
    across: int
    splits: int
    width: int
    share: int

    @property
    def programs(self) -> int:
        """All of them."""
        return self.down * self.across * self.splits


def _shares(rows: int, columns: int, tokens: int, device: torch.device, *, may_split: bool) -> Shares:
    """All columns in one program up to 1024, and enough programs to fill the device."""
    width = max(min(triton.next_power_of_2(columns), 1024), 16)
    down, across = triton.cdiv(rows, ROWS), triton.cdiv(columns, width)
    wanted = 2 * multiprocessors(device) // (down * across)
    splits = max(min(wanted, tokens // (4 * GROUP)), 1) if may_split and not INTERPRETED else 1
    # Few rows leave the columns as what may be cut: a narrower program looks through the same indices.
    while splits * down * across < multiprocessors(device) and width > 64:
        width //= 2
        across = triton.cdiv(columns, width)
    return Shares(down, across, splits, width, triton.cdiv(tokens, splits))


class Way(enum.Enum):
    """How rows are added up."""

    SEGMENTS = enum.auto()
    TABLE = enum.auto()
    OWNERS = enum.auto()


def embedding_dense_backward(
    grad_output: torch.Tensor, indices: torch.Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool
) -> torch.Tensor:
    """``[num_weights, D]``: each row the sum of the rows of ``grad_output`` whose index names it.

    Args:
        grad_output: ``[*indices.shape, D]``.
        indices: int64 or int32.
        num_weights: rows of the result.
        padding_idx: a row that stays zero, or -1.
        scale_grad_by_freq: divide each sum by the number of its terms.
    """
    require_index(indices, grad_output, dtypes=(torch.int64, torch.int32))
    require_served(grad_output, dtypes=(torch.float16, torch.bfloat16, torch.float32, torch.float64))
    out = torch.empty((num_weights, grad_output.shape[-1]), dtype=grad_output.dtype, device=grad_output.device)
    sum_rows(out, grad_output, indices, padding_idx, by_frequency=scale_grad_by_freq)
    return out


def sum_rows(out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, skipped: int, *, by_frequency: bool) -> None:
    """Write to ``out``, ``[rows, D]``, the sums of the rows of ``grad``, of its type or the one that sums have.

    Row ``skipped`` stays zero, and sums are divided by the number of their terms if ``by_frequency``.
    """
    if out.numel() == 0:
        return
    rows, columns = out.shape
    shares = _shares(rows, columns, indices.numel(), out.device, may_split=not by_frequency)
    match way_for(out, grad, indices, shares, by_frequency=by_frequency):
        case Way.SEGMENTS:
            _launch_sums(out, grad, indices, shares, skipped, by_frequency=by_frequency)
        case Way.OWNERS:
            sum_by_owners(out, grad, indices, skipped, by_frequency=by_frequency)
        case Way.TABLE:
            _add_to_table(out, grad, indices, skipped, by_frequency=by_frequency)


def way_for(out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, shares: Shares, *, by_frequency: bool) -> Way:
    """Segments up to a size, and beyond it the way that moves the fewest bytes.

    Of those whose notes are no more than they may be, and whose sums take no more memory than a table of them.
    """
    costs = {}
    if shares.programs * shares.share <= MOST_NOTES and out.dtype != torch.float64:
        if out.numel() * out.element_size() <= SEGMENTS_BYTES:
            return Way.SEGMENTS
        launches = 2 if shares.splits > 1 else 1
        costs[Way.SEGMENTS] = _segments_bytes(out, grad, indices, shares) + launches * LAUNCH_BYTES
    launches = 2 + 2 * by_frequency + (by_frequency or _is_rounded(out))
    costs[Way.TABLE] = _table_bytes(out, grad, indices, by_frequency=by_frequency) + launches * LAUNCH_BYTES
    if indices.numel() <= min(out.shape[0], MOST_TOKENS):
        costs[Way.OWNERS] = owners_bytes(out, grad, indices) + LAUNCHES * LAUNCH_BYTES
    return min(costs, key=lambda way: costs[way])


def _is_rounded(out: torch.Tensor) -> bool:
    """Whether sums are of another type than the result."""
    return compute_dtype(out.dtype) != out.dtype


def _segments_bytes(out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, shares: Shares) -> int:
    """Indices once a program, in whole chunks, which take as long; the gradient once a column; the result.

    Partial sums are written and read.
    """
    looked_at = shares.programs * -(-shares.share // CHUNK) * CHUNK * indices.element_size()
    partial = 2 * shares.splits * out.numel() * compute_dtype(out.dtype).itemsize if shares.splits > 1 else 0
    added = indices.numel() * out.shape[1] * grad.element_size()
    return looked_at + partial + added + out.numel() * out.element_size()


def _table_bytes(out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, *, by_frequency: bool) -> int:
    """Zeros of the sums; for each element of the gradient itself, a sum read and written; the sums rounded, or divided.

    Counts are int32, one for each element of the table, and add up like sums.
    """
    added, sums = indices.numel() * out.shape[1], compute_dtype(out.dtype).itemsize
    total = out.numel() * sums + added * (grad.element_size() + 2 * sums)
    if by_frequency:
        total += 2 * 4 * (out.numel() + added)
    if by_frequency or _is_rounded(out):
        total += out.numel() * (sums + out.element_size())
    return total


def _add_to_table(
    out: torch.Tensor, grad: torch.Tensor, indices: torch.Tensor, skipped: int, *, by_frequency: bool
) -> None:
    """With atomic operations, in a table of the type that sums have."""
    rows, columns = out.shape
    given = Index(indices, (*indices.stride(), 0), rows, columns)
    places = Places(tuple(grad.shape), (0,) * indices.ndim + (1,), [given], axis=0)
    counts = count_at(out, places) if by_frequency else None
    combine(out, None, grad, places, Combine.ADD, counts=counts)
    if 0 <= skipped < rows:
        fill(out.select(0, skipped), 0)


def _launch_sums(
    out: torch.Tensor,
    grad: torch.Tensor,
    indices: torch.Tensor,
    shares: Shares,
    skipped: int,
    *,
    by_frequency: bool,
) -> None:
    rows, columns = out.shape
    tokens = merge_dims(tuple(indices.shape), [indices.stride(), grad.stride()[:-1]], range(indices.ndim - 1, -1, -1))
    notes = torch.empty(shares.programs * shares.share, dtype=torch.int32, device=out.device)
    partial = out
    if shares.splits > 1:
        partial = torch.empty((shares.splits, *out.shape), dtype=compute_dtype(out.dtype), device=out.device)
    launch(
        segment_sum_kernel,
        (shares.down, shares.across, shares.splits),
        out.device,
        partial,
        grad,
        indices,
        notes,
        tokens.shape_D,
        *tokens.strides_ID,
        grad.stride(-1),
        indices.numel(),
        rows,
        columns,
        skipped,
        shares.share,
        loop_bound(triton.cdiv(shares.share, CHUNK)),
        BY_FREQUENCY=by_frequency,
        COMPUTE=compute_type(out.dtype),
        INDEX=index_type(tokens, Geometry(tuple(partial.shape), (partial.stride(),)), merge_dims(*_span(grad))),
        ROWS=ROWS,
        WIDTH=shares.width,
        GROUP=GROUP,
        CHUNK=CHUNK,
        num_warps=max(shares.width // 64, 4),
    )
    if shares.splits > 1:
        numel = out.numel()
        grid = (triton.cdiv(numel, 1024),)
        launch(add_partial_kernel, grid, out.device, out, partial, numel, loop_bound(shares.splits), BLOCK=1024)


def _span(tensor: torch.Tensor) -> tuple[tuple[int, ...], list[tuple[int, ...]], range]:
    shape, strides = layout_of(tensor)
    return shape, [strides], range(tensor.ndim)
