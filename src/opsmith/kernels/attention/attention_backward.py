"""Attention backward: FlashAttention-2 (Dao, 2023) without atomics; weights are computed again from scores and lse.

With ``p[m, n] = exp(scale * q[m] . k[n] + bias[m, n] - lse[m])`` and ``delta[m] = out[m] . grad[m]``:

- ``ds[m, n] = p[m, n] * (grad[m] . v[n] - delta[m])``, which is the gradient of the bias;
- ``dq[m] = scale * sum over n of ds[m, n] k[n]``;
- ``dk[n] = scale * sum over m of ds[m, n] q[m]`` and ``dv[n] = sum over m of p[m, n] grad[m]``.

The sums run along two dimensions, so there are two launches, each of which walks along the other one's tiles::

    query_gradients_kernel                         key_gradients_kernel
    owns BLOCK_M queries                           owns BLOCK_N keys

                   keys ->                                    k, v
             k, v    k, v    k, v                           +-------+
            +-------+-------+-------+              q, grad  | p, ds |   queries
    q, grad | p, ds |       |       |                       +-------+     |
            +-------+-------+-------+              q, grad  |       |     v
                |                                           +-------+
                v                                               |
            dq_MD += ds k,  dbias = ds                          v
            delta_M = out . grad, once              dk_ND += ds^T q,  dv_NE += p^T grad

Seven products of tiles are taken, two of them twice, where FlashAttention-2 takes five and adds dq up in memory by
atomics. Here nothing is, so the results are the same in every run. The heads of queries that share a head of keys are
walked one after the other by the program that owns the keys.

- The scale goes into ds before that becomes float16, whose largest number is 65504, where it makes it smaller: in
  ``p * (scale * dp - scale * delta)`` it costs no instruction. The gradient of the bias has none.
- A dropout makes ``p z`` of the p in dv and ``z * (grad . v)`` of the product in ds, with z what it left of 1.
- Operands of float32 may be split into TF32 numbers beforehand (3xTF32), as in :mod:`attention_forward`: what a loop
  reads, both as it lies and, for the products that sum over its rows, transposed.

Suffixes as in :mod:`attention_forward`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import converted
from ..common.launch import INTERPRETED, constants, launch, loop_bound, pdl_prologue
from ..common.tuning import Family, Work
from ..matmul.matmul import multiply_type
from ..matmul.product_tiles import dot_tf32x3, parts_of_one_sign, product_along_rows
from .attention_forward import (
    PRECISION,
    AttentionTile,
    ScoreRule,
    Sizes,
    bias_offsets,
    block_of,
    chosen,
    dropped,
    head_of,
    in_base,
    in_base_of,
    is_base_2,
    load_parts,
    load_rows,
    may_be_split,
    offsets_type,
    power,
    rows_in_parts,
    scores,
    splitting_pays,
    store_rows,
    strides_in,
    transposed_in_parts,
    unit_of,
)

# ---------------------------------------------------------------- arguments of the kernels


class QueryStrides(NamedTuple):
    """Of batch, heads, rows and columns of what :func:`query_gradients_kernel` reads and writes; lse has no columns."""

    dq: tuple[int, ...]
    dbias: tuple[int, ...]
    grad: tuple[int, ...]
    out: tuple[int, ...]
    lse: tuple[int, ...]
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    transposed_k: tuple[int, ...]
    bias: tuple[int, ...]


class KeyStrides(NamedTuple):
    """As :class:`QueryStrides`, of :func:`key_gradients_kernel`."""

    dk: tuple[int, ...]
    dv: tuple[int, ...]
    grad: tuple[int, ...]
    lse: tuple[int, ...]
    q: tuple[int, ...]
    k: tuple[int, ...]
    v: tuple[int, ...]
    transposed_q: tuple[int, ...]
    transposed_grad: tuple[int, ...]
    bias: tuple[int, ...]


class Scales(NamedTuple):
    """Factors of q k^T, of ds and of the sums over ds; a query sees the keys up to its number plus ``diagonal``."""

    scores: float
    ds: float
    sums: float
    diagonal: int


class Config(NamedTuple):
    """What both kernels are compiled for.

    Attributes:
        UNIT: elements that strides are counted in, so that the compiler knows how rows are aligned.
        GRAD_UNIT: of the result's gradient.
        BIAS_UNIT: of the bias.
        D: columns of q and k.
        E: columns of v and of the result's gradient.
        BLOCK_D: D as a power of two, 16 at least.
        BLOCK_E: E likewise.
        CAUSAL: not all keys are visible to all queries.
        BASE_2: scores are logarithms to base 2.
        INDEX: the type of offsets within a head.
        MULTIPLY: the type that tiles are multiplied in.
        PRECISION: of products of float32.
    """

    UNIT: int
    GRAD_UNIT: int
    BIAS_UNIT: int
    D: int
    E: int
    BLOCK_D: int
    BLOCK_E: int
    CAUSAL: bool
    BASE_2: bool
    INDEX: Any
    MULTIPLY: Any
    PRECISION: str


# ---------------------------------------------------------------- the kernels


@triton.jit
def query_gradients(
    dq_MD: tl.tensor,
    queries: tl.tuple,
    lse_M: tl.tensor,
    delta_M: tl.tensor,
    keys: tl.tuple,
    bias_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    head: tl.tensor,
    m: tl.tensor,
    end: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    strides: tl.tuple,
    scales: tl.tuple,
    CONFIG: tl.tuple,
    MASKED: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> tl.tensor:
    """``dq`` of a block of queries, before its last factor, and the gradient of the bias.

    ``queries`` are tiles of q and of the result's gradient, and their low parts or None; ``keys`` is where the head
    begins in k, v and transposed k.

    One loop, masked as a whole: of two, ptxas makes the first wait for each of its products. As one it takes 66.3 us
    instead of 73.4 on an H200 (8 x 12 heads of 1024 x 64, causal: benchmarks/results/h200/attention-tiles.txt).
    """
    q_MD, grad_ME, q_low_MD, grad_low_ME = queries
    k_ptr, v_ptr, transposed_k_ptr = keys
    UNIT: tl.constexpr = CONFIG.UNIT
    BLOCK_D: tl.constexpr = CONFIG.BLOCK_D
    BLOCK_E: tl.constexpr = CONFIG.BLOCK_E
    INDEX: tl.constexpr = CONFIG.INDEX
    MULTIPLY: tl.constexpr = CONFIG.MULTIPLY
    PRECISION: tl.constexpr = CONFIG.PRECISION
    scaled_delta_M = delta_M * scales.ds
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if low_offsets is not None:
            k_ND, k_low_ND = load_parts(k_ptr, low_offsets[0], n, strides.k, UNIT, BLOCK_D, INDEX)
            v_NE, v_low_NE = load_parts(v_ptr, low_offsets[1], n, strides.v, UNIT, BLOCK_E, INDEX)
            qk_MN = dot_tf32x3(q_MD, q_low_MD, tl.trans(k_ND), tl.trans(k_low_ND))
            dp_MN = dot_tf32x3(grad_ME, grad_low_ME, tl.trans(v_NE), tl.trans(v_low_NE))
        else:
            k_ND = load_rows(k_ptr, n, N, strides.k, UNIT, CONFIG.D, BLOCK_D, MASKED, INDEX)
            v_NE = load_rows(v_ptr, n, N, strides.v, UNIT, CONFIG.E, BLOCK_E, MASKED, INDEX).to(MULTIPLY)
            qk_MN = product_along_rows(q_MD, k_ND.to(MULTIPLY), PRECISION)
            dp_MN = product_along_rows(grad_ME, v_NE, PRECISION)
        s_MN = scores(qk_MN, bias_ptr, m, n, M, N, strides.bias, scales.scores, scales.diagonal, CONFIG, MASKED)
        p_MN = power(s_MN - lse_M[:, None], CONFIG.BASE_2)
        if dropout is not None:
            dp_MN = dropped(dp_MN, head, m[:, None], n[None, :], M, N, dropout)
        ds_MN = p_MN * (dp_MN * scales.ds - scaled_delta_M[:, None])
        if dbias_ptr is not None:
            at_MN = dbias_ptr + bias_offsets(m, n, M, strides.dbias, 1, INDEX)
            dbias_MN = p_MN * (dp_MN - delta_M[:, None])
            tl.store(at_MN, converted(dbias_MN, dbias_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
        if low_offsets is not None:
            d = tl.arange(0, BLOCK_D)
            k_ptr_N = transposed_k_ptr + start
            k_DN, k_low_DN = load_parts(k_ptr_N, low_offsets[2], d, strides.transposed_k, UNIT, BLOCK_N, INDEX)
            ds_MN, ds_low_MN = parts_of_one_sign(ds_MN)
            dq_MD += dot_tf32x3(ds_MN, ds_low_MN, tl.trans(k_DN), tl.trans(k_low_DN))
        else:
            ds_MN = converted(ds_MN, k_ND.dtype).to(MULTIPLY)
            dq_MD = tl.dot(ds_MN, k_ND.to(MULTIPLY), dq_MD, input_precision=PRECISION)
    return dq_MD


@triton.jit
def query_gradients_kernel(
    dq_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    delta_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    transposed_k_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    sizes: tl.tuple,
    strides: tl.tuple,
    scales: tl.tuple,
    CONFIG: tl.tuple,
    EVEN_N: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """``dq``, the gradient of the bias and ``delta``, of BLOCK_M queries of one head.

    Where k, v and a transposed copy of k were split beforehand, ``low_offsets`` says how far the low parts of each lie
    behind the high ones; else it and the copy are None. Shapes are those of :class:`AttentionCall` and
    :class:`Gradients`; the bias may be None, too. EVEN_N: BLOCK_N divides N.
    """
    pdl_prologue()
    H, M, N, group = sizes
    UNIT: tl.constexpr = CONFIG.UNIT
    INDEX: tl.constexpr = CONFIG.INDEX
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    if CONFIG.CAUSAL:
        block = blocks - 1 - block  # The last queries see most keys: they start first.
    b, h = head // H, head % H
    first_M = block * BLOCK_M
    m = first_M + tl.arange(0, BLOCK_M)
    q_ptr = head_of(q_ptr, b, h, strides.q, UNIT)
    grad_ptr = head_of(grad_ptr, b, h, strides.grad, CONFIG.GRAD_UNIT)
    out_ptr = head_of(out_ptr, b, h, strides.out, UNIT)
    k_ptr = head_of(k_ptr, b, h // group, strides.k, UNIT)
    v_ptr = head_of(v_ptr, b, h // group, strides.v, UNIT)
    if low_offsets is not None:
        transposed_k_ptr = head_of(transposed_k_ptr, b, h // group, strides.transposed_k, UNIT)
    if bias_ptr is not None:
        bias_ptr = head_of(bias_ptr, b, h, strides.bias, CONFIG.BIAS_UNIT)
    if dbias_ptr is not None:
        dbias_ptr = head_of(dbias_ptr, b, h, strides.dbias, 1)

    q_MD = load_rows(q_ptr, m, M, strides.q, UNIT, CONFIG.D, CONFIG.BLOCK_D, True, INDEX).to(CONFIG.MULTIPLY)
    grad_ME = load_rows(grad_ptr, m, M, strides.grad, CONFIG.GRAD_UNIT, CONFIG.E, CONFIG.BLOCK_E, True, INDEX)
    out_ME = load_rows(out_ptr, m, M, strides.out, UNIT, CONFIG.E, CONFIG.BLOCK_E, True, INDEX)
    delta_M = tl.sum(grad_ME.to(tl.float32) * out_ME.to(tl.float32), axis=1)
    tl.store(delta_ptr + head.to(tl.int64) * M + m, delta_M, mask=m < M)
    lse_ptr = head_of(lse_ptr, b, h, strides.lse, 1)
    lse_M = in_base(tl.load(lse_ptr + m.to(INDEX) * strides.lse[2], mask=m < M, other=float("inf")), CONFIG.BASE_2)
    end = N
    if CONFIG.CAUSAL and dbias_ptr is None:
        end = tl.minimum(end, first_M + scales.diagonal + BLOCK_M)
    dq_MD = tl.zeros([BLOCK_M, CONFIG.BLOCK_D], tl.float32)
    if low_offsets is not None:
        q_MD, q_low_MD = parts_of_one_sign(q_MD)
        grad_ME, grad_low_ME = parts_of_one_sign(grad_ME)
    else:
        grad_ME = grad_ME.to(CONFIG.MULTIPLY)
        q_low_MD, grad_low_ME = None, None
    dq_MD = query_gradients(
        dq_MD, (q_MD, grad_ME, q_low_MD, grad_low_ME), lse_M, delta_M, (k_ptr, v_ptr, transposed_k_ptr), bias_ptr,
        dbias_ptr, low_offsets, dropout, head, m, end, M, N, strides, scales, CONFIG, CONFIG.CAUSAL or not EVEN_N,
        BLOCK_N,
    )  # fmt: skip
    dq_ptr = head_of(dq_ptr, b, h, strides.dq, UNIT)
    store_rows(dq_ptr, m, M, dq_MD * scales.sums, strides.dq, UNIT, CONFIG.D, CONFIG.BLOCK_D, INDEX)


@triton.jit
def key_gradients(
    dk_ND: tl.tensor,
    dv_NE: tl.tensor,
    keys: tl.tuple,
    queries: tl.tuple,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    head: tl.tensor,
    n: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    strides: tl.tuple,
    scales: tl.tuple,
    CONFIG: tl.tuple,
    EVEN_M: tl.constexpr,
    MASKED: tl.constexpr,
    BLOCK_M: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Add the terms of the queries from ``first`` to ``end`` of one head to dk and dv.

    Args:
        dk_ND: sums so far.
        dv_NE: sums so far.
        keys: tiles of k and v, and their low parts or None.
        queries: where the head begins in q, the result's gradient, transposed q and gradient, lse, delta and the bias.
        low_offsets: as for :func:`key_gradients_kernel`.
        dropout: as for :func:`dropped`.
        head: number of the head of queries.
        n: keys; those beyond the last one get sums of their own, which are not written.
        first: of the queries.
        end: of the queries.
        M: queries of a head.
        N: keys of a head.
        strides: see :class:`KeyStrides`.
        scales: see :class:`Scales`.
        CONFIG: see :class:`Config`.
        EVEN_M: BLOCK_M divides M.
        MASKED: some of these queries do not see some of the keys.
        BLOCK_M: queries of a step.
    """
    k_ND, v_NE, k_low_ND, v_low_NE = keys
    q_ptr, grad_ptr, transposed_q_ptr, transposed_grad_ptr, lse_ptr, delta_ptr, bias_ptr = queries
    UNIT: tl.constexpr = CONFIG.UNIT
    GRAD_UNIT: tl.constexpr = CONFIG.GRAD_UNIT
    BLOCK_D: tl.constexpr = CONFIG.BLOCK_D
    BLOCK_E: tl.constexpr = CONFIG.BLOCK_E
    INDEX: tl.constexpr = CONFIG.INDEX
    MULTIPLY: tl.constexpr = CONFIG.MULTIPLY
    PRECISION: tl.constexpr = CONFIG.PRECISION
    for start in range(first, end, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        if low_offsets is not None:
            q_MD, q_low_MD = load_parts(q_ptr, low_offsets[0], m, strides.q, UNIT, BLOCK_D, INDEX)
            grad_ME, grad_low_ME = load_parts(grad_ptr, low_offsets[1], m, strides.grad, GRAD_UNIT, BLOCK_E, INDEX)
            qk_NM = dot_tf32x3(k_ND, k_low_ND, tl.trans(q_MD), tl.trans(q_low_MD))
            dp_NM = dot_tf32x3(v_NE, v_low_NE, tl.trans(grad_ME), tl.trans(grad_low_ME))
        else:
            q_MD = load_rows(q_ptr, m, M, strides.q, UNIT, CONFIG.D, BLOCK_D, not EVEN_M, INDEX)
            grad_ME = load_rows(grad_ptr, m, M, strides.grad, GRAD_UNIT, CONFIG.E, BLOCK_E, not EVEN_M, INDEX)
            grad_ME = grad_ME.to(MULTIPLY)
            qk_NM = product_along_rows(k_ND, q_MD.to(MULTIPLY), PRECISION)
            dp_NM = product_along_rows(v_NE, grad_ME, PRECISION)
        # Queries beyond the last one have no weights.
        lse_M = in_base(tl.load(lse_ptr + m.to(INDEX) * strides.lse[2], mask=m < M, other=float("inf")), CONFIG.BASE_2)
        delta_M = tl.load(delta_ptr + m, mask=m < M, other=0)
        s_NM = qk_NM * scales.scores
        if bias_ptr is not None:
            at_NM = bias_ptr + tl.trans(bias_offsets(m, n, M, strides.bias, CONFIG.BIAS_UNIT, INDEX))
            s_NM += in_base(tl.load(at_NM, mask=(n < N)[:, None], other=0).to(tl.float32), CONFIG.BASE_2)
        if MASKED:
            s_NM = tl.where(n[:, None] <= m[None, :] + scales.diagonal, s_NM, float("-inf"))
        p_NM = power(s_NM - lse_M[None, :], CONFIG.BASE_2)
        kept_p_NM = p_NM
        if dropout is not None:
            kept_p_NM = dropped(p_NM, head, m[None, :], n[:, None], M, N, dropout)
            dp_NM = dropped(dp_NM, head, m[None, :], n[:, None], M, N, dropout)
        ds_NM = p_NM * (dp_NM * scales.ds - (delta_M * scales.ds)[None, :])
        if low_offsets is not None:
            d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
            grad_ptr_M, q_ptr_M = transposed_grad_ptr + start, transposed_q_ptr + start
            grad_strides, q_strides = strides.transposed_grad, strides.transposed_q
            grad_EM, grad_low_EM = load_parts(grad_ptr_M, low_offsets[3], e, grad_strides, UNIT, BLOCK_M, INDEX)
            kept_p_NM, kept_p_low_NM = parts_of_one_sign(kept_p_NM)
            dv_NE += dot_tf32x3(kept_p_NM, kept_p_low_NM, tl.trans(grad_EM), tl.trans(grad_low_EM))
            q_DM, q_low_DM = load_parts(q_ptr_M, low_offsets[2], d, q_strides, UNIT, BLOCK_M, INDEX)
            ds_NM, ds_low_NM = parts_of_one_sign(ds_NM)
            dk_ND += dot_tf32x3(ds_NM, ds_low_NM, tl.trans(q_DM), tl.trans(q_low_DM))
        else:
            dv_NE = tl.dot(converted(kept_p_NM, q_MD.dtype).to(MULTIPLY), grad_ME, dv_NE, input_precision=PRECISION)
            ds_NM = converted(ds_NM, q_MD.dtype).to(MULTIPLY)
            dk_ND = tl.dot(ds_NM, q_MD.to(MULTIPLY), dk_ND, input_precision=PRECISION)
    return dk_ND, dv_NE


@triton.jit
def key_gradients_kernel(
    dk_ptr: tl.tensor,
    dv_ptr: tl.tensor,
    delta_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    q_ptr: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    transposed_q_ptr: tl.tensor,
    transposed_grad_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    low_offsets: tl.tuple,
    dropout: tl.tuple,
    sizes: tl.tuple,
    strides: tl.tuple,
    scales: tl.tuple,
    CONFIG: tl.tuple,
    EVEN_M: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
) -> None:
    """``dk`` and ``dv`` of BLOCK_N keys of one head; ``sizes.H`` is the number of heads of keys.

    Where q, the result's gradient and transposed copies of both were split beforehand, ``low_offsets`` says how far the
    low parts of each lie behind the high ones; else it and the copies are None. Shapes as for :class:`AttentionCall`,
    ``bias`` may be None. EVEN_M: BLOCK_M divides M.
    """
    pdl_prologue()
    H, M, N, group = sizes
    UNIT: tl.constexpr = CONFIG.UNIT
    BLOCK_D: tl.constexpr = CONFIG.BLOCK_D
    BLOCK_E: tl.constexpr = CONFIG.BLOCK_E
    INDEX: tl.constexpr = CONFIG.INDEX
    blocks = tl.cdiv(N, BLOCK_N)
    block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    b, h = head // H, head % H
    first_N = block * BLOCK_N
    n = first_N + tl.arange(0, BLOCK_N)
    k_ptr, v_ptr = head_of(k_ptr, b, h, strides.k, UNIT), head_of(v_ptr, b, h, strides.v, UNIT)
    k_ND = load_rows(k_ptr, n, N, strides.k, UNIT, CONFIG.D, BLOCK_D, True, INDEX).to(CONFIG.MULTIPLY)
    v_NE = load_rows(v_ptr, n, N, strides.v, UNIT, CONFIG.E, BLOCK_E, True, INDEX).to(CONFIG.MULTIPLY)
    if low_offsets is not None:
        k_ND, k_low_ND = parts_of_one_sign(k_ND)
        v_NE, v_low_NE = parts_of_one_sign(v_NE)
    else:
        k_low_ND, v_low_NE = None, None
    keys = k_ND, v_NE, k_low_ND, v_low_NE
    dk_ND = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_NE = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    first, full = 0, 0
    if CONFIG.CAUSAL:
        # From the first query that sees the first key to the first one that sees them all.
        first = tl.maximum(first_N - scales.diagonal, 0) // BLOCK_M * BLOCK_M
        last_visible = first_N + BLOCK_N - 1 - scales.diagonal
        full = tl.minimum(first + tl.cdiv(tl.maximum(last_visible - first, 0), BLOCK_M) * BLOCK_M, M)
    for member in range(group):
        q_head = h * group + member
        q_head_ptr = head_of(q_ptr, b, q_head, strides.q, UNIT)
        grad_head_ptr = head_of(grad_ptr, b, q_head, strides.grad, CONFIG.GRAD_UNIT)
        lse_head_ptr = head_of(lse_ptr, b, q_head, strides.lse, 1)
        delta_head_ptr = delta_ptr + (b * H * group + q_head).to(tl.int64) * M
        bias_head_ptr, tq_head_ptr, tgrad_head_ptr = bias_ptr, transposed_q_ptr, transposed_grad_ptr
        if bias_ptr is not None:
            bias_head_ptr = head_of(bias_ptr, b, q_head, strides.bias, CONFIG.BIAS_UNIT)
        if low_offsets is not None:
            tq_head_ptr = head_of(transposed_q_ptr, b, q_head, strides.transposed_q, UNIT)
            tgrad_head_ptr = head_of(transposed_grad_ptr, b, q_head, strides.transposed_grad, UNIT)
        queries = q_head_ptr, grad_head_ptr, tq_head_ptr, tgrad_head_ptr, lse_head_ptr, delta_head_ptr, bias_head_ptr
        if CONFIG.CAUSAL:
            dk_ND, dv_NE = key_gradients(
                dk_ND, dv_NE, keys, queries, low_offsets, dropout, head, n, first, full, M, N, strides, scales, CONFIG,
                EVEN_M, True, BLOCK_M,
            )  # fmt: skip
        dk_ND, dv_NE = key_gradients(
            dk_ND, dv_NE, keys, queries, low_offsets, dropout, head, n, full, M, M, N, strides, scales, CONFIG, EVEN_M,
            False, BLOCK_M,
        )  # fmt: skip
    dk_ptr = head_of(dk_ptr, b, h, strides.dk, UNIT)
    store_rows(dk_ptr, n, N, dk_ND * scales.sums, strides.dk, UNIT, CONFIG.D, BLOCK_D, INDEX)
    dv_ptr = head_of(dv_ptr, b, h, strides.dv, UNIT)
    store_rows(dv_ptr, n, N, dv_NE, strides.dv, UNIT, CONFIG.E, BLOCK_E, INDEX)


# ---------------------------------------------------------------- the host side


class AttentionCall(NamedTuple):
    """What the forward call got and returned, and the gradient of its result; all of shape (B, H, rows, columns).

    ``lse`` is of shape (B, H, M) or has more rows.
    """

    grad: torch.Tensor
    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    out: torch.Tensor
    lse: torch.Tensor


class Gradients(NamedTuple):
    """Where gradients are written; ``bias`` may be absent, and is of shape (B, H, M, N)."""

    q: torch.Tensor
    k: torch.Tensor
    v: torch.Tensor
    bias: torch.Tensor | None = None


def attention_gradients(into: Gradients, call: AttentionCall, rule: ScoreRule) -> None:
    """Fill ``into``."""
    delta = torch.empty(call.q.shape[:3], dtype=torch.float32, device=call.q.device)
    if call.q.numel():
        _fill_query_gradients(into, delta, call, rule)
    if call.k.numel():
        _fill_key_gradients(into, delta, call, rule)


def _fill_query_gradients(into: Gradients, delta: torch.Tensor, call: AttentionCall, rule: ScoreRule) -> None:
    """And ``delta``, which the gradients of keys need."""
    (B, H, M, _), (HK, N, _) = call.q.shape, call.v.shape[1:]
    by_rule = _beforehand(QUERIES_BEFOREHAND, call) or _query_tile(M, N, _columns(call), call.q.dtype)
    tile = chosen(QUERY_TILES, by_rule, call.q, call.v, rule)
    k, v, transposed_k, low_offsets = call.k, call.v, None, None
    if tile.beforehand and N:
        parts = rows_in_parts(k, tile.n), rows_in_parts(v, tile.n), transposed_in_parts(k, tile.n)
        k, v, transposed_k = (each.high(B) for each in parts)
        low_offsets = tuple(each.strides[0] for each in parts)
    config = _config(into, call, rule, k, v, transposed_k)
    strides = QueryStrides(
        dq=strides_in(config.UNIT, into.q),
        dbias=strides_in(1, into.bias),
        grad=strides_in(config.GRAD_UNIT, call.grad),
        out=strides_in(config.UNIT, call.out),
        lse=call.lse.stride(),
        q=strides_in(config.UNIT, call.q),
        k=strides_in(config.UNIT, k),
        v=strides_in(config.UNIT, v),
        transposed_k=strides_in(config.UNIT, transposed_k),
        bias=strides_in(config.BIAS_UNIT, rule.bias),
    )
    launch(
        query_gradients_kernel,
        (B * H * triton.cdiv(M, tile.m),),
        call.q.device,
        into.q,
        into.bias,
        delta,
        call.grad,
        call.out,
        call.lse,
        call.q,
        k,
        v,
        transposed_k,
        rule.bias,
        low_offsets,
        None if rule.dropout is None else rule.dropout.arguments(),
        Sizes(H, M, N, H // HK),
        strides,
        _scales(call, rule),
        constants(config),
        EVEN_N=N % tile.n == 0,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _fill_key_gradients(into: Gradients, delta: torch.Tensor, call: AttentionCall, rule: ScoreRule) -> None:
    (B, H, M, _), (HK, N, _) = call.q.shape, call.v.shape[1:]
    by_rule = _beforehand(KEYS_BEFOREHAND, call) or _key_tile(M, N, _columns(call), call.q.dtype)
    tile = chosen(KEY_TILES, by_rule, call.q, call.v, rule)
    q, grad, transposed_q, transposed_grad, low_offsets = call.q, call.grad, None, None, None
    if tile.beforehand and M:
        parts = [split_by(x, tile.m) for split_by in (rows_in_parts, transposed_in_parts) for x in (q, grad)]
        q, grad, transposed_q, transposed_grad = (each.high(B) for each in parts)
        low_offsets = tuple(each.strides[0] for each in parts)
    config = _config(into, call, rule, q, grad, transposed_q, transposed_grad)
    strides = KeyStrides(
        dk=strides_in(config.UNIT, into.k),
        dv=strides_in(config.UNIT, into.v),
        grad=strides_in(config.GRAD_UNIT, grad),
        lse=call.lse.stride(),
        q=strides_in(config.UNIT, q),
        k=strides_in(config.UNIT, call.k),
        v=strides_in(config.UNIT, call.v),
        transposed_q=strides_in(config.UNIT, transposed_q),
        transposed_grad=strides_in(config.UNIT, transposed_grad),
        bias=strides_in(config.BIAS_UNIT, rule.bias),
    )
    launch(
        key_gradients_kernel,
        (B * HK * triton.cdiv(N, tile.n),),
        call.q.device,
        into.k,
        into.v,
        delta,
        grad,
        call.lse,
        q,
        call.k,
        call.v,
        transposed_q,
        transposed_grad,
        rule.bias,
        low_offsets,
        None if rule.dropout is None else rule.dropout.arguments(),
        Sizes(HK, M, N, loop_bound(H // HK)),
        strides,
        _scales(call, rule),
        constants(config),
        EVEN_M=M % tile.m == 0,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _scales(call: AttentionCall, rule: ScoreRule) -> Scales:
    early = call.q.dtype == torch.float16 and abs(rule.scale) < 1
    factors = (rule.scale, 1.0) if early else (1.0, rule.scale)
    return Scales(in_base_of(call.q, rule.scale), *factors, rule.diagonal or 0)


def _config(into: Gradients, call: AttentionCall, rule: ScoreRule, *read: torch.Tensor | None) -> Config:
    """What both kernels are compiled for; ``read``: what their loops read."""
    D, E = call.q.shape[3], call.v.shape[3]
    return Config(
        UNIT=unit_of(*into[:3], *call[1:5]),
        GRAD_UNIT=unit_of(call.grad),
        BIAS_UNIT=1 if rule.bias is None else unit_of(rule.bias),
        D=D,
        E=E,
        BLOCK_D=block_of(D),
        BLOCK_E=block_of(E),
        CAUSAL=rule.diagonal is not None,
        BASE_2=is_base_2(call.q),
        INDEX=offsets_type(*into, *call[:5], rule.bias, *read),
        MULTIPLY=multiply_type(call.q.dtype),
        PRECISION=PRECISION,
    )


def _columns(call: AttentionCall) -> int:
    """Of a tile that holds any of the heads."""
    return max(block_of(call.q.shape[3]), block_of(call.v.shape[3]))


def _beforehand(tiles: tuple[AttentionTile, AttentionTile], call: AttentionCall) -> AttentionTile | None:
    """One of these, of operands that are split beforehand, where that pays."""
    B, H, M, D = call.q.shape
    N, E = call.v.shape[2:]
    numbers = _parts_numbers(B * H, M, N, block_of(D) + block_of(E))
    columns = _columns(call)
    if columns > WIDEST_IN_PARTS or not splitting_pays(call.q, call.v, numbers):
        return None
    in_one_stage, in_two = tiles
    return in_two if columns <= 32 else in_one_stage


def _candidates(work: Work, half: Sequence[AttentionTile], beforehand: Sequence[AttentionTile]) -> list[AttentionTile]:
    """Of half types, and of operands that are split beforehand."""
    dtype, block_d, block_e, heads, M, N = work[0], *map(int, work[3:])
    columns = max(block_d, block_e)
    if dtype in ("float16", "bfloat16") and columns <= WIDEST_WITH_CANDIDATES:
        return [tile for tile in half if tile.m < 2 * M and tile.n < 2 * N]
    if dtype != "float32" or columns > WIDEST_IN_PARTS:
        return []
    fits = may_be_split(heads, min(M, N), _parts_numbers(heads, M, N, block_d + block_e))
    return list(beforehand) if fits else []


def _parts_numbers(heads: int, M: int, N: int, columns: int) -> int:
    """Numbers that either launch reads as parts, of which it reads most twice."""
    return 2 * heads * max(M, N) * columns


#: Heads with more columns have no registers for two sums of parts.
WIDEST_IN_PARTS = 64
#: For operands that are split beforehand: of a program that owns queries, and of one that owns keys. A stage of the
#: latter holds four tiles in two parts each: two stages of 64 columns leave shared memory for one program alone.
QUERIES_BEFOREHAND = (AttentionTile(64, 32, 4, 1, 1), AttentionTile(64, 32, 4, 2, 1))
KEYS_BEFOREHAND = (AttentionTile(32, 64, 4, 1, 1), AttentionTile(32, 64, 4, 2, 1))
#: Of half types: the fastest five on an H200 for one or the other of heads of 64 and 128 columns
#: (benchmarks/results/h200/attention-tiles.txt).
WIDEST_WITH_CANDIDATES = 128
HALF_QUERIES = (
    AttentionTile(64, 64, 4, 1),
    AttentionTile(64, 64, 4, 2),
    AttentionTile(64, 128, 4, 2),
    AttentionTile(128, 64, 8, 3),
    AttentionTile(128, 128, 8, 2),
)
HALF_KEYS = (
    AttentionTile(32, 64, 4, 2),
    AttentionTile(64, 64, 4, 1),
    AttentionTile(64, 64, 4, 2),
    AttentionTile(64, 128, 8, 2),
    AttentionTile(64, 128, 8, 3),
)
QUERY_TILES = Family(
    "gradients of queries", AttentionTile, partial(_candidates, half=HALF_QUERIES, beforehand=QUERIES_BEFOREHAND)
)
KEY_TILES = Family("gradients of keys", AttentionTile, partial(_candidates, half=HALF_KEYS, beforehand=KEYS_BEFOREHAND))


def _query_tile(M: int, N: int, columns: int, dtype: torch.dtype) -> AttentionTile:
    """The tile of a program that owns queries: it holds a block of q, of the gradient and of dq."""
    if INTERPRETED:
        return AttentionTile(64, 64, 4, 1)
    if dtype == torch.float32:
        tile = (
            AttentionTile(32, 32, 8, 1)
            if columns <= 64
            else AttentionTile(32, 16, 8, 1)
            if columns <= 128
            else AttentionTile(16, 16, 8, 1)
        )
    elif columns <= 128:
        tile = AttentionTile(64, 64, 4, 2) if columns <= 64 else AttentionTile(128, 64, 8, 3)
    else:
        tile = AttentionTile(64, 32, 8, 2) if columns <= 256 else AttentionTile(32, 32, 8, 1)
    return _cut(tile, M, N)


def _key_tile(M: int, N: int, columns: int, dtype: torch.dtype) -> AttentionTile:
    """The tile of a program that owns keys: it holds a block of k, v, dk and dv."""
    if INTERPRETED:
        return AttentionTile(64, 64, 4, 1)
    if dtype == torch.float32:
        tile = (
            AttentionTile(32, 32, 8, 1)
            if columns <= 64
            else AttentionTile(32, 16, 8, 1)
            if columns <= 128
            else AttentionTile(16, 16, 8, 1)
        )
    elif columns <= 128:
        tile = AttentionTile(64, 64, 4, 2)
    else:
        tile = AttentionTile(32, 64, 8, 2) if columns <= 256 else AttentionTile(32, 32, 8, 1)
    return _cut(tile, M, N)


def _cut(tile: AttentionTile, M: int, N: int) -> AttentionTile:
    """No larger than the problem is, and with half the warps for a quarter of the tile."""
    m, n = (max(triton.next_power_of_2(size), 16) for size in (M, N))
    m, n = min(tile.m, m), min(tile.n, n)
    return tile._replace(m=m, n=n, warps=4 if 4 * m * n <= tile.m * tile.n else tile.warps)
