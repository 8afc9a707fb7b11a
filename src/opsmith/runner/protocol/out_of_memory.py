"""What is said where a device or its host has no memory left."""

from __future__ import annotations

import re

#: Torch's allocators, of all kinds of devices; the drivers of CUDA and of Intel's GPUs, CUDA's libraries and Triton.
_LACK = re.compile(
    r"out of memory|OutOfMemoryError|\bMemoryError\b|can't allocate memory|_ALLOC_FAILED|OUT_OF_(?:DEVICE|HOST)_MEMORY"
)
#: Torch names every process that it finds on a device: hundreds, of strangers to whoever reads it.
_OTHERS = re.compile(r" ?\bProcess \d+ has \S+ \w+ memory in use\.")
_ADVICE = re.compile(r" *If reserved but unallocated memory is large try setting [^\n]*")
#: Of a message that somebody made up.
_MAX_CHARS = 1 << 16


def is_oom(text: str) -> bool:
    """Whether a message says that there was no memory."""
    return _LACK.search(text) is not None


def shortened(text: str) -> str:
    """A message, or a traceback with one, without what nobody can act on.

    What was asked for stays, with what the device has, what of it is free, and what the process itself holds.
    """
    if not is_oom(text):
        return text
    return _ADVICE.sub("", _OTHERS.sub("", text[-_MAX_CHARS:] if len(text) > _MAX_CHARS else text))
