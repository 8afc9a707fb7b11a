"""All-reduce, residual and RMS norm of hidden states in one kernel.

::

    hidden = (sum over ranks of x) + residual,     y = hidden / sqrt(mean(hidden^2) + eps) * weight

A block has rows of its own. It copies them into this rank's buffer, meets the same block of all ranks, and then adds
up, normalises and writes each of its rows: the sum is read once over the links, ``n - 1`` times the input, and never
goes to memory in between. hidden is rounded as it is where sum and residual follow one another, and read a second time
out of the cache.

Suffixes: ``_W`` elements of a row.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .products import product_into_buffer
from .symmetric import Group, buffer_of, launch, meet, most_blocks, require_device

#: Elements of a row at a time.
MOST_COLUMNS = 8192


@triton.jit
def all_reduce_norm_kernel(
    y: tl.tensor,
    hidden: tl.tensor,
    x: tl.tensor,
    residual: tl.tensor,
    weight: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    rows: tl.tensor,
    columns: tl.tensor,
    eps: tl.tensor,
    x_strides: tl.tuple,
    residual_strides: tl.tuple,
    weight_stride: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    COPIES: tl.constexpr,
    ROUNDS: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """Rows ``program, program + programs ..``. Unless it COPIES, this rank's buffer holds x already.

    ROUNDS: the normalised row is rounded before the weight multiplies it.
    """
    block = tl.program_id(0)
    element: tl.constexpr = y.dtype.element_ty
    if COPIES:
        own = buffer_of(buffers, RANK, y)
        for row in range(block, rows, tl.num_programs(0)):
            for start in range(0, columns, BLOCK):
                column = start + tl.arange(0, BLOCK)
                place = tl.cast(row, tl.int64) * x_strides[0] + column.to(tl.int64) * x_strides[1]
                x_W = tl.load(x + place, mask=column < columns)
                tl.store(own + tl.cast(row, tl.int64) * columns + column, x_W, mask=column < columns)
    meet(pads, block, RANK, RANKS, PEERS)
    for row in range(block, rows, tl.num_programs(0)):
        at = tl.cast(row, tl.int64) * columns
        squares_W = tl.zeros((BLOCK,), tl.float32)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            total_W = tl.zeros((BLOCK,), tl.float32)
            for peer in tl.static_range(RANKS):
                theirs = buffer_of(buffers, peer, y) + at + column
                total_W += tl.load(theirs, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
            place = tl.cast(row, tl.int64) * residual_strides[0] + column.to(tl.int64) * residual_strides[1]
            residual_W = tl.load(residual + place, mask=inside, other=0.0).to(tl.float32)
            hidden_W = (total_W.to(element).to(tl.float32) + residual_W).to(element)
            tl.store(hidden + at + column, hidden_W, mask=inside)
            squares_W += hidden_W.to(tl.float32) * hidden_W.to(tl.float32)
        tl.debug_barrier()  # What the second pass reads, other threads may have written.
        rstd = 1.0 / tl.sqrt(tl.sum(squares_W, axis=0) / columns + eps)
        for start in range(0, columns, BLOCK):
            column = start + tl.arange(0, BLOCK)
            inside = column < columns
            weight_W = tl.load(weight + column.to(tl.int64) * weight_stride, mask=inside, other=0.0).to(tl.float32)
            normed_W = tl.load(hidden + at + column, mask=inside, other=0.0).to(tl.float32) * rstd
            if ROUNDS:
                normed_W = normed_W.to(element).to(tl.float32)
            tl.store(y + at + column, (normed_W * weight_W).to(element), mask=inside)
    meet(pads, block, RANK, RANKS, PEERS)


def all_reduce_norm(
    x: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6
) -> tuple[torch.Tensor, torch.Tensor]:
    """Problem 16: the normalised hidden states, and these; of ``x[rows, W]``, whose sum over ranks is normalised."""
    require_device(x, residual, weight)
    group = Group(x.numel() * x.element_size())
    return _normalised(x, residual, weight, eps, group, copies=True, rounds=False)


def product_all_reduce_norm(
    x: torch.Tensor, factor: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor, eps: float = 1e-5
) -> tuple[torch.Tensor, torch.Tensor]:
    """Problem 12: as :func:`all_reduce_norm`, of the sum over ranks of ``x[rows, K] @ factor[K, W]``."""
    require_device(x, factor, residual, weight)
    group = Group(residual.numel() * x.element_size())
    product_into_buffer(x, factor, group)
    return _normalised(None, residual, weight, eps, group, copies=False, rounds=True)


def _normalised(
    x: torch.Tensor | None,
    residual: torch.Tensor,
    weight: torch.Tensor,
    eps: float,
    group: Group,
    *,
    copies: bool,
    rounds: bool,
) -> tuple[torch.Tensor, torch.Tensor]:
    rows, columns = residual.shape
    y = torch.empty((rows, columns), dtype=residual.dtype, device=residual.device)
    hidden = torch.empty_like(y)
    given = residual if x is None else x
    block = min(MOST_COLUMNS, triton.next_power_of_2(columns))
    blocks = max(1, min(most_blocks(group.ranks), rows))
    launch(
        all_reduce_norm_kernel,
        (blocks,),
        y,
        hidden,
        given,
        residual,
        weight,
        *group.tables,
        rows,
        columns,
        eps,
        given.stride(),
        residual.stride(),
        weight.stride(0),
        **group.meta,
        COPIES=copies,
        ROUNDS=rounds,
        BLOCK=block,
        num_warps=max(4, min(16, block // 512)),
    )
    return y, hidden
