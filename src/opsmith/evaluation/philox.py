"""The words of Philox-4x32 of which torch's CUDA code makes its random numbers.

Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011. A counter of 128 bits gives four
words of 32. As cuRAND counts them, word n of a seed's sequence is word ``n mod 4`` of counter ``n div 4``, after ten
rounds. Flash attention takes seven rounds and counters of its own.
"""

from __future__ import annotations

import torch

_ROUNDS, _FLASH_ROUNDS = 10, 7
_LOW = (1 << 32) - 1
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85


def uniform(seed: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Words ``first`` to ``first + count`` of a seed's sequence as cuRAND's float32 numbers in (0, 1]."""
    places = torch.arange(first, first + count, device=device)
    counters = torch.arange(first // 4, (first + count - 1) // 4 + 1, device=device)
    zeros = torch.zeros_like(counters)
    words = torch.stack(_four_words(seed, [*_halves(counters), zeros, zeros], _ROUNDS), -1).flatten()[
        places - first // 4 * 4
    ]
    return words.float() * 2.0**-32 + 2.0**-33


def flash_bytes(seed: int, offset: int, heads: int, rows: range, keys: int, device: torch.device) -> torch.Tensor:
    """The byte of each weight by which flash attention's dropout keeps it: ``[heads, len(rows), keys]``, 0 to 255.

    A tile of 16 queries and 32 keys takes 32 counters, one for each lane of a warp: ``offset + 32 head + lane``, above
    it the tile's numbers. A lane has the elements of tensor cores' accumulators, 16 rows of 8 columns at a time: two
    neighbours of row ``lane div 4``, then those of the row 8 below. It has a word for each 8 columns.
    """
    m, n = torch.tensor([*rows], device=device)[:, None], torch.arange(keys, device=device)[None, :]
    first = rows.start // 16
    row = torch.arange(first, (rows.stop + 15) // 16, device=device)[None, :, None, None]
    column = torch.arange((keys + 31) // 32, device=device)[None, None, :, None]
    head = torch.arange(heads, device=device)[:, None, None, None]
    counters = offset + head * 32 + torch.arange(32, device=device)
    upper, lower = torch.broadcast_tensors(row, column, counters)[:2], torch.broadcast_tensors(counters, row, column)[0]
    words = torch.stack(_four_words(seed, [*_halves(lower), *upper], _FLASH_ROUNDS), -1)
    word = words[:, m // 16 - first, n // 32, m % 8 * 4 + n % 8 // 2, n % 32 // 8]
    return word >> (m % 16 // 8 * 2 + n % 2) * 8 & 255


def _halves(counters: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """The lower and the upper 32 of 64 bits."""
    return counters & _LOW, counters >> 32 & _LOW


def _four_words(seed: int, words: list[torch.Tensor], rounds: int) -> list[torch.Tensor]:
    """Those of each counter, whose words are given from the lowest on, as numbers of 64 bits."""
    keys = seed & _LOW, seed >> 32 & _LOW
    for _ in range(rounds):
        # A product may reach into the sign, which the masks take off again.
        one, two = words[0] * _MULTIPLIERS[0], words[2] * _MULTIPLIERS[1]
        words = [two >> 32 & _LOW ^ words[1] ^ keys[0], two & _LOW, one >> 32 & _LOW ^ words[3] ^ keys[1], one & _LOW]
        keys = (keys[0] + _STEPS[0]) & _LOW, (keys[1] + _STEPS[1]) & _LOW
    return words
