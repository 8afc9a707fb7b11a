"""``all_reduce`` out of symmetric memory, in one shot or in two; multicast is not used.

In one shot every rank reads all ranks' inputs and reduces them itself. It reads ``n - 1`` times its input over the
links in one step, where a ring moves ``2 * (n - 1) / n`` times the input in ``2 * (n - 1)`` steps: one shot is for
inputs so small that steps cost more than bytes. In two shots every rank reduces one part of n, and then reads the
other parts, reduced: as many bytes as in a ring, in two steps. Of two ranks both read the same.

Every block works on its own share of the input. It copies the share into this rank's symmetric buffer, meets the same
block of all ranks, reduces, and meets them again, so that nobody's next kernel writes over what is still read. Half
types are added in float32, in the order of the ranks, whoever adds them: all ranks get the same bits.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch.distributed._symmetric_memory import get_symm_mem_workspace

#: What an input larger than this is divided into, bytes; the workspace of a group grows up to it.
MOST_BYTES = 256 << 20
#: All blocks of all ranks wait for each other, so they have to run at the same time; a signal pad of 2 KiB has room for
#: 64 blocks of 8 ranks.
MOST_BLOCKS = 64
#: A block's step: 512 threads with 16 bytes each, twice.
STEP_BYTES = 16_384
WARPS = 16
#: What a second shot has to save in bytes read over a rank's links: what they carry while blocks meet once more.
SAVED_BYTES = 1 << 20

REDUCTIONS = {"sum", "avg", "max", "min", "product"}
#: What is reduced in a wider type.
NARROW = (torch.float16, torch.bfloat16)


@triton.jit
def meet(pads, slot, RANK: tl.constexpr, RANKS: tl.constexpr, PEERS: tl.constexpr):
    """Wait until this block has come here on every rank; what was written before it is seen by all after it.

    Slot ``slot * RANKS + r`` of a rank's pad counts the signals of rank r that the pad's owner has not taken away.
    There may be two for a moment: of this meeting, and of the next one. In the end all pads are zero again. All peers
    are signalled at once, since a signal takes microseconds to arrive; PEERS is a power of two that is not below RANKS.
    """
    tl.debug_barrier()
    peers = tl.arange(0, PEERS)
    others = (peers < RANKS) & (peers != RANK)
    theirs = tl.load(pads + peers, mask=others, other=0).to(tl.pointer_type(tl.int32))
    tl.atomic_add(theirs + slot * RANKS + RANK, 1, mask=others, sem="release", scope="sys")
    own = tl.load(pads + RANK).to(tl.pointer_type(tl.int32)) + slot * RANKS
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            while tl.load(own + peer, volatile=True) == 0:
                pass
    # Each warp looks for itself: none may take a signal away that another one has not seen yet.
    tl.debug_barrier()
    tl.atomic_add(own + peers, -1, mask=others, sem="acquire", scope="sys")
    tl.debug_barrier()


@triton.jit
def elements_of(buffers, rank, like):
    """A rank's symmetric buffer as a pointer to elements of ``like``'s type; buffers start at multiples of 16 bytes."""
    address = tl.load(buffers + rank)
    return tl.multiple_of(address.to(like.dtype), 16)


@triton.jit
def copy(target, source, first, last, STEP: tl.constexpr):
    """target[i] = source[i] for i from ``first`` to ``last``."""
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        # Past the first-level cache, which knows nothing of what other devices write.
        tl.store(target + offsets, tl.load(source + offsets, mask=inside, cache_modifier=".cg"), mask=inside)


@triton.jit
def reduce(
    target,
    buffers,
    like,
    first,
    last,
    RANKS: tl.constexpr,
    STEP: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
):
    """target[i] = reduction over ranks of element i of their buffers, for i from ``first`` to ``last``."""
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        total = tl.load(elements_of(buffers, 0, like) + offsets, mask=inside, cache_modifier=".cg").to(WIDE)
        for peer in tl.static_range(1, RANKS):
            theirs = tl.load(elements_of(buffers, peer, like) + offsets, mask=inside, cache_modifier=".cg").to(WIDE)
            if REDUCTION == "max":
                total = tl.maximum(total, theirs, propagate_nan=tl.PropagateNan.ALL)
            elif REDUCTION == "min":
                total = tl.minimum(total, theirs, propagate_nan=tl.PropagateNan.ALL)
            elif REDUCTION == "product":
                total = total * theirs
            else:
                total = total + theirs
        if REDUCTION == "avg":
            total = total / RANKS
        tl.store(target + offsets, total.to(like.dtype.element_ty), mask=inside)


@triton.jit
def all_reduce_kernel(
    out,
    x,
    buffers_address,
    pads_address,
    elements,
    part,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PARTS: tl.constexpr,
    PEERS: tl.constexpr,
    STEP: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
):
    """out[i] = reduction over ranks of x[i], for the PARTS parts of this block, of ``part`` elements each.

    With one part in one shot; with one for each rank in two.
    """
    buffers = buffers_address.to(tl.pointer_type(tl.int64))
    pads = pads_address.to(tl.pointer_type(tl.int64))
    block = tl.program_id(0)
    first = block * part * PARTS
    last = tl.minimum(first + part * PARTS, elements)
    own = elements_of(buffers, RANK, x)
    copy(own, x, first, last, STEP)
    meet(pads, block, RANK, RANKS, PEERS)
    if PARTS == 1:
        reduce(out, buffers, x, first, last, RANKS, STEP, REDUCTION, WIDE)
    else:
        # Of its own part nobody else reads what this rank's buffer holds until they meet again.
        begin = first + RANK * part
        reduce(own, buffers, x, begin, tl.minimum(begin + part, last), RANKS, STEP, REDUCTION, WIDE)
        meet(pads, block, RANK, RANKS, PEERS)
        for distance in tl.static_range(RANKS):
            # A rank begins with its own part and goes on with its right neighbour's: no rank is read by all at once.
            peer = (RANK + distance) % RANKS
            begin = first + peer * part
            copy(out, elements_of(buffers, peer, x), begin, tl.minimum(begin + part, last), STEP)
    meet(pads, block, RANK, RANKS, PEERS)


def all_reduce__default_kernel_impl(input: torch.Tensor, reduce_op: str, group_name: str) -> torch.Tensor:  # noqa: A002
    """The reduction of all ranks' inputs, on every rank; a new contiguous tensor."""
    if input.device.type != "cuda" or reduce_op not in REDUCTIONS or input.is_complex():
        raise NotImplementedError(f"{reduce_op} of {input.dtype} on {input.device.type}")
    result = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    # A bool is a byte that is 0 or 1, and Triton's tensors of bools are not made of bytes.
    as_stored = torch.uint8 if input.dtype is torch.bool else input.dtype
    source, target = input.contiguous().view(as_stored).view(-1), result.view(as_stored).view(-1)
    most = MOST_BYTES // source.element_size()
    for start in range(0, source.numel(), most):
        _reduce(target[start : start + most], source[start : start + most], reduce_op, group_name)
    return result


def _reduce(out: torch.Tensor, x: torch.Tensor, reduce_op: str, group_name: str) -> None:
    size_bytes = x.numel() * x.element_size()
    memory = get_symm_mem_workspace(group_name, size_bytes)
    ranks = memory.world_size
    saved_bytes = size_bytes * (ranks - 1) * (ranks - 2) // ranks
    parts = ranks if saved_bytes > SAVED_BYTES else 1
    step = STEP_BYTES // x.element_size()
    blocks = min(MOST_BLOCKS, triton.cdiv(x.numel(), step * parts))
    part = triton.cdiv(triton.cdiv(x.numel(), blocks * parts), step) * step
    wide = tl.float32 if x.dtype in NARROW else getattr(tl, str(x.dtype).removeprefix("torch."))
    all_reduce_kernel[(triton.cdiv(x.numel(), part * parts),)](
        out,
        x,
        memory.buffer_ptrs_dev,
        memory.signal_pad_ptrs_dev,
        x.numel(),
        part,
        RANK=memory.rank,
        RANKS=ranks,
        PARTS=parts,
        PEERS=triton.next_power_of_2(ranks),
        STEP=step,
        REDUCTION=reduce_op,
        WIDE=wide,
        num_warps=WARPS,
    )
