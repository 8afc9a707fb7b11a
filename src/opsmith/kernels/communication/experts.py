"""Expert parallelism: tokens sent to the ranks of their experts, and their results brought back.

*Dispatch* pushes: a row goes straight to its place in the memory of its expert's rank, sorted by expert there, so that
nothing is put in order after it has arrived. Where that is follows from ``counts_RE[r, e]``, how many rows rank r has
for expert e. On the rank of e they lie behind the rows of experts before e, of all ranks, and behind those for e of
ranks before r::

    start[r, e] = sum over f < e on that rank, over q, of counts[q, f]  +  sum over q < r of counts[q, e]

*Combine* pulls: for each token it reads the rows of its choices where they lie in the memory of the ranks that computed
them, weights them and adds them up in float32; nothing is laid out in between.

Of a token's row of W elements ``choices * W`` cross links in either direction, less what stays on the rank.

Suffixes: ``_R`` ranks, ``_E`` experts of all ranks, ``_W`` elements of a row, ``_C`` choices.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from .exchange import gathered_counts, row_bytes
from .symmetric import (
    STEP_BYTES,
    WARPS,
    Group,
    as_moved,
    blocks_and_share,
    buffer_of,
    copy,
    launch,
    meet,
    require_device,
    step_of,
)

#: Elements of a row that a program moves.
MOST_COLUMNS = 4096
#: Choices that a program counts, by as many bins as there are experts.
COUNTED = 1024


@triton.jit
def count_choices_kernel(
    counts_E: tl.tensor, experts: tl.tensor, choices: tl.tensor, EXPERTS: tl.constexpr, BLOCK: tl.constexpr
) -> None:
    """``counts[e] +=`` how many of ``experts`` are e, of ``EXPERTS`` rounded up to a power of two.

    A program adds once for each expert that it meets.
    """
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < choices
    chosen = tl.load(experts + place, mask=inside, other=0).to(tl.int32)
    found_E = tl.histogram(chosen, EXPERTS, mask=inside).to(tl.int64)
    tl.atomic_add(counts_E + tl.arange(0, EXPERTS), found_E, mask=found_E > 0, sem="relaxed")


@triton.jit
def push_rows_kernel(
    x: tl.tensor,
    order: tl.tensor,
    experts: tl.tensor,
    first_E: tl.tensor,
    start_E: tl.tensor,
    buffers: tl.tensor,
    width: tl.tensor,
    choices: tl.tensor,
    of_a_rank: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Choice ``order[i]``, the i-th by expert, to its place in the memory of its expert's rank.

    ``experts[i]`` is its expert, ``first_E`` the first i of each expert, ``start_E`` where its rows go.
    """
    i = tl.program_id(0)
    expert = tl.load(experts + i)
    row = tl.load(start_E + expert) + i - tl.load(first_E + expert)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    values = tl.load(x + (tl.load(order + i) // choices) * width + column, mask=inside)
    tl.store(buffer_of(buffers, expert // of_a_rank, x) + row * width + column, values, mask=inside)


@triton.jit
def take_kernel(
    out: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    elements: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """Wait until all have pushed, then ``out[i]`` = element i of this rank's buffer."""
    block = tl.program_id(0)
    share = tl.cdiv(tl.cdiv(elements, tl.num_programs(0)), STEP) * STEP
    meet(pads, block, RANK, RANKS, PEERS)
    first = block * share
    copy(out, buffer_of(buffers, RANK, out), first, tl.minimum(first + share, elements), STEP)
    meet(pads, block, RANK, RANKS, PEERS)


@triton.jit
def combine_kernel(
    out: tl.tensor,
    places: tl.tensor,
    weights: tl.tensor,
    counts_RT: tl.tensor,
    buffers: tl.tensor,
    width: tl.tensor,
    choices: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    ALIGNED_BYTES: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """``out[token] = sum over choices of weight * row``, read where it lies.

    Row ``place`` of what this rank has received is row ``place - begin`` of what rank r sends to it, ``begin`` being
    the rows of ranks before r; in r's buffer those begin behind the rows that r sends to ranks before this one. Rows
    begin at multiples of ALIGNED_BYTES.
    """
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < width
    total_W = tl.zeros((BLOCK,), tl.float32)
    for choice in range(choices):
        place = tl.load(places + token * choices + choice)
        weight = tl.load(weights + token * choices + choice).to(tl.float32)
        address = buffer_of(buffers, 0, out)
        begin = tl.zeros((), tl.int64)
        for peer in tl.static_range(RANKS):
            source = tl.zeros((), tl.int64)
            for before in tl.static_range(RANK):
                source += tl.load(counts_RT + peer * RANKS + before)
            end = begin + tl.load(counts_RT + peer * RANKS + RANK)
            theirs = buffer_of(buffers, peer, out) + (source + place - begin) * width
            address = tl.where((place >= begin) & (place < end), theirs, address)
            begin = end
        address = tl.multiple_of(address, ALIGNED_BYTES)
        total_W += weight * tl.load(address + column, mask=inside, other=0.0, cache_modifier=".cg").to(tl.float32)
    tl.store(out + token * width + column, total_W.to(out.dtype.element_ty), mask=inside)


def dispatch(x: torch.Tensor, experts: torch.Tensor, of_a_rank: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Problem 29: the rows of this rank's experts, by expert and by the rank that they come from.

    Args:
        x: (tokens, W).
        experts: (tokens, choices), of all ranks' experts.
        of_a_rank: how many experts a rank has.

    Returns:
        The rows, and how many each expert got.
    """
    require_device(x)
    ranks = Group(0).ranks
    chosen = experts.flatten()
    order = chosen.argsort(stable=True)
    own_E = _counts(chosen, of_a_rank * ranks)
    counts_RE = gathered_counts(own_E)
    of_ranks = counts_RE.view(ranks, ranks, of_a_rank)
    totals = of_ranks.sum((0, 2)).tolist()
    group = Group(max(totals) * row_bytes(x))
    start_E = _starts(of_ranks)[:, :, group.rank].reshape(-1)
    first_E = own_E.cumsum(0) - own_E
    out = torch.empty((totals[group.rank], x.shape[1]), dtype=x.dtype, device=x.device)
    width = x.shape[1]
    if len(order):
        block = min(MOST_COLUMNS, triton.next_power_of_2(width))
        launch(
            push_rows_kernel,
            (len(order), triton.cdiv(width, block)),
            as_moved(x.contiguous()),
            order,
            chosen[order],
            first_E,
            start_E.contiguous(),
            group.tables[0],
            width,
            experts.shape[1],
            of_a_rank,
            BLOCK=block,
        )
    step = step_of(out)
    # Every rank has as many blocks, whatever it receives.
    blocks, _ = blocks_and_share(max(totals) * width, step, ranks)
    launch(take_kernel, (blocks,), as_moved(out), *group.tables, out.numel(), **group.meta, STEP=step, num_warps=WARPS)
    return out, of_ranks[:, group.rank].sum(0)


def _counts(chosen: torch.Tensor, experts: int) -> torch.Tensor:
    """How many choices each expert has: int64, without the wait for the largest that ``bincount`` begins with."""
    counts_E = torch.zeros(experts, dtype=torch.int64, device=chosen.device)
    if len(chosen):
        launch(
            count_choices_kernel,
            (triton.cdiv(len(chosen), COUNTED),),
            counts_E,
            chosen,
            len(chosen),
            EXPERTS=triton.next_power_of_2(experts),
            BLOCK=COUNTED,
        )
    return counts_E


def _starts(counts_RTE: torch.Tensor) -> torch.Tensor:
    """Where the rows of (rank t, its expert e, from rank r) begin: of shape (ranks, experts of one, ranks)."""
    by_place = counts_RTE.permute(1, 2, 0)
    flat = by_place.flatten(1)
    return (flat.cumsum(1) - flat).view(by_place.shape)


def combine(rows: torch.Tensor, counts: torch.Tensor, places: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Problem 30: for each token the weighted sum of the rows that come back for it, added in float32.

    Args:
        rows: (sum of counts, W), those for rank 0, for rank 1 and so on.
        counts: how many of them are for each rank.
        places: (tokens, choices): which of the rows that come to this rank, in the order of ranks.
        weights: (tokens, choices).
    """
    require_device(rows)
    counts_RT = gathered_counts(counts)
    group = Group(int(counts_RT.sum(1).max()) * row_bytes(rows))
    if rows.numel():
        group.own(rows.shape, rows.dtype).copy_(rows)
    group.meet()
    out = torch.empty((len(places), rows.shape[1]), dtype=rows.dtype, device=rows.device)
    block = min(STEP_BYTES // 16, triton.next_power_of_2(rows.shape[1]))
    if out.numel():
        launch(
            combine_kernel,
            (len(out), triton.cdiv(rows.shape[1], block)),
            out,
            places.contiguous(),
            weights.contiguous(),
            counts_RT,
            group.tables[0],
            rows.shape[1],
            places.shape[1],
            RANK=group.rank,
            RANKS=group.ranks,
            ALIGNED_BYTES=math.gcd(16, row_bytes(rows)),
            BLOCK=block,
        )
    group.meet()
    return out
