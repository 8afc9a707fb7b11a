"""Digests of device memory, computed where it lies.

Results of real models take tens of megabytes. Where kernel and eager agree to the last bit, which is
what a digest of both can say, none of them has to come to the host. It is no secret and no signature:
a kernel that could make the right digest would know the right result. What it must do is differ
whenever contents differ, by whatever bits.
"""

from __future__ import annotations

import torch

#: Bytes that are digested at a time; a dozen temporaries of this size are alive at once.
CHUNK_BYTES = 64 << 20
#: Multipliers of the 64-bit finaliser of MurmurHash3 (Appleby, public domain) and of splitmix64
#: (Steele et al. 2014), as signed numbers.
_MIX = (0xFF51AFD7ED558CCD - (1 << 64), 0xC4CEB9FE1A85EC53 - (1 << 64))
_STEP = 0x9E3779B97F4A7C15 - (1 << 64)
_SHIFT = 33


def digest_memory(flat: torch.Tensor) -> torch.Tensor:
    """Two 64-bit numbers that follow from a flat tensor of bytes; they stay on its device.

    Every eight bytes are mixed with their position, and the sums of what comes out are the digest:
    integers, so that their order does not matter.
    """
    total = torch.zeros(2, dtype=torch.int64, device=flat.device)
    for start in range(0, flat.numel(), CHUNK_BYTES):
        total += _digest_chunk(flat[start : start + CHUNK_BYTES], start // 8)
    return total


def _digest_chunk(chunk: torch.Tensor, first: int) -> torch.Tensor:
    whole = -(-chunk.numel() // 8) * 8
    if whole != chunk.numel() or chunk.data_ptr() % 8:
        aligned = torch.zeros(whole, dtype=torch.uint8, device=chunk.device)
        aligned[: chunk.numel()] = chunk
        chunk = aligned
    words = chunk.view(torch.int64)
    mixed = torch.arange(first, first + len(words), device=chunk.device).mul_(_STEP).bitwise_xor_(words)
    for factor in _MIX:
        mixed.bitwise_xor_(_shifted(mixed)).mul_(factor)
    one = mixed.sum()
    # A second sum over other bits of the same mixture: 64 bits are plenty, 128 leave no question.
    return torch.stack([one, mixed.bitwise_xor_(_shifted(mixed)).mul_(_MIX[0]).sum()])


def _shifted(words: torch.Tensor) -> torch.Tensor:
    """The words shifted to the right without their sign."""
    return (words >> _SHIFT).bitwise_and_((1 << (64 - _SHIFT)) - 1)
