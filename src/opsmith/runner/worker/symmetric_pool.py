"""Symmetric memory that is there before a kernel is: what it allocates and has ranks meet in comes from a pool.

Ranks hand each other their memory through sockets, and a kernel can make none. So blocks of it are connected ahead, and
``torch.distributed._symmetric_memory`` gives these out. Ranks allocate in the same order, so they get the same blocks.
"""

from __future__ import annotations

import math
import weakref
from collections.abc import Sequence
from types import ModuleType
from typing import Any

import torch

#: Blocks of a pool, bytes, the smallest first.
BLOCKS_BYTES = (64 << 20,) * 12 + (512 << 20,) * 4
#: What memory holds that a kernel is given, before each of its calls.
GARBAGE_BYTE = 0xFF


class SymmetricPool:
    """Blocks that all ranks have connected.

    Args:
        blocks: of each its bytes as a flat tensor, and what ranks got when they met in it, the smallest first.
    """

    def __init__(self, blocks: Sequence[tuple[torch.Tensor, Any]]) -> None:
        self._blocks = list(blocks)
        #: Numbers of blocks: those never given out, and those whose tensor is gone, the longest gone first.
        self._fresh, self._gone = list(range(len(self._blocks))), list[int]()

    def empty(self, *size: Any, dtype: torch.dtype | None = None, device: Any = None) -> torch.Tensor:  # noqa: ARG002 - there is one
        """As ``symm_mem.empty``: a tensor at the start of the smallest block that is large enough.

        One that was never given out, while there is one: somebody may still use a view of a tensor that is gone.

        Raises:
            MemoryError: there is none.
        """
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], Sequence) else size
        dtype = dtype or torch.get_default_dtype()
        wanted = math.prod(shape) * dtype.itemsize
        for free in (self._fresh, self._gone):
            number = next((each for each in free if self._blocks[each][0].numel() >= wanted), None)
            if number is not None:
                free.remove(number)
                tensor = self._blocks[number][0][:wanted].view(dtype).view(shape)
                weakref.finalize(tensor, self._gone.append, number)
                return tensor
        sizes = ", ".join(f"{content.numel() >> 20}" for content, _ in self._blocks)
        raise MemoryError(f"no symmetric memory of {wanted >> 20} MiB is left; the blocks have {sizes} MiB")

    def rendezvous(self, tensor: torch.Tensor, group: Any = None) -> Any:  # noqa: ARG002 - all blocks are of all ranks
        """As ``symm_mem.rendezvous``: what all ranks got when they met in the tensor's block.

        Raises:
            ValueError: the tensor is none of this pool's.
        """
        for content, met in self._blocks:
            if content.data_ptr() == tensor.data_ptr():
                return met
        raise ValueError("rendezvous: allocate the tensor with torch.distributed._symmetric_memory.empty")

    def spoil(self) -> None:
        """Fill all blocks that were ever given out with garbage."""
        for number, (content, _) in enumerate(self._blocks):
            if number not in self._fresh:
                content.fill_(GARBAGE_BYTE)

    def offer(self, module: ModuleType) -> None:
        """Let a module of torch's give out this pool's blocks."""
        vars(module).update(empty=self.empty, rendezvous=self.rendezvous)
