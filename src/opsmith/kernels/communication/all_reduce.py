"""All-reduce in one shot or in two: ``out[i] = sum over ranks of x[i]``, the same bits on every rank.

In one shot every rank reads all ranks' inputs and reduces them itself::

    rank 0:  x -> buffer 0 --+--------> out = buffer 0 + buffer 1 + ..
    rank 1:  x -> buffer 1 --+--------> out = buffer 0 + buffer 1 + ..

It reads ``n - 1`` times its input over the links in one step, where a ring moves ``2 * (n - 1) / n`` times the input in
``2 * (n - 1)`` steps: one shot is for inputs so small that steps cost more than bytes. In two shots every rank reduces
one part of n, and then reads the other parts, reduced: as many bytes as in a ring, in two steps. Of two ranks both read
the same.

A block works on its own share: it copies it into this rank's buffer, meets the same block of all ranks, reduces, and
meets them again.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .symmetric import (
    MOST_WORKSPACE_BYTES,
    WARPS,
    Group,
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

#: What a second shot has to save in bytes read over a rank's links: what they carry while blocks meet once more.
SAVED_BYTES = 1 << 20
REDUCTIONS = ("sum", "avg", "max", "min", "product")


@triton.jit
def all_reduce_kernel(
    out: tl.tensor,
    x: tl.tensor,
    buffers: tl.tensor,
    pads: tl.tensor,
    elements: tl.tensor,
    part: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
    PARTS: tl.constexpr,
    STEP: tl.constexpr,
    COPIES: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """``out[i] = reduction over ranks of x[i]``, for the PARTS parts of this block, of ``part`` elements each.

    One part is one shot; with one for each rank there are two. Unless it COPIES, this rank's buffer holds x already.
    """
    block = tl.program_id(0)
    first = block * part * PARTS
    last = tl.minimum(first + part * PARTS, elements)
    own = buffer_of(buffers, RANK, out)
    if COPIES:
        copy(own, x, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)
    if PARTS == 1:
        reduce(out, buffers, 0, first, last, RANKS, STEP, REDUCTION, WIDE)
    else:
        # Of its own part nobody else reads what this rank's buffer holds until they meet again.
        begin = first + RANK * part
        reduce(own, buffers, 0, begin, tl.minimum(begin + part, last), RANKS, STEP, REDUCTION, WIDE)
        meet(pads, block, RANK, RANKS, PEERS)
        for distance in tl.static_range(RANKS):
            # A rank begins with its own part and goes on with its right neighbour's: no rank is read by all at once.
            begin = first + ((RANK + distance) % RANKS) * part
            copy(out, buffer_of(buffers, (RANK + distance) % RANKS, out), begin, tl.minimum(begin + part, last), STEP)
    meet(pads, block, RANK, RANKS, PEERS)


def all_reduce(
    input: torch.Tensor,  # noqa: A002
    reduce_op: str = "sum",
    group_name: str | None = None,
) -> torch.Tensor:
    """The reduction of all ranks' inputs, which have one shape, on every rank; a new contiguous tensor.

    Raises:
        NotImplementedError: another reduction, or complex elements.
    """
    require_device(input)
    if reduce_op not in REDUCTIONS:
        raise NotImplementedError(f"the reduction {reduce_op} is not served")
    result = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    # A bool is a byte that is 0 or 1, and Triton's tensors of bools are not made of bytes.
    as_stored = torch.uint8 if input.dtype is torch.bool else input.dtype
    source, target = input.contiguous().view(as_stored).view(-1), result.view(as_stored).view(-1)
    most = MOST_WORKSPACE_BYTES // source.element_size()
    for start in range(0, source.numel(), most):
        piece = source[start : start + most]
        group = Group(piece.numel() * piece.element_size(), group_name)
        reduce_buffers(target[start : start + most], piece, group, reduce_op)
    return result


def reduce_buffers(out: torch.Tensor, x: torch.Tensor | None, group: Group, reduce_op: str = "sum") -> None:
    """Reduce the ranks' ``x``, or, where that is None, what lies at the start of their buffers; all are flat."""
    elements, ranks = out.numel(), group.ranks
    saved_bytes = elements * out.element_size() * (ranks - 1) * (ranks - 2) // ranks
    parts = ranks if saved_bytes > SAVED_BYTES else 1
    step = step_of(out)
    blocks, part = blocks_and_share(triton.cdiv(elements, parts), step, ranks)
    launch(
        all_reduce_kernel,
        (blocks,),
        out,
        out if x is None else x,
        *group.tables,
        elements,
        part,
        **group.meta,
        PARTS=parts,
        STEP=step,
        COPIES=x is not None,
        REDUCTION=reduce_op,
        WIDE=wide_type(out.dtype),
        num_warps=WARPS,
    )
