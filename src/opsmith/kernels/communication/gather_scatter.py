"""All-gather, reduce-scatter and broadcast out of symmetric memory, in one step each.

With n ranks and S bytes of what all have together::

    all-gather      out[r] = x of rank r            reads S (n - 1) / n over a rank's links
    reduce-scatter  out = sum over r of x_r[rank]   reads S (n - 1) / n, S being the size of an input
    broadcast       out = x of the source           reads S, and the source is read n - 1 times

As in all_reduce.py, a block copies its share into this rank's buffer, meets the same block of all ranks, reads what it
needs of theirs, and meets them again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .all_reduce import REDUCTIONS
from .symmetric import (
    WARPS,
    Group,
    as_moved,
    blocks_and_share,
    buffer_of,
    copy,
    launch,
    meet,
    reduce,
    require_device,
    step_of,
    wide_type,
)


@triton.jit
def all_gather_kernel(
    out: tl.tensor,
    x: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    elements: tl.tensor,
    share: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """``out[r * elements + i] = x[i] of rank r``; of its own rank out of x."""
    block = tl.program_id(0)
    first = block * share
    last = tl.minimum(first + share, elements)
    copy(buffer_of(buffers, RANK, out), x, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)
    for distance in tl.static_range(1, RANKS):
        peer = (RANK + distance) % RANKS
        copy(out + tl.cast(elements, tl.int64) * peer, buffer_of(buffers, peer, out), first, last, STEP)
    copy(out + tl.cast(elements, tl.int64) * RANK, x, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)


@triton.jit
def reduce_scatter_kernel(
    out: tl.tensor,
    x: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    elements: tl.tensor,
    share: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """``out[i] = reduction over ranks of element RANK * elements + i of their x``."""
    block = tl.program_id(0)
    first = block * share
    last = tl.minimum(first + share, elements)
    own = buffer_of(buffers, RANK, out)
    for part in tl.static_range(RANKS):
        at = tl.cast(elements, tl.int64) * part
        copy(own + at, x + at, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)
    reduce(out, buffers, tl.cast(elements, tl.int64) * RANK, first, last, RANKS, STEP, REDUCTION, WIDE)
    meet(pads, block, RANK, RANKS, PEERS)


@triton.jit
def broadcast_kernel(
    out: tl.tensor,
    x: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    elements: tl.tensor,
    share: tl.tensor,
    source: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
) -> None:
    """``out[i] = x[i] of rank source``."""
    block = tl.program_id(0)
    first = block * share
    last = tl.minimum(first + share, elements)
    if source == RANK:
        copy(buffer_of(buffers, RANK, out), x, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)
    copy(out, buffer_of(buffers, source, out), first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)


def all_gather(
    input: torch.Tensor,  # noqa: A002
    group_size: int,
    group_name: str | None = None,
) -> torch.Tensor:
    """All ranks' inputs, which have one shape, one after another along the first dimension."""
    require_device(input)
    out = torch.empty((group_size * len(input), *input.shape[1:]), dtype=input.dtype, device=input.device)
    gather_into(as_moved(out), as_moved(input.contiguous()), Group(input.numel() * input.element_size(), group_name))
    return out


def gather_into(out: torch.Tensor, x: torch.Tensor, group: Group) -> None:
    """All ranks' ``x`` in ``out``; both are flat and contiguous."""
    step = step_of(x)
    blocks, share = blocks_and_share(x.numel(), step, group.ranks)
    launch(
        all_gather_kernel, (blocks,), out, x, *group.tables, x.numel(), share, **group.meta, STEP=step, num_warps=WARPS
    )


def reduce_scatter(
    input: torch.Tensor,  # noqa: A002
    reduce_op: str,
    group_size: int,
    group_name: str | None = None,
) -> torch.Tensor:
    """This rank's part of the first dimension of the reduction of all ranks' inputs.

    Raises:
        NotImplementedError: another reduction, or complex elements.
    """
    require_device(input)
    if reduce_op not in REDUCTIONS:
        raise NotImplementedError(f"the reduction {reduce_op} is not served")
    out = torch.empty((len(input) // group_size, *input.shape[1:]), dtype=input.dtype, device=input.device)
    as_stored = torch.uint8 if input.dtype is torch.bool else input.dtype
    target, source = out.view(as_stored).view(-1), input.contiguous().view(as_stored).view(-1)
    group, step = Group(source.numel() * source.element_size(), group_name), step_of(source)
    blocks, share = blocks_and_share(target.numel(), step, group.ranks)
    launch(
        reduce_scatter_kernel,
        (blocks,),
        target,
        source,
        *group.tables,
        target.numel(),
        share,
        **group.meta,
        STEP=step,
        REDUCTION=reduce_op,
        WIDE=wide_type(source.dtype),
        num_warps=WARPS,
    )
    return out


def broadcast(input: torch.Tensor, src: int, group_name: str | None = None) -> torch.Tensor:  # noqa: A002
    """The input of rank ``src``, on every rank."""
    require_device(input)
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    target, source = as_moved(out), as_moved(input.contiguous())
    group, step = Group(source.numel() * source.element_size(), group_name), step_of(source)
    blocks, share = blocks_and_share(source.numel(), step, group.ranks)
    launch(
        broadcast_kernel,
        (blocks,),
        target,
        source,
        *group.tables,
        source.numel(),
        share,
        src,
        **group.meta,
        STEP=step,
        num_warps=WARPS,
    )
    return out


# ---------------------------------------------------------------- parallel problems


def reduce_scatter_rows(x: torch.Tensor) -> torch.Tensor:
    """Problem 2: a rank's part of the rows of the sum."""
    group = Group(x.numel() * x.element_size())
    return reduce_scatter(x, "sum", group.ranks)
