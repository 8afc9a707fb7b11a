"""Symmetric memory: what ranks of a group can read and write of each other, and how they wait for each other.

Each rank has a buffer and a signal pad, and a table of the addresses of everybody's. Over NVLink a load from a peer's
buffer takes some microseconds and a store is on its way at once; both pass by the first-level cache, which knows
nothing of what other devices write.

Kernels keep one rule: *when a call begins, no rank reads or writes anybody's buffer any more*. So a call may write
wherever it wants at once, and ends with a meeting, after which its own data may be written over. Meetings are of
blocks: block b of a rank waits for block b of every other rank. So a block reads what its own counterparts have
written, or what earlier kernels of their streams have.

Multicast (NVLink SHARP) is not used.
"""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._symmetric_memory as symm_mem
import triton
import triton.language as tl

from ..common.launch import ELEMENT_TYPE, INTERPRETED

#: The workspace that torch keeps for a group is used up to here, bytes; more is allocated apart.
MOST_WORKSPACE_BYTES = 256 << 20
#: The least that is asked for, bytes: a workspace that grows has to be made anew, by all ranks together.
LEAST_BYTES = 16 << 20
#: Numbers of 32 bits in a signal pad of torch's.
PAD_SIGNALS = 512
#: All blocks of all ranks wait for each other, so they have to run at the same time.
MOST_BLOCKS = 64
#: A block's step: 512 threads with 16 bytes each, twice.
STEP_BYTES = 16_384
WARPS = 16

#: Of a group the workspace that torch keeps for it, and what its ranks got when they met there.
_workspaces: dict[str, tuple[torch.Tensor | None, Any]] = {}
#: Memory beside the workspace, by group and bytes. Ranks ask for the same in the same order.
_apart: dict[tuple[str, int], Any] = {}


@triton.jit
def meet(
    pads_address: tl.tensor,
    slot: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
) -> None:
    """Wait until this block has come here on every rank; what was written before it is seen by all after it.

    Signal ``slot * RANKS + r`` of a rank's pad counts the signals of rank r that the pad's owner has not taken away.
    There may be two for a moment: of this meeting, and of the next one. In the end all pads are zero again. All peers
    are signalled at once, since a signal takes microseconds to arrive; PEERS is a power of two that is not below RANKS.
    """
    pads = pads_address.to(tl.pointer_type(tl.int64))
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
def meeting_kernel(
    pads_address: tl.tensor,
    RANK: tl.constexpr,
    RANKS: tl.constexpr,
    PEERS: tl.constexpr,
) -> None:
    """All ranks wait for each other, between kernels that have no block for it."""
    meet(pads_address, 0, RANK, RANKS, PEERS)


@triton.jit
def buffer_of(
    buffers_address: tl.tensor,
    rank: tl.tensor,
    like: tl.tensor,
) -> tl.tensor:
    """A rank's buffer as a pointer to elements of ``like``'s type; buffers start at multiples of 16 bytes."""
    address = tl.load(buffers_address.to(tl.pointer_type(tl.int64)) + rank)
    return tl.multiple_of(address.to(like.dtype), 16)


@triton.jit
def copy(
    target: tl.tensor,
    source: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    STEP: tl.constexpr,
) -> None:
    """target[i] = source[i] for i from ``first`` to ``last``."""
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        tl.store(target + offsets, tl.load(source + offsets, mask=inside, cache_modifier=".cg"), mask=inside)


@triton.jit
def reduce(
    target: tl.tensor,
    buffers_address: tl.tensor,
    at: tl.tensor,
    first: tl.tensor,
    last: tl.tensor,
    RANKS: tl.constexpr,
    STEP: tl.constexpr,
    REDUCTION: tl.constexpr,
    WIDE: tl.constexpr,
) -> None:
    """target[i] = reduction over ranks of element ``at + i`` of their buffers, for i from ``first`` to ``last``.

    In the order of ranks, whoever reduces: all get the same bits. Half types are added in float32, WIDE.
    """
    for start in range(first, last, STEP):
        offsets = start + tl.arange(0, STEP)
        inside = offsets < last
        part = buffer_of(buffers_address, 0, target) + at + offsets
        total = tl.load(part, mask=inside, cache_modifier=".cg").to(WIDE)
        for peer in tl.static_range(1, RANKS):
            part = buffer_of(buffers_address, peer, target) + at + offsets
            total = reduced(total, tl.load(part, mask=inside, cache_modifier=".cg").to(WIDE), REDUCTION)
        if REDUCTION == "avg":
            total = total / RANKS
        tl.store(target + offsets, total.to(target.dtype.element_ty), mask=inside)


@triton.jit
def reduced(
    one: tl.tensor,
    other: tl.tensor,
    REDUCTION: tl.constexpr,
) -> tl.tensor:
    """A step of a reduction; an average is a sum that is divided afterwards."""
    if REDUCTION == "max":
        one = tl.maximum(one, other, propagate_nan=tl.PropagateNan.ALL)
    elif REDUCTION == "min":
        one = tl.minimum(one, other, propagate_nan=tl.PropagateNan.ALL)
    elif REDUCTION == "product":
        one = one * other
    else:
        one = one + other
    return one


# ---------------------------------------------------------------- host side


class Group:
    """The symmetric memory of a group, as much as a call needs.

    All ranks ask for the same number of bytes.

    Args:
        size_bytes: of a rank's buffer.
        group_name: torch's name of the group; None is that of all ranks.

    Attributes:
        rank: this one.
        ranks: how many there are.
        tables: addresses of the tables of buffers and of pads.
        meta: constants of every kernel that meets.
    """

    def __init__(self, size_bytes: int, group_name: str | None = None) -> None:
        self._memory = memory_of(group_name or world_name(), size_bytes)
        self.rank, self.ranks = self._memory.rank, self._memory.world_size
        self.tables = self._memory.buffer_ptrs_dev, self._memory.signal_pad_ptrs_dev
        self.meta = {"RANK": self.rank, "RANKS": self.ranks, "PEERS": triton.next_power_of_2(self.ranks)}

    def own(self, shape: tuple[int, ...], dtype: torch.dtype, offset: int = 0) -> torch.Tensor:
        """This rank's buffer, from its element ``offset`` on, as a tensor."""
        own: torch.Tensor = self._memory.get_buffer(self.rank, shape, dtype, storage_offset=offset)
        return own

    def meet(self) -> None:
        """Let all ranks wait for each other, on the device."""
        launch(meeting_kernel, (1,), self.tables[1], **self.meta, num_warps=1)


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **meta: Any) -> None:
    """Launch a kernel on the current device, behind all that was launched before: ranks meet in it.

    So without programmatic dependent launch, with which a kernel begins while the one before it ends.
    """
    kernel[grid](*args, **meta)


def world_name() -> str:
    """The name of the group of all ranks."""
    world = dist.group.WORLD
    if world is None:
        raise RuntimeError("there is no process group; call torch.distributed.init_process_group first")
    return world.group_name


def memory_of(group_name: Any, size_bytes: int) -> Any:
    """What all ranks have connected, of ``size_bytes`` at least: torch's workspace of the group, or memory apart.

    Raises:
        NotImplementedError: Triton's interpreter is to run the kernels.
    """
    if INTERPRETED:
        raise NotImplementedError("symmetric memory is that of GPUs, and Triton's interpreter runs on none")
    wanted = max(LEAST_BYTES, triton.next_power_of_2(size_bytes))
    if wanted <= MOST_WORKSPACE_BYTES:
        return _workspace(group_name, wanted)
    if (group_name, wanted) not in _apart:
        device = torch.device("cuda", torch.cuda.current_device())
        content = symm_mem.empty(wanted, dtype=torch.uint8, device=device)
        # The tensor is kept: what was allocated last as long as it does.
        _apart[group_name, wanted] = content, symm_mem.rendezvous(content, group_name)
    return _apart[group_name, wanted][1]


def _workspace(group_name: Any, wanted: int) -> Any:
    """Torch's workspace of a group, of ``wanted`` bytes at least; met in again when torch has made another one."""
    workspace = symm_mem._group_name_to_workspace_tensor.get(group_name)
    known, memory = _workspaces.get(group_name, (None, None))
    if workspace is None or workspace is not known or workspace.numel() < wanted:
        memory = symm_mem.get_symm_mem_workspace(group_name, wanted)
        _workspaces[group_name] = symm_mem._group_name_to_workspace_tensor[group_name], memory
    return memory


def most_blocks(ranks: int) -> int:
    """How many blocks of a rank may meet those of the others."""
    return min(MOST_BLOCKS, PAD_SIGNALS // ranks)


def blocks_and_share(elements: int, step: int, ranks: int) -> tuple[int, int]:
    """How many blocks work on so many elements, and how many of them each takes: whole steps.

    One block where there is nothing: ranks meet all the same.
    """
    blocks = max(1, min(most_blocks(ranks), triton.cdiv(elements, step)))
    share = triton.cdiv(triton.cdiv(elements, blocks), step) * step
    return max(1, triton.cdiv(elements, max(1, share))), share


def step_of(x: torch.Tensor) -> int:
    """Elements of a block's step."""
    return STEP_BYTES // x.element_size()


def require_device(*tensors: torch.Tensor) -> None:
    """Decline what has no symmetric memory.

    Raises:
        NotImplementedError: with one line that says why.
    """
    for tensor in tensors:
        if not (tensor.is_cuda or INTERPRETED):
            raise NotImplementedError(f"symmetric memory is that of GPUs, not of {tensor.device.type}")


def as_moved(x: torch.Tensor) -> torch.Tensor:
    """A contiguous tensor as flat integers of the same width, for what moves elements and looks at none."""
    flat = torch.view_as_real(x) if x.is_complex() else x
    return flat.view(_INTEGERS[flat.element_size()]).view(-1)


def wide_type(dtype: torch.dtype) -> Any:
    """What elements are reduced in.

    Raises:
        NotImplementedError: they are complex.
    """
    if dtype not in ELEMENT_TYPE:
        raise NotImplementedError(f"{dtype} is not served")
    return tl.float32 if dtype in (torch.float16, torch.bfloat16) else ELEMENT_TYPE[dtype]


_INTEGERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
