"""Rows from each rank to each other one, as many as counts say: all-to-all, and the all-gather of uneven parts.

``counts_RT[r, t]`` is how many rows rank r sends to rank t, in the order of t. Rank t finds those of r in r's buffer
behind what r sends to the ranks before t, and puts them behind those of the ranks before r::

    source_r = sum over u < t of counts[r, u]         target_r = sum over q < r of counts[q, t]

Each element crosses a link once. The whole matrix is gathered first, in a step of its own; the host waits for it,
because it has to know how large the result is.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from .gather_scatter import gather_into
from .symmetric import (
    WARPS,
    Group,
    as_moved,
    buffer_of,
    copy,
    launch,
    meet,
    most_blocks,
    require_device,
    step_of,
)


@triton.jit
def pull_rows_kernel(
    out: tl.tensor,
    counts_RT: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    width: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
    SAME: tl.constexpr,
) -> None:
    """The rows, of ``width`` elements, that each rank has for this one; its first ones where all get the SAME.

    The buffers were filled by kernels before this one.
    """
    block = tl.program_id(0)
    meet(pads, block, RANK, RANKS, PEERS)
    for distance in tl.static_range(RANKS):
        peer = (RANK + distance) % RANKS
        source = tl.zeros((), tl.int64)
        target = tl.zeros((), tl.int64)
        if not SAME:
            for before in tl.static_range(RANK):
                source += tl.load(counts_RT + peer * RANKS + before)
        for before in tl.static_range(RANKS):
            target += tl.load(counts_RT + before * RANKS + RANK, mask=before < peer, other=0)
        elements = tl.load(counts_RT + peer * RANKS + RANK) * width
        share = tl.cdiv(tl.cdiv(elements, tl.num_programs(0)), STEP) * STEP
        first = block * share
        theirs = buffer_of(buffers, peer, out) + source * width
        copy(out + target * width, theirs, first, tl.minimum(first + share, elements), STEP)
    meet(pads, block, RANK, RANKS, PEERS)


def exchanged(rows: torch.Tensor, counts: torch.Tensor, group_name: str | None = None) -> torch.Tensor:
    """The rows that all ranks have for this one, in the order of ranks.

    Args:
        rows: those for rank 0, for rank 1 and so on.
        counts: how many of them are for each rank, int64.
        group_name: torch's name of the group.
    """
    require_device(rows)
    counts_RT = gathered_counts(counts, group_name)
    table = counts_RT.tolist()
    group = Group(max(map(sum, table)) * row_bytes(rows), group_name)
    return _pulled(rows, counts_RT, sum(row[group.rank] for row in table), group, same=False)


def gathered_rows(rows: torch.Tensor, group_name: str | None = None) -> torch.Tensor:
    """All ranks' rows on each of them, in the order of ranks; each may have another number of them."""
    require_device(rows)
    group = Group(0, group_name)
    own = torch.full((group.ranks,), len(rows), dtype=torch.int64, device=rows.device)
    counts_RT = gathered_counts(own, group_name)
    lengths = counts_RT[:, 0].tolist()
    return _pulled(rows, counts_RT, sum(lengths), Group(max(lengths) * row_bytes(rows), group_name), same=True)


def gathered_counts(counts: torch.Tensor, group_name: str | None = None) -> torch.Tensor:
    """All ranks' counts, a row for each rank."""
    group = Group(counts.numel() * counts.element_size(), group_name)
    counts_RT = torch.empty((group.ranks, counts.numel()), dtype=counts.dtype, device=counts.device)
    gather_into(counts_RT.view(-1), counts.contiguous(), group)
    return counts_RT


def row_bytes(rows: torch.Tensor) -> int:
    """Bytes of one row, also where there is none."""
    return int(rows[:0].new_empty((1, *rows.shape[1:])).numel()) * rows.element_size()


def _pulled(rows: torch.Tensor, counts_RT: torch.Tensor, length: int, group: Group, *, same: bool) -> torch.Tensor:
    out = torch.empty((length, *rows.shape[1:]), dtype=rows.dtype, device=rows.device)
    source, target = as_moved(rows.contiguous()), as_moved(out)
    if source.numel():
        group.own(source.shape, source.dtype).copy_(source)
    step = step_of(source)
    # Every rank has as many blocks, whatever it receives.
    blocks = most_blocks(group.ranks)
    launch(
        pull_rows_kernel,
        (blocks,),
        target,
        counts_RT,
        *group.tables,
        row_bytes(rows) // source.element_size(),
        **group.meta,
        STEP=step,
        SAME=same,
        num_warps=WARPS,
    )
    return out


# ---------------------------------------------------------------- collectives and parallel problems


def all_to_all_single(
    input: torch.Tensor,  # noqa: A002
    output_split_sizes: Sequence[int],  # noqa: ARG001 - the other ranks' numbers are known when they are gathered
    input_split_sizes: Sequence[int],
    group_name: str | None = None,
) -> torch.Tensor:
    """The rows that all ranks have for this one: as many of each rank as ``output_split_sizes`` says."""
    require_device(input)
    return exchanged(input, torch.tensor(input_split_sizes, dtype=torch.int64, device=input.device), group_name)


def exchange_rows(rows: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Problem 4: the rows that all ranks have for this one, and how many each rank had."""
    require_device(rows)
    counts_RT = gathered_counts(counts)
    table = counts_RT.tolist()
    group = Group(max(map(sum, table)) * row_bytes(rows))
    received = counts_RT[:, group.rank].contiguous()
    return _pulled(rows, counts_RT, sum(row[group.rank] for row in table), group, same=False), received
