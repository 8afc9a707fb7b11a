"""Which weights a dropout of attention leaves: those that torch's own attention leaves under one state of a generator.

Memory-efficient attention has a word of cuRAND's sequence for each weight of all heads, in order, and keeps a weight
whose word, as a number of (0, 1], is larger than the probability.

Flash attention has a byte for each weight, of Philox-4x32-7 (dropout.h and philox.cuh of Dao-AILab/flash-attention, of
which torch has a copy), and keeps a weight whose byte is at most the share that is kept, times 255 and rounded down. A
tile of 16 queries and 32 keys takes the 16 bytes of 32 counters, the lanes of a warp, as tensor cores lay out its
scores. Where bit by bit the query is ``q3 q2 q1 q0`` and the key ``k4 k3 k2 k1 k0``, the lane is
``q2 q1 q0 k2 k1`` and the byte of its counter ``k4 k3 q3 k0``. The counter starts from the offset, plus 32 times the
head's number, plus the lane; its upper half are the numbers of the tile, of the queries' and of the keys' side.

Suffixes as in :mod:`.attention_forward`; ``_L`` and ``_C`` are what lanes have of queries and of keys.
"""

from __future__ import annotations

import math
import struct
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from .launch import launch
from .philox import COUNTER, halves, next_words, word_at

#: Queries and keys of a tile of flash attention's bytes.
TILE_M, TILE_N = 16, 32
_TILE_M, _TILE_N, _HALF_M, _LANES = (tl.constexpr(number) for number in (16, 32, 8, 32))
#: Pairs of keys in a word's reach, words of a counter, and rounds of Philox.
_PAIRS, _WORDS, _ROUNDS = (tl.constexpr(number) for number in (4, 4, 7))


@triton.jit
def kept_words(head: tl.tensor, m: tl.tensor, n: tl.tensor, M: tl.tensor, N: tl.tensor, dropout: tl.tuple) -> tl.tensor:
    """Whether memory-efficient attention keeps a weight, of queries and keys that broadcast to a block."""
    place = (head.to(tl.int64) * M + m) * N + n
    word = word_at(dropout[1], dropout[2], dropout[3], dropout[4], place)
    unit = word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    return unit > dropout[0]


@triton.jit
def tile_bytes(
    head: tl.tensor,
    first_m: tl.tensor,
    first_n: tl.tensor,
    state_ptr: tl.tensor,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """The bytes of flash attention for a block that begins with a tile and consists of whole ones."""
    a, b = tl.arange(0, BLOCK_M // 2), tl.arange(0, BLOCK_N // 8)
    seed, offset = tl.load(state_ptr).to(tl.uint64), tl.load(state_ptr + 1).to(tl.uint64)
    lane_LC = (a % _HALF_M)[:, None] * _PAIRS + (b % _PAIRS)[None, :]
    count_LC = offset + (head.to(tl.int64) * _LANES + lane_LC).to(tl.uint64)
    zero_LC = (lane_LC * 0).to(tl.uint32)
    row_LC = ((first_m + a // _HALF_M * _TILE_M) // _TILE_M).to(tl.uint32)[:, None] + zero_LC
    column_LC = ((first_n + b // _PAIRS * _TILE_N) // _TILE_N).to(tl.uint32)[None, :] + zero_LC
    low_LC, high_LC = count_LC.to(tl.uint32), (count_LC >> 32).to(tl.uint32)
    w, x, y, z = tl.philox(seed, low_LC, high_LC, row_LC, column_LC, _ROUNDS)
    words = tl.join(tl.join(w, y), tl.join(x, z))
    pairs = tl.join(words & 65535, words >> 16)
    bytes_of = tl.join(pairs & 255, pairs >> 8).to(tl.uint8)
    split = tl.reshape(bytes_of, (BLOCK_M // _TILE_M, _HALF_M, BLOCK_N // _TILE_N, _PAIRS, _WORDS, 2, 2))
    return tl.reshape(tl.permute(split, (0, 5, 1, 2, 4, 3, 6)), (BLOCK_M, BLOCK_N))


@triton.jit
def kept(
    head: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    first_m: tl.tensor,
    first_n: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    dropout: tl.tuple,
    TURNED: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """Which weights of a block stay, of queries ``m`` from ``first_m`` and keys ``n`` from ``first_n`` on.

    With TURNED keys come first. ``dropout`` is what ``arguments`` of :class:`Dropout` or :class:`TileDropout` gives.
    """
    if len(dropout) == 5:
        if TURNED:
            result = kept_words(head, m[None, :], n[:, None], M, N, dropout)
        else:
            result = kept_words(head, m[:, None], n[None, :], M, N, dropout)
    else:
        bytes_of = tile_bytes(head, first_m, first_n, dropout[2], BLOCK_M, BLOCK_N)
        if TURNED:
            bytes_of = tl.trans(bytes_of)
        result = bytes_of.to(tl.int32) <= dropout[1]
    return result


@triton.jit
def left(x: tl.tensor, kept_MN: tl.tensor, dropout: tl.tuple) -> tl.tensor:
    """What a dropout leaves of a block: what stays makes up for what goes."""
    return tl.where(kept_MN, x * (1.0 / (1.0 - dropout[0])), 0.0)


@triton.jit(do_not_specialize=COUNTER)
def state_kernel(
    state_ptr: tl.tensor, seed_low: tl.tensor, seed_high: tl.tensor, count_low: tl.tensor, count_high: tl.tensor
) -> None:
    """The seed, and the offset in words."""
    seed = (seed_high.to(tl.uint32).to(tl.uint64) << 32) | seed_low.to(tl.uint32).to(tl.uint64)
    count = (count_high.to(tl.uint32).to(tl.uint64) << 32) | count_low.to(tl.uint32).to(tl.uint64)
    tl.store(state_ptr, seed)
    tl.store(state_ptr + 1, count << 2)


# ---------------------------------------------------------------- the host side


class Dropout(NamedTuple):
    """That of memory-efficient attention: the probability, and whose words tell, from which one on.

    Only heads of queries with keys of their own have one.
    """

    probability: float
    seed: int
    first: int

    def arguments(self) -> tuple[Any, ...]:
        """As :func:`kept` takes it, in numbers of 32 bits, which Triton takes for one type whatever they are."""
        return self.probability, *halves(self.seed), *halves(self.first)


class TileDropout(NamedTuple):
    """That of flash attention: the probability, and where seed and offset lie, two integers of 64 bits.

    Blocks consist of whole tiles, see :data:`TILE_M` and :data:`TILE_N`.
    """

    probability: float
    state: torch.Tensor

    def arguments(self) -> tuple[Any, ...]:
        """As :func:`kept` takes it: what is kept at most, in the numbers of torch's code."""
        return self.probability, math.floor(_float32(1 - _float32(self.probability)) * 255.0), self.state


def _float32(number: float) -> float:
    return float(struct.unpack("<f", struct.pack("<f", number))[0])


def drawn_tiles(probability: float, heads: int, device: torch.device) -> TileDropout:
    """A dropout of so many heads of queries, with words of the device's generator that nobody else draws.

    Raises:
        NotImplementedError: eager refuses the probability, or the launch would become part of a CUDA graph.
    """
    if not 0 < probability < 1:
        raise NotImplementedError(f"a dropout of {probability} is not served")
    seed, first = next_words(None, device, heads * TILE_N)
    state = torch.empty((2,), dtype=torch.uint64, device=device)
    launch(state_kernel, (1,), device, state, *halves(seed), *halves(first // 4))
    return TileDropout(probability, state)
