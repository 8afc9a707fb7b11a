"""``all_reduce`` in one shot: every rank reads all ranks' inputs out of symmetric memory and reduces them itself.

A rank reads ``n - 1`` times its input over the links in one step, where a ring moves ``2 * (n - 1) / n`` times the
input in ``2 * (n - 1)`` steps: one shot is for inputs so small that steps cost more than bytes. Multicast is not
used.

Every block works on its own share of the input. It copies the share into this rank's symmetric buffer, waits for the
same block of all ranks, reduces their shares, and waits again, so that nobody's next kernel writes over what is still
read. Half types are added in float32, in the order of the ranks: all ranks get the same bits.
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

REDUCTIONS = {"sum", "avg", "max", "min", "product"}
#: What is reduced in a wider type.
NARROW = (torch.float16, torch.bfloat16)


@triton.jit
def meet(pads, slot, RANK: tl.constexpr, RANKS: tl.constexpr):
    """Wait until this block has come here on every rank; what was written before it is seen by all after it.

    Slot ``slot * RANKS + r`` of a rank's pad belongs to rank r: it puts a 1 there, which the pad's owner takes away.
    So all pads are zero again in the end.
    """
    tl.debug_barrier()
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            theirs = tl.load(pads + peer).to(tl.pointer_type(tl.int32))
            while tl.atomic_cas(theirs + slot * RANKS + RANK, 0, 1, sem="release", scope="sys") != 0:
                pass
    own = tl.load(pads + RANK).to(tl.pointer_type(tl.int32))
    for peer in tl.static_range(RANKS):
        if peer != RANK:
            while tl.atomic_cas(own + slot * RANKS + peer, 1, 0, sem="acquire", scope="sys") != 1:
                pass
    tl.debug_barrier()


@triton.jit
def shares_of(buffers, rank, like):
    """A rank's symmetric buffer as a pointer to elements of ``like``'s type; buffers start at multiples of 16 bytes."""
    address = tl.load(buffers + rank)
    return tl.multiple_of(address.to(like.dtype), 16)


@triton.jit
def one_shot_kernel(
    out,
    x,
    buffers_address,
    pads_address,
    elements,
    share,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    STEP: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
):
    """out[i] = reduction over ranks of x[i], for the ``share`` elements of this block."""
    buffers = buffers_address.to(tl.pointer_type(tl.int64))
    pads = pads_address.to(tl.pointer_type(tl.int64))
    block = tl.program_id(0)
    first = block * share
    last = tl.minimum(first + share, elements)
    own = shares_of(buffers, RANK, x)
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        tl.store(own + offsets, tl.load(x + offsets, mask=inside), mask=inside)
    meet(pads, block, RANK, RANKS)
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        # Past the first-level cache, which knows nothing of what other devices write.
        total = tl.load(shares_of(buffers, 0, x) + offsets, mask=inside, cache_modifier=".cg").to(WIDE)
        for peer in tl.static_range(1, RANKS):
            theirs = tl.load(shares_of(buffers, peer, x) + offsets, mask=inside, cache_modifier=".cg").to(WIDE)
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
        tl.store(out + offsets, total.to(out.dtype.element_ty), mask=inside)
    meet(pads, block, RANK, RANKS)


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
    memory = get_symm_mem_workspace(group_name, x.numel() * x.element_size())
    step = STEP_BYTES // x.element_size()
    blocks = min(MOST_BLOCKS, triton.cdiv(x.numel(), step))
    share = triton.cdiv(triton.cdiv(x.numel(), blocks), step) * step
    wide = tl.float32 if x.dtype in NARROW else getattr(tl, str(x.dtype).removeprefix("torch."))
    one_shot_kernel[(triton.cdiv(x.numel(), share),)](
        out,
        x,
        memory.buffer_ptrs_dev,
        memory.signal_pad_ptrs_dev,
        x.numel(),
        share,
        RANK=memory.rank,
        RANKS=memory.world_size,
        STEP=step,
        REDUCTION=reduce_op,
        WIDE=wide,
        num_warps=WARPS,
    )
