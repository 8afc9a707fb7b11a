"""Memory that holds garbage where nobody has written: an element that a kernel leaves out shows."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable

import torch

#: What a byte of unwritten memory holds; in float16 that is NaN, in wider formats near the largest number.
GARBAGE_BYTE = 0x7F
#: ``M_PERTURB`` of glibc's malloc.h; what is handed out holds the complement of its value.
_M_PERTURB = -6
#: Blocks of one size that are given back to a device's allocator, and at most so many bytes of them.
FREED_BLOCKS = 2
MAX_FREED_BYTES = 256 << 20


def garbage_from_malloc(*, on: bool) -> None:
    """Whether memory that this process gets from malloc holds garbage; it costs a write of each byte.

    Only glibc can; with another C library memory is as it comes.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_M_PERTURB, GARBAGE_BYTE ^ 0xFF if on else 0)


def leave_garbage(sizes_bytes: Iterable[int], device: torch.device) -> None:
    """Give blocks full of garbage back to a device's allocator, which will hand them out next.

    Args:
        sizes_bytes: of the results that are about to be made.
    """
    for size in sizes_bytes:
        if 0 < size <= MAX_FREED_BYTES:
            blocks = [torch.empty(size, dtype=torch.uint8, device=device).fill_(0xFF) for _ in range(FREED_BLOCKS)]
            del blocks
