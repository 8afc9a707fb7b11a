"""The words of Philox-4x32-10 as cuRAND counts them, of which torch's CUDA code makes its random numbers.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. A counter gives four words of 32
bits; word n of a seed's sequence is word ``n mod 4`` of counter ``n div 4``.
"""

from __future__ import annotations

import torch

_ROUNDS = 10
_LOW = (1 << 32) - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85


def uniform(seed: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Words ``first`` to ``first + count`` of a seed's sequence as cuRAND's float32 numbers in (0, 1]."""
    places = torch.arange(first, first + count, device=device)
    counters = torch.arange(first // 4, (first + count - 1) // 4 + 1, device=device)
    words = torch.stack(_four_words(seed, counters), -1).flatten()[places - first // 4 * 4]
    return words.float() * 2.0**-32 + 2.0**-33


def _four_words(seed: int, counters: torch.Tensor) -> list[torch.Tensor]:
    """Those of each counter of 64 bits, as numbers of 64 bits."""
    keys = seed & _LOW, seed >> 32 & _LOW
    zeros = torch.zeros_like(counters)
    words = [counters & _LOW, counters >> 32 & _LOW, zeros, zeros]
    for _ in range(_ROUNDS):
        # A product may reach into the sign, which the masks take off again.
        one, two = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [two >> 32 & _LOW ^ words[1] ^ keys[0], two & _LOW, one >> 32 & _LOW ^ words[3] ^ keys[1], one & _LOW]
        keys = (keys[0] + _STEPS[0]) & _LOW, (keys[1] + _STEPS[1]) & _LOW
    return words
