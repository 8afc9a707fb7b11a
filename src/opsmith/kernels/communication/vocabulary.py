"""Softmax, cross-entropy and log-probabilities where each rank has a part of the columns.

With the maximum ``m_r`` of a row's part on rank r and ``s_r = sum of exp(x - m_r)`` there::

    m = max over r of m_r,     s = sum over r of s_r exp(m_r - m),     logsumexp = m + log s

A pass over the logits leaves m_r, s_r and the logit at the target, where this rank has it, in this rank's buffer:
three numbers a row. When ranks have met, each reads the numbers of all and merges them in the order of ranks: all get
the same bits. Of a row 12 bytes cross each link, in one step; three all-reduces of torch's take three steps, and
passes over the logits between them.

Suffixes: ``_T`` columns of a tile, ``_B`` rows of a block.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..softmax.softmax import scaled
from .symmetric import Group, buffer_of, launch, meet, require_device

#: Columns of a tile; a row's program goes over them with a maximum and a sum for each lane.
MOST_COLUMNS = 4096
#: Rows that a block merges at a time.
ROWS = 256
#: Numbers of a row that ranks exchange: maximum, sum, logit at the target.
NUMBERS = tl.constexpr(3)


@triton.jit
def row_numbers_kernel(
    x: tl.tensor,
    targets: tl.tensor,
    buffers: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    row_stride: tl.tensor,
    column_stride: tl.tensor,
    scale: tl.tensor,
    RANK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Maximum, sum of exponentials, and the logit at the target of one row, in this rank's buffer.

    Online softmax (Milakov and Gimelshein, 2018) in every lane, with one exponential for an element: it leaves the
    lane's maximum, or takes its place and rescales the sum. A target of another rank leaves 0.
    """
    row = tl.program_id(0).to(tl.int64)
    max_T = tl.full((BLOCK,), float("-inf"), tl.float32)
    sum_T = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        column = start + tl.arange(0, BLOCK)
        place = x + row * row_stride + column.to(tl.int64) * column_stride
        x_T = tl.load(place, mask=column < columns, other=float("-inf")).to(tl.float32) * scale
        # Equal ones differ by 0 also where both are infinite.
        above_T = tl.where(x_T == max_T, 0.0, x_T - max_T)
        exp_T = tl.exp(-tl.abs(above_T))
        sum_T = tl.where(above_T > 0, sum_T * exp_T + 1.0, sum_T + exp_T)
        max_T = tl.maximum(max_T, x_T)
    largest = tl.max(max_T, axis=0)
    total = tl.sum(scaled(sum_T, max_T, largest), axis=0)
    numbers = tl.load(buffers.to(tl.pointer_type(tl.int64)) + RANK).to(tl.pointer_type(tl.float32))
    tl.store(numbers + row, largest)
    tl.store(numbers + rows + row, total)
    if targets is not None:
        at = tl.load(targets + row) - columns * RANK
        is_own = (at >= 0) & (at < columns)
        logit = tl.load(x + row * row_stride + at * column_stride, mask=is_own, other=0.0).to(tl.float32) * scale
        tl.store(numbers + 2 * rows + row, logit)


@triton.jit
def merge_kernel(
    out: tl.tensor,
    totals: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    rows: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    BLOCK: tl.constexpr,
    LOSS: tl.constexpr,
    LOG_PROBABILITY: tl.constexpr,
) -> None:
    """Of each row the loss or log-probability of its target, or maximum and sum in ``out`` and ``totals``."""
    block = tl.program_id(0)
    meet(pads, block, RANK, RANKS, PEERS)
    for start in range(block * BLOCK, rows, tl.num_programs(0) * BLOCK):
        row_B = start + tl.arange(0, BLOCK)
        inside = row_B < rows
        max_B = tl.full((BLOCK,), float("-inf"), tl.float32)
        for peer in tl.static_range(RANKS):
            theirs = buffer_of(buffers, peer, out) + row_B
            max_B = tl.maximum(max_B, tl.load(theirs, mask=inside, other=0.0, cache_modifier=".cg"))
        sum_B = tl.zeros((BLOCK,), tl.float32)
        logit_B = tl.zeros((BLOCK,), tl.float32)
        for peer in tl.static_range(RANKS):
            theirs = buffer_of(buffers, peer, out) + row_B
            own_max_B = tl.load(theirs, mask=inside, other=0.0, cache_modifier=".cg")
            own_sum_B = tl.load(theirs + rows, mask=inside, other=0.0, cache_modifier=".cg")
            sum_B += scaled(own_sum_B, own_max_B, max_B)
            if LOSS or LOG_PROBABILITY:
                logit_B += tl.load(theirs + 2 * rows, mask=inside, other=0.0, cache_modifier=".cg")
        if LOSS:
            tl.store(out + row_B, (max_B - logit_B) + tl.log(sum_B), mask=inside)
        elif LOG_PROBABILITY:
            tl.store(out + row_B, (logit_B - max_B) - tl.log(sum_B), mask=inside)
        else:
            tl.store(out + row_B, max_B, mask=inside)
            tl.store(totals + row_B, sum_B, mask=inside)
    meet(pads, block, RANK, RANKS, PEERS)


@triton.jit
def normalise_kernel(
    out: tl.tensor,
    x: tl.tensor,
    maxima: tl.tensor,
    totals: tl.tensor,
    columns: tl.tensor,
    row_stride: tl.tensor,
    column_stride: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """``out = exp(x - max) / sum`` of a tile of one row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < columns
    place = x + row * row_stride + column.to(tl.int64) * column_stride
    x_T = tl.load(place, mask=inside, other=float("-inf")).to(tl.float32)
    y_T = tl.exp(x_T - tl.load(maxima + row)) / tl.load(totals + row)
    tl.store(out + row * columns + column, y_T.to(out.dtype.element_ty), mask=inside)


def cross_entropy(logits: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Problem 17: the loss of each row of ``logits[rows, columns of this rank]``, in float32, on every rank.

    Args:
        logits: parts of one width, in the order of ranks.
        targets: (rows), of all ranks' columns.
    """
    return _merged(logits, targets, loss=True)


def log_probabilities(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Problem 18: the log-probability of each token at a temperature of 0.7, in float32, on every rank."""
    rows = logits.reshape(-1, logits.shape[-1])
    return _merged(rows, tokens.reshape(-1), scale=1 / 0.7, log_probability=True).view(tokens.shape)


def divided_softmax(x: torch.Tensor) -> torch.Tensor:
    """Problem 44: this rank's columns of the softmax of rows that are divided among ranks, in parts of any width."""
    totals = torch.empty(len(x), dtype=torch.float32, device=x.device)
    maxima = _merged(x, None, totals=totals)
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    if out.numel():
        block = min(MOST_COLUMNS, triton.next_power_of_2(x.shape[1]))
        launch(
            normalise_kernel,
            (len(x), triton.cdiv(x.shape[1], block)),
            out,
            x,
            maxima,
            totals,
            x.shape[1],
            *x.stride(),
            BLOCK=block,
        )
    return out


def _merged(
    x: torch.Tensor,
    targets: torch.Tensor | None,
    *,
    scale: float = 1.0,
    totals: torch.Tensor | None = None,
    loss: bool = False,
    log_probability: bool = False,
) -> torch.Tensor:
    require_device(x)
    rows, columns = x.shape
    group = Group(rows * 4 * NUMBERS.value)
    out = torch.empty(rows, dtype=torch.float32, device=x.device)
    if rows:
        block = min(MOST_COLUMNS, max(16, triton.next_power_of_2(columns)))
        launch(
            row_numbers_kernel,
            (rows,),
            x,
            None if targets is None else targets.contiguous(),
            group.tables[0],
            rows,
            columns,
            *x.stride(),
            scale,
            RANK=group.rank,
            BLOCK=block,
            num_warps=4 if block < MOST_COLUMNS else 8,
        )
    blocks = max(1, min(32, triton.cdiv(rows, ROWS)))
    launch(
        merge_kernel,
        (blocks,),
        out,
        totals,
        *group.tables,
        rows,
        **group.meta,
        BLOCK=ROWS,
        LOSS=loss,
        LOG_PROBABILITY=log_probability,
    )
    return out
