"""Attention forward: FlashAttention-2, a softmax over keys that never lies in memory.

With ``p[m, n]`` the softmax over n of ``scale * q[m] . k[n] + bias[m, n]``, ``out[m] = sum over n of p[m, n] v[n]``:
``2 M N (D + E)`` operations over ``(M D + N D + N E + M E) * itemsize`` compulsory bytes for each head, and the bias.

A program computes BLOCK_M queries of one head and loops over tiles of BLOCK_N keys (Dao, 2023)::

                   n: keys, BLOCK_N at a step ->
                  +--------+--------+--------+
                  |  k_ND  |        |        |      k and v: each tile is read once by a program
                  +--------+--------+--------+
      +------+    +--------+--------+--------+
    m | q_MD |    |  s_MN  | ...    |        |      s = q k^T, p = exp(s - max): in registers alone
      +------+    +--------+--------+--------+
                      |
                      v   p_MN @ v_NE
                  max_M, sum_M, acc_ME              out_ME = acc_ME / sum_M,  lse_M = max_M + log sum_M

- Online softmax (Milakov and Gimelshein, 2018): ``max_M`` is the largest score so far. A larger one rescales ``sum_M``
  and ``acc_ME`` by ``exp(old max - new max)``.
- Causal: key n is visible to query m if ``n <= m + diagonal``. Tiles of keys that all queries of a block see come first
  and have no mask, tiles that none of them sees are skipped, and the last queries, which see most keys, start first.
- Split keys (flash-decoding; Dao and others, 2023): where queries are too few to fill the device, programs take a share
  of the keys each and write averages of their own, which :func:`join_splits_kernel` weighs with ``exp(lse)`` and adds.
- Half types have scores in units of log 2, since ``exp2`` is an instruction. In float32 that would round scores in the
  hundreds once more, by what is seen in the weights.
- float32 is multiplied as 3xTF32 (tf32x3.py). Where it pays, another launch splits keys and values into TF32
  numbers beforehand, and transposes the values, since tensor cores of a Hopper GPU read four-byte numbers with the
  terms of a sum side by side. Queries are split once by each program, weights as they are made. Both parts have the
  sign of their number, so what is not finite stays so.

Suffixes: ``_B`` batch, ``_H`` heads, ``_M`` queries, ``_N`` keys, ``_D`` columns of q and k, ``_E`` columns of v and
out, ``_S`` splits.
"""

from __future__ import annotations

import itertools
import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, converted, index_type
from ..common.launch import INTERPRETED, constants, launch, multiprocessors, pdl_prologue
from ..common.tuning import Family, Work, size_class
from ..matmul.matmul import SHARED_BYTES, multiply_type
from ..matmul.product_tiles import dot_tf32x3, parts_of_one_sign, product_along_rows
from ..matmul.tf32x3 import MOST_MATRICES, ROWS, Parts, parts_fit, parts_of
from ..random.philox import halves, word_at

_LOG2_E = math.log2(math.e)
LOG2_E = tl.constexpr(_LOG2_E)
#: How tiles of float32 are multiplied: see :func:`matmul.float32_precision`.
PRECISION = "ieee" if INTERPRETED else "tf32x3"
#: Logarithms may have rows up to a multiple of this.
LSE_ROWS = 32
_LSE_BLOCK = tl.constexpr(LSE_ROWS)
#: The largest head of which a tile fits into shared memory.
LARGEST_HEAD = 512
#: Of accumulators and scores: so many of a thread's 255 registers, of which addresses and masks take others.
ACCUMULATOR_REGISTERS = 160

# ---------------------------------------------------------------- arguments of the kernel


class Sizes(NamedTuple):
    """Heads of a batch, the most queries and keys of a head, and how many heads of queries share one of keys."""

    H: Any
    M: Any
    N: Any
    group: Any


class Strides(NamedTuple):
    """Of batch, heads, rows and columns of each tensor, as :func:`strides_in` has them; lse has no columns."""

    out: tuple[int, ...]
    lse: tuple[int, ...]
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    bias: tuple[int, ...]


class Splits(NamedTuple):
    """How far the splits' averages and their logarithms lie apart, and the keys of a split."""

    out_stride: int
    lse_stride: int
    keys: int


class Scoring(NamedTuple):
    """What makes scores of dot products, in the base of :func:`power`; which keys are visible; the lse of none."""

    scale: float
    diagonal: int
    empty_lse: float


class Config(NamedTuple):
    """What the kernel is compiled for.

    Attributes:
        UNIT: elements that all strides of q, k and v are counted in, so that the compiler knows how rows are aligned.
        BIAS_UNIT: of the bias.
        OUT_UNIT: of out.
        D: columns of q and k.
        E: columns of v and out.
        BLOCK_D: D as a power of two, 16 at least.
        BLOCK_E: E likewise.
        CAUSAL: not all keys are visible to all queries.
        BASE_2: scores are logarithms to base 2.
        FUSE_SCALE: scores stay dot products until the largest is taken off: ``s * scale - max * scale`` is one
            instruction.
        INDEX: the type of offsets within a head.
        MULTIPLY: the type that tiles are multiplied in.
        PRECISION: of products of float32.
    """

    UNIT: int
    BIAS_UNIT: int
    OUT_UNIT: int
    D: int
    E: int
    BLOCK_D: int
    BLOCK_E: int
    CAUSAL: bool
    BASE_2: bool
    FUSE_SCALE: bool
    INDEX: Any
    MULTIPLY: Any
    PRECISION: str


# ---------------------------------------------------------------- the kernels


@triton.jit
def head_of(ptr: tl.tensor, b: tl.tensor, h: tl.tensor, strides: tl.tuple, UNIT: tl.constexpr) -> tl.tensor:
    """Where a head begins. All strides but the last one are in units of UNIT elements, so that rows stay aligned."""
    return ptr + (b.to(tl.int64) * strides[0] + h.to(tl.int64) * strides[1]) * UNIT


@triton.jit
def load_rows(
    head_ptr: tl.tensor,
    r: tl.tensor,
    rows: tl.tensor,
    strides: tl.tuple,
    UNIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    MASKED: tl.constexpr,
    INDEX: tl.constexpr,
) -> tl.tensor:
    """Rows ``r`` of a head with zeros up to column BLOCK; MASKED has zeros for those beyond the last row, too."""
    c = tl.arange(0, BLOCK)
    at = head_ptr + (r.to(INDEX) * strides[2] * UNIT)[:, None] + (c.to(INDEX) * strides[3])[None, :]
    if MASKED:
        x = tl.load(at, mask=(r < rows)[:, None] & (c < COLUMNS)[None, :], other=0)
    elif COLUMNS < BLOCK:
        x = tl.load(at, mask=(c < COLUMNS)[None, :], other=0)
    else:
        x = tl.load(at)
    return x


@triton.jit
def load_parts(
    head_ptr: tl.tensor,
    low: tl.tensor,
    r: tl.tensor,
    strides: tl.tuple,
    UNIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    INDEX: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """High and low parts of rows that were split beforehand, in whole tiles; a low one lies ``low`` elements behind."""
    high = load_rows(head_ptr, r, 0, strides, UNIT, COLUMNS, COLUMNS, False, INDEX)
    return high, load_rows(head_ptr + low, r, 0, strides, UNIT, COLUMNS, COLUMNS, False, INDEX)


@triton.jit
def store_rows(
    head_ptr: tl.tensor,
    r: tl.tensor,
    rows: tl.tensor,
    x: tl.tensor,
    strides: tl.tuple,
    UNIT: tl.constexpr,
    COLUMNS: tl.constexpr,
    BLOCK: tl.constexpr,
    INDEX: tl.constexpr,
) -> None:
    """The counterpart of :func:`load_rows`."""
    c = tl.arange(0, BLOCK)
    at = head_ptr + (r.to(INDEX) * strides[2] * UNIT)[:, None] + (c.to(INDEX) * strides[3])[None, :]
    tl.store(at, converted(x, head_ptr.dtype.element_ty), mask=(r < rows)[:, None] & (c < COLUMNS)[None, :])


@triton.jit
def in_base(x: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    """A logarithm to base 2, if scores are."""
    if BASE_2:
        x = x * LOG2_E
    return x


@triton.jit
def power(x: tl.tensor, BASE_2: tl.constexpr) -> tl.tensor:
    """The weight that a score stands for."""
    if BASE_2:
        x = tl.exp2(x)
    else:
        x = tl.exp(x)
    return x


@triton.jit
def natural(x: tl.tensor, scale: tl.tensor, BASE_2: tl.constexpr, FUSE_SCALE: tl.constexpr) -> tl.tensor:
    """The natural logarithm of the weight that a score stands for."""
    if FUSE_SCALE:
        x = x * scale
    if BASE_2:
        x = x / LOG2_E
    return x


@triton.jit
def bias_offsets(
    m: tl.tensor, n: tl.tensor, M: tl.tensor, strides: tl.tuple, UNIT: tl.constexpr, INDEX: tl.constexpr
) -> tl.tensor:
    """Offsets in a head of a matrix of queries and keys; queries beyond the last one read the last one's."""
    return (tl.minimum(m, M - 1).to(INDEX) * strides[2] * UNIT)[:, None] + (n.to(INDEX) * strides[3])[None, :]


@triton.jit
def scores(
    qk_MN: tl.tensor,
    bias_ptr: tl.tensor,
    m: tl.tensor,
    n: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    bias_strides: tl.tuple,
    scale: tl.tensor,
    diagonal: tl.tensor,
    CONFIG: tl.tuple,
    MASKED: tl.constexpr,
) -> tl.tensor:
    """``scale * qk + bias``, and, if MASKED, ``-inf`` for keys that do not exist or that the query does not see."""
    s_MN = qk_MN * scale
    if bias_ptr is not None:
        at_MN = bias_ptr + bias_offsets(m, n, M, bias_strides, CONFIG.BIAS_UNIT, CONFIG.INDEX)
        if MASKED:
            bias_MN = tl.load(at_MN, mask=(n < N)[None, :], other=0)
        else:
            bias_MN = tl.load(at_MN)
        s_MN += in_base(bias_MN.to(tl.float32), CONFIG.BASE_2)
    if MASKED:
        visible_MN = (n < N)[None, :]
        if CONFIG.CAUSAL:
            visible_MN = visible_MN & (n[None, :] <= m[:, None] + diagonal)
        s_MN = tl.where(visible_MN, s_MN, float("-inf"))
    return s_MN


@triton.jit
def dropped(
    x: tl.tensor, head: tl.tensor, m: tl.tensor, n: tl.tensor, M: tl.tensor, N: tl.tensor, dropout: tl.tuple
) -> tl.tensor:
    """``x`` after dropout: scaled by ``1 / (1 - probability)``, or 0.

    There is a random word for each query and key of each head. As in eager's memory-efficient attention, an element is
    kept if its word, as a number of (0, 1], is larger than the probability.
    """
    probability, seed_low, seed_high, first_low, first_high = dropout
    place = (head.to(tl.int64) * M + m) * N + n
    word = word_at(seed_low, seed_high, first_low, first_high, place)
    unit = word.to(tl.float32) * 2.3283064365386963e-10 + 1.1641532182693481e-10
    return tl.where(unit > probability, x * (1.0 / (1.0 - probability)), 0.0)


@triton.jit
def attend(
    acc_ME: tl.tensor,
    max_M: tl.tensor,
    sum_M: tl.tensor,
    q_MD: tl.tensor,
    q_low_MD: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    head: tl.tensor,
    m: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    strides: tl.tuple,
    scoring: tl.tuple,
    CONFIG: tl.tuple,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """The online softmax of a block of queries, continued over the keys from ``first`` to ``end``.

    With FUSE_SCALE, ``max_M`` is one of dot products. ``q_low`` is None where ``low_offsets`` is.
    """
    INDEX: tl.constexpr = CONFIG.INDEX
    for start in range(first, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if low_offsets is not None:
            k_ND, k_low_ND = load_parts(k_ptr, low_offsets[0], n, strides.k, CONFIG.UNIT, CONFIG.BLOCK_D, INDEX)
            qk_MN = dot_tf32x3(q_MD, q_low_MD, tl.trans(k_ND), tl.trans(k_low_ND))
        else:
            k_ND = load_rows(k_ptr, n, N, strides.k, CONFIG.UNIT, CONFIG.D, CONFIG.BLOCK_D, MASKED, INDEX)
            qk_MN = product_along_rows(q_MD, k_ND.to(CONFIG.MULTIPLY), CONFIG.PRECISION)
        if CONFIG.FUSE_SCALE:
            factor = 1.0
        else:
            factor = scoring.scale
        s_MN = scores(qk_MN, bias_ptr, m, n, M, N, strides.bias, factor, scoring.diagonal, CONFIG, MASKED)
        new_max_M = tl.maximum(max_M, tl.max(s_MN, axis=1))
        # A query that has seen no key has no largest score to subtract: -inf minus -inf is no number.
        base_M = tl.where(new_max_M == float("-inf"), 0.0, new_max_M)
        if CONFIG.FUSE_SCALE:
            scaled_M = base_M * scoring.scale
            p_MN = power(s_MN * scoring.scale - scaled_M[:, None], CONFIG.BASE_2)
            # Exactly 1 where no score is larger than before. One product less another, in one instruction, leaves what
            # rounding took off the other, and a thousand blocks of keys would take the sum by 1e-3.
            rescale_M = power((max_M - base_M) * scoring.scale, CONFIG.BASE_2)
        else:
            p_MN = power(s_MN - base_M[:, None], CONFIG.BASE_2)
            rescale_M = power(max_M - base_M, CONFIG.BASE_2)
        sum_M = sum_M * rescale_M + tl.sum(p_MN, axis=1)
        if dropout is not None:
            p_MN = dropped(p_MN, head, m[:, None], n[None, :], M, N, dropout)
        acc_ME = acc_ME * rescale_M[:, None]
        if low_offsets is not None:
            e = tl.arange(0, CONFIG.BLOCK_E)
            v_EN, v_low_EN = load_parts(v_ptr + start, low_offsets[1], e, strides.v, CONFIG.UNIT, BLOCK_N, INDEX)
            p_MN, p_low_MN = parts_of_one_sign(p_MN)
            acc_ME += dot_tf32x3(p_MN, p_low_MN, tl.trans(v_EN), tl.trans(v_low_EN))
        else:
            v_NE = load_rows(v_ptr, n, N, strides.v, CONFIG.UNIT, CONFIG.E, CONFIG.BLOCK_E, MASKED, INDEX)
            p_MN = converted(p_MN, v_NE.dtype).to(CONFIG.MULTIPLY)
            acc_ME = tl.dot(p_MN, v_NE.to(CONFIG.MULTIPLY), acc_ME, input_precision=CONFIG.PRECISION)
        max_M = new_max_M
    return acc_ME, max_M, sum_M


@triton.jit
def attention_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    starts: tl.tuple,
    sizes: tl.tuple,
    strides: tl.tuple,
    splits: tl.tuple,
    lse_rows: tl.tensor,
    scoring: tl.tuple,
    CONFIG: tl.tuple,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """``out`` and ``lse`` of BLOCK_M queries of one head, over the keys of one split.

    Args:
        out_ptr: (B, H, M, E), or averages of each split in float32.
        lse_ptr: (B, H, lse_rows), the logarithms of the sums of weights, or None.
        q_ptr: (B, H, M, D).
        k_ptr: (B, H / group, N, D).
        v_ptr: (B, H / group, N, E), or (.., E, N) if split beforehand.
        bias_ptr: (B, H, M, N), or None.
        low_offsets: where k and v are split beforehand, how far the low parts of each lie behind the high ones.
        dropout: the arguments of :func:`dropped`, or None.
        starts: where each sequence of a ragged batch begins among queries and among keys, or None. A batch is a
            sequence then, M and N at most long.
        sizes: see :class:`Sizes`.
        strides: see :class:`Strides`.
        splits: see :class:`Splits`.
        lse_rows: rows of lse; those beyond M become infinite.
        scoring: see :class:`Scoring`. A query that sees no key has 0, and ``empty_lse``.
        CONFIG: see :class:`Config`.
        BLOCK_M: queries of a program.
        BLOCK_N: keys of a step.
    """
    pdl_prologue()
    H, M, N, group = sizes
    UNIT: tl.constexpr = CONFIG.UNIT
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    if CONFIG.CAUSAL:
        block = blocks - 1 - block  # The last queries see most keys: they start first.
    split = tl.program_id(1)
    b, h = head // H, head % H
    k_ptr = head_of(k_ptr, b, h // group, strides.k, UNIT)
    v_ptr = head_of(v_ptr, b, h // group, strides.v, UNIT)
    q_ptr = head_of(q_ptr, b, h, strides.q, UNIT)
    out_ptr = head_of(out_ptr + split.to(tl.int64) * splits.out_stride, b, h, strides.out, CONFIG.OUT_UNIT)
    if bias_ptr is not None:
        bias_ptr = head_of(bias_ptr, b, h, strides.bias, CONFIG.BIAS_UNIT)
    if starts is not None:
        first_q, first_k = (tl.load(starts[0] + b).to(tl.int64), tl.load(starts[1] + b).to(tl.int64))
        M, N = (tl.load(starts[0] + b + 1) - first_q).to(tl.int32), (tl.load(starts[1] + b + 1) - first_k).to(tl.int32)
        q_ptr, out_ptr = q_ptr + first_q * strides.q[2] * UNIT, out_ptr + first_q * strides.out[2] * CONFIG.OUT_UNIT
        k_ptr, v_ptr = k_ptr + first_k * strides.k[2] * UNIT, v_ptr + first_k * strides.v[2] * UNIT

    first_M = block * BLOCK_M
    m = first_M + tl.arange(0, BLOCK_M)
    q_MD = load_rows(q_ptr, m, M, strides.q, UNIT, CONFIG.D, CONFIG.BLOCK_D, True, CONFIG.INDEX)
    q_MD, q_low_MD = q_MD.to(CONFIG.MULTIPLY), None
    if low_offsets is not None:
        q_MD, q_low_MD = parts_of_one_sign(q_MD)

    first = split * splits.keys
    end = tl.minimum(first + splits.keys, N)
    visible_to_all = end  # Keys that need no mask.
    if CONFIG.CAUSAL:
        visible_to_all = tl.minimum(end, first_M + scoring.diagonal + 1)
        end = tl.minimum(end, first_M + scoring.diagonal + BLOCK_M)
    full = first + tl.maximum(visible_to_all - first, 0) // BLOCK_N * BLOCK_N
    acc_ME = tl.zeros([BLOCK_M, CONFIG.BLOCK_E], tl.float32)
    max_M = tl.full([BLOCK_M], float("-inf"), tl.float32)
    sum_M = tl.zeros([BLOCK_M], tl.float32)
    acc_ME, max_M, sum_M = attend(
        acc_ME, max_M, sum_M, q_MD, q_low_MD, k_ptr, v_ptr, bias_ptr, low_offsets, dropout, head, m, first, full, M, N,
        strides, scoring, CONFIG, False, BLOCK_N,
    )  # fmt: skip
    acc_ME, max_M, sum_M = attend(
        acc_ME, max_M, sum_M, q_MD, q_low_MD, k_ptr, v_ptr, bias_ptr, low_offsets, dropout, head, m, full, end, M, N,
        strides, scoring, CONFIG, True, BLOCK_N,
    )  # fmt: skip

    total_M = tl.where(sum_M == 0, 1.0, sum_M)
    out_ME = acc_ME / total_M[:, None]
    store_rows(out_ptr, m, M, out_ME, strides.out, CONFIG.OUT_UNIT, CONFIG.E, CONFIG.BLOCK_E, CONFIG.INDEX)
    if lse_ptr is not None:
        lse_M = natural(max_M, scoring.scale, CONFIG.BASE_2, CONFIG.FUSE_SCALE) + tl.log(total_M)
        lse_M = tl.where(sum_M == 0, scoring.empty_lse, lse_M)
        lse_ptr = head_of(lse_ptr + split.to(tl.int64) * splits.lse_stride, b, h, strides.lse, 1)
        tl.store(lse_ptr + m.to(CONFIG.INDEX) * strides.lse[2], lse_M, mask=m < M)
        if block == blocks - 1:
            beyond = M + tl.arange(0, _LSE_BLOCK)
            tl.store(lse_ptr + beyond * strides.lse[2], float("inf"), mask=beyond < lse_rows)


@triton.jit
def join_splits_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    part_ptr: tl.tensor,
    part_lse_ptr: tl.tensor,
    H: tl.tensor,
    M: tl.tensor,
    splits: tl.tensor,
    out_strides: tl.tuple,
    lse_strides: tl.tuple,
    empty_lse: tl.tensor,
    OUT_UNIT: tl.constexpr,
    E: tl.constexpr,
    BLOCK_S: tl.constexpr,
    BLOCK_E: tl.constexpr,
) -> None:
    """One query of one head: the average of its splits' averages, weighted with ``exp(lse - max lse)``."""
    pdl_prologue()
    rows = tl.num_programs(0).to(tl.int64)
    row = tl.program_id(0).to(tl.int64)
    s = tl.arange(0, BLOCK_S)
    e = tl.program_id(1) * BLOCK_E + tl.arange(0, BLOCK_E)
    lse_S = tl.load(part_lse_ptr + s * rows + row, mask=s < splits, other=float("-inf"))
    at_SE = part_ptr + ((s * rows + row) * E)[:, None] + e[None, :]
    part_SE = tl.load(at_SE, mask=(s < splits)[:, None] & (e < E)[None, :], other=0)
    max_lse = tl.max(lse_S, axis=0)
    base = tl.where(max_lse == float("-inf"), 0.0, max_lse)
    weight_S = tl.exp(lse_S - base)
    weight = tl.sum(weight_S, axis=0)
    total = tl.where(weight == 0, 1.0, weight)
    out_E = tl.sum(part_SE * weight_S[:, None], axis=0) / total
    b, h, m = row // M // H, row // M % H, row % M
    out_ptr += (b * out_strides[0] + h * out_strides[1] + m * out_strides[2]) * OUT_UNIT
    tl.store(out_ptr + e * out_strides[3], converted(out_E, out_ptr.dtype.element_ty), mask=e < E)
    if lse_ptr is not None:
        lse = tl.where(weight == 0, empty_lse, max_lse + tl.log(total))
        tl.store(lse_ptr + b * lse_strides[0] + h * lse_strides[1] + m * lse_strides[2], lse)


# ---------------------------------------------------------------- the host side


class Dropout(NamedTuple):
    """Which weights are dropped: the probability, and whose words tell, from which one on (:func:`philox.next_words`).

    Only heads of queries with keys of their own have one.
    """

    probability: float
    seed: int
    first: int

    def arguments(self) -> tuple[float, int, int, int, int]:
        """As :func:`dropped` takes it, in numbers of 32 bits, which Triton takes for one type whatever they are."""
        return self.probability, *halves(self.seed), *halves(self.first)


class ScoreRule(NamedTuple):
    """How scores are made of dot products, and which weights count.

    Attributes:
        scale: what dot products are multiplied by.
        bias: what is added then, expanded to a matrix of queries and keys for each head.
        diagonal: query m sees the keys up to ``m + diagonal``; None where it sees all.
        empty_lse: the logarithm of the sum of weights of a query that sees no key.
        dropout: of weights, if there is one.
    """

    scale: float
    bias: torch.Tensor | None
    diagonal: int | None
    empty_lse: float
    dropout: Dropout | None = None


class AttentionTile(NamedTuple):
    """Queries and keys of a block, the launch options that go with them, and whether keys are split beforehand."""

    m: int
    n: int
    warps: int
    stages: int
    beforehand: int = 0


class Sequences(NamedTuple):
    """Sequences behind each other in one batch.

    Attributes:
        starts_q: where each begins among the queries, and where the last one ends; int32, dense.
        starts_k: among the keys.
        longest_q: the most queries of one.
        longest_k: the most keys.
    """

    starts_q: torch.Tensor
    starts_k: torch.Tensor
    longest_q: int
    longest_k: int


def scale_of(query: torch.Tensor, scale: float | None) -> float:
    """One over the root of the head's size, if no other scale is asked for."""
    return 1 / math.sqrt(query.shape[-1]) if scale is None else scale


def is_base_2(q: torch.Tensor) -> bool:
    """Whether scores are logarithms to base 2."""
    return q.dtype != torch.float32


def in_base_of(q: torch.Tensor, scale: float) -> float:
    """The factor that makes scores of dot products."""
    return scale * _LOG2_E if is_base_2(q) else scale


def block_of(columns: int) -> int:
    """Columns of a tile that holds a head; tensor cores take 16 at least."""
    return max(int(triton.next_power_of_2(columns)), 16)


def unit_of(*tensors: torch.Tensor) -> int:
    """The elements, 16 bytes at most, that all strides of heads and rows are multiples of."""
    unit = 16 // max(tensor.element_size() for tensor in tensors)
    strides = [stride for x in tensors for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True) if size > 1]
    return math.gcd(unit, *strides)


def strides_in(unit: int, x: torch.Tensor | None) -> tuple[int, ...]:
    """Strides of batch, heads and rows in units, and of columns in elements."""
    if x is None:
        return (0, 0, 0, 0)
    outer = (stride // unit if size > 1 else 0 for size, stride in zip(x.shape[:3], x.stride()[:3], strict=True))
    return (*outer, *x.stride()[3:])


def offsets_type(*tensors: torch.Tensor | None) -> tl.dtype:
    """The type of offsets within a head."""
    heads = [Geometry(tuple(x.shape[2:]), (x.stride()[2:],)) for x in tensors if x is not None and x.numel()]
    return max(map(index_type, heads), key=lambda index: index.primitive_bitwidth, default=tl.int32)


def attend_heads(
    out: torch.Tensor,
    lse: torch.Tensor | None,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    rule: ScoreRule,
    sequences: Sequences | None = None,
) -> None:
    """Attention into ``out`` and ``lse``.

    Args:
        out: of shape (B, H, M, E), any strides.
        lse: of shape (B, H, M) or with more rows, which become infinite; float32.
        q: of shape (B, H, M, D).
        k: of shape (B, H / group, N, D).
        v: of shape (B, H / group, N, E).
        rule: what becomes of dot products.
        sequences: that the one batch consists of, each of which sees itself alone; ``lse`` has one batch for each.
    """
    group = q.shape[1] // k.shape[1]
    lse_rows = 0 if lse is None else lse.shape[2]
    if (
        q.shape[2] == 1
        and group > 1
        and rule.bias is None
        and rule.diagonal is None
        and lse_rows <= 1
        and sequences is None
    ):
        # The queries that share keys fill one tile.
        q, out = (x.squeeze(2).unflatten(1, (-1, group)) for x in (q, out))
        lse = None if lse is None else lse.squeeze(2).unflatten(1, (-1, group))
        group, lse_rows = 1, group
    (B, H, M, D), (N, E) = q.shape, v.shape[2:]
    if not out.numel() and not (lse is not None and lse.numel()):
        return
    if sequences is not None:
        B, M, N = sequences.starts_q.numel() - 1, sequences.longest_q, sequences.longest_k
    columns = max(block_of(D), block_of(E))
    tile = _forward_tile(B * H, M, N, columns, q.dtype, causal=rule.diagonal is not None)
    if sequences is None:
        in_parts = BEFOREHAND.get(columns, ())
        by_rule = in_parts[0] if in_parts and splitting_pays(q, v, B * H * N * (block_of(D) + block_of(E))) else tile
        tile = chosen(HEADS, by_rule, q, v, rule)
    programs = B * H * triton.cdiv(M, tile.m)
    splits = 1 if lse_rows > M or sequences is not None else _splits(programs, triton.cdiv(N, tile.n), q.device)
    # A split has whole blocks of keys.
    share = triton.cdiv(triton.cdiv(N, tile.n), splits) * tile.n
    parts, part_lse, empty_lse = out, lse, rule.empty_lse
    if splits > 1:
        parts = torch.empty((splits * B, H, M, E), dtype=torch.float32, device=q.device)
        part_lse = torch.empty((splits * B, H, M), dtype=torch.float32, device=q.device)
        empty_lse = -math.inf
    low_offsets = None
    if tile.beforehand and N:
        k_parts, v_parts = rows_in_parts(k, tile.n), transposed_in_parts(v, tile.n)
        k, v = k_parts.high(k.shape[0]), v_parts.high(v.shape[0])
        low_offsets = (k_parts.strides[0], v_parts.strides[0])
    config = Config(
        UNIT=unit_of(q, k, v),
        BIAS_UNIT=1 if rule.bias is None else unit_of(rule.bias),
        OUT_UNIT=unit_of(parts),
        D=D,
        E=E,
        BLOCK_D=block_of(D),
        BLOCK_E=block_of(E),
        CAUSAL=rule.diagonal is not None,
        BASE_2=is_base_2(q),
        # In float32 it would round differences of large scores once more; a scale below 0 reverses their order.
        FUSE_SCALE=is_base_2(q) and rule.bias is None and rule.scale > 0,
        INDEX=offsets_type(parts, q, k, v, rule.bias),
        MULTIPLY=multiply_type(q.dtype),
        PRECISION=PRECISION,
    )
    strides = Strides(
        out=strides_in(config.OUT_UNIT, parts),
        lse=(0, 0, 0) if part_lse is None else part_lse.stride(),
        q=strides_in(config.UNIT, q),
        k=strides_in(config.UNIT, k),
        v=strides_in(config.UNIT, v),
        bias=strides_in(config.BIAS_UNIT, rule.bias),
    )
    launch(
        attention_kernel,
        (programs, splits),
        q.device,
        parts,
        part_lse,
        q,
        k,
        v,
        rule.bias,
        low_offsets,
        None if rule.dropout is None else rule.dropout.arguments(),
        None if sequences is None else sequences[:2],
        Sizes(H, M, N, group),
        strides,
        Splits(B * H * M * E, B * H * M, share),
        lse_rows,
        Scoring(in_base_of(q, rule.scale), rule.diagonal or 0, empty_lse),
        constants(config),
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )
    if splits > 1:
        _join_splits(out, lse, parts, part_lse, splits, rule.empty_lse)


def rows_in_parts(x: torch.Tensor, block: int) -> Parts:
    """Both parts of rows (B, H, rows, columns), with zeros up to whole tiles of so many rows."""
    return parts_of(x, None, max(block, ROWS), block_of(x.shape[3]))


def transposed_in_parts(x: torch.Tensor, block: int) -> Parts:
    """As :func:`rows_in_parts`, transposed: (B, H, columns, rows)."""
    return parts_of(x.mT, None, max(block_of(x.shape[3]), ROWS), block)


def _join_splits(
    out: torch.Tensor,
    lse: torch.Tensor | None,
    parts: torch.Tensor,
    part_lse: torch.Tensor | None,
    splits: int,
    empty_lse: float,
) -> None:
    B, H, M, E = out.shape
    unit = unit_of(out)
    columns = min(block_of(E), 128)
    launch(
        join_splits_kernel,
        (B * H * M, triton.cdiv(E, columns)),
        out.device,
        out,
        lse,
        parts,
        part_lse,
        H,
        M,
        splits,
        strides_in(unit, out),
        (0, 0, 0) if lse is None else lse.stride(),
        empty_lse,
        OUT_UNIT=unit,
        E=E,
        BLOCK_S=triton.next_power_of_2(splits),
        BLOCK_E=columns,
    )


def _splits(programs: int, blocks: int, device: torch.device) -> int:
    """How many programs share the keys of a block of queries: two for a multiprocessor, of two blocks at least."""
    if INTERPRETED or programs * 2 > multiprocessors(device):
        return 1
    return max(min(multiprocessors(device) * 2 // programs, blocks // 2, 64), 1)


def chosen(
    family: Family[AttentionTile], by_rule: AttentionTile, q: torch.Tensor, v: torch.Tensor, rule: ScoreRule
) -> AttentionTile:
    """What was measured to be fastest for heads of queries (B, H, M, D) and of values (.., N, E), else ``by_rule``."""
    (B, H, M, D), (N, E) = q.shape, v.shape[2:]
    kind = str(q.dtype).removeprefix("torch."), int(rule.diagonal is not None), int(rule.bias is not None)
    work: Work = (*kind, block_of(D), block_of(E), *map(size_class, (B * H, M, N)))
    return family.choice(work, by_rule, q.device)


def _candidates(work: Work) -> list[AttentionTile]:
    """Tiles of about the size of the rule's, and those of keys that are split beforehand."""
    dtype, block_d, block_e, heads, M, N = work[0], *map(int, work[3:])
    columns = max(block_d, block_e)
    if columns > 256:
        return []
    itemsize = 4 if dtype == "float32" else 2
    tiles = []
    for m, n, warps, stages in itertools.product((64, 128), (32, 64, 128), (4, 8), (2, 3)):
        shared = (m * columns + stages * n * (block_d + block_e)) * itemsize
        registers = m * (columns + n) / (32 * warps)
        if m < 2 * M and n < 2 * N and shared <= SHARED_BYTES and registers <= ACCUMULATOR_REGISTERS:
            tiles.append(AttentionTile(m, n, warps, stages))
    if itemsize == 4 and may_be_split(heads, M, heads * N * (block_d + block_e)):
        tiles += BEFOREHAND.get(columns, ())
    return tiles


def may_be_split(heads: int, rows: int, numbers: int) -> bool:
    """Whether parts of so many numbers are read by enough rows, and fit the memory budget."""
    return rows >= FEWEST_ROWS_TO_SPLIT and heads <= MOST_MATRICES and parts_fit(numbers)


def splitting_pays(q: torch.Tensor, v: torch.Tensor, numbers: int) -> bool:
    """Whether so many numbers are split beforehand where nothing was measured for such queries and values.

    From the smallest work on that was measured: 1.6 to 3.6 times as fast on an H200 then
    (benchmarks/results/kernels/h200/float32-attention and float32-attention-gradients).
    """
    (B, H, M, D), (N, E) = q.shape, v.shape[2:]
    if INTERPRETED or q.dtype != torch.float32 or min(M, N) < FEWEST_ROWS_TO_SPLIT:
        return False
    columns = max(block_of(D), block_of(E))
    return B * H * M * N * columns >= FEWEST_PRODUCTS_TO_SPLIT and may_be_split(B * H, M, numbers)


#: Rows that read each part, and products of a query's and a key's numbers, from which on splitting was measured to pay.
FEWEST_ROWS_TO_SPLIT = 128
FEWEST_PRODUCTS_TO_SPLIT = 1 << 28
#: For keys that are split beforehand, a stage of which has both parts of keys and values; by columns of a head, the
#: fastest first. Larger heads have more columns than there are registers for.
_NARROW = (AttentionTile(64, 32, 4, 2, 1), AttentionTile(128, 32, 8, 3, 1))
_WIDE = (AttentionTile(128, 16, 8, 3, 1), AttentionTile(128, 16, 8, 2, 1))
BEFOREHAND = {16: _NARROW, 32: _NARROW, 64: _NARROW, 128: _WIDE}
HEADS = Family("attention", AttentionTile, _candidates)


def _forward_tile(heads: int, M: int, N: int, columns: int, dtype: torch.dtype, *, causal: bool) -> AttentionTile:
    """The tile for heads of so many columns: accumulators of 128 x 128 elements fill half the registers of 8 warps."""
    if INTERPRETED:
        return AttentionTile(64, 64, 4, 1)
    if dtype == torch.float32:
        tile = (
            AttentionTile(64, 32, 8, 2)
            if columns <= 64
            else AttentionTile(32, 32, 8, 2)
            if columns <= 128
            else AttentionTile(32, 16, 8, 1)
        )
    elif columns <= 128:
        # Two programs or three on a multiprocessor: one multiplies while another takes exponentials
        # (benchmarks/results/h200/attention-tiles.txt).
        tile = AttentionTile(128, 64, 8, 3) if columns <= 64 and not causal else AttentionTile(64, 64, 4, 3)
    elif columns <= 256:
        tile = AttentionTile(128, 64, 8, 2)
    else:
        tile = AttentionTile(64, 32, 8, 2)
    if tile.m == 128 and heads * triton.cdiv(M, 128) < 132:
        # One program for each multiprocessor, at the price of loading keys twice as often.
        tile = tile._replace(m=64, warps=4 if columns <= 128 else 8)
    if tile.m // 2 >= M:
        tile = tile._replace(m=max(triton.next_power_of_2(M), 16), warps=4)
    return tile._replace(n=min(tile.n, max(triton.next_power_of_2(N), 16)))
