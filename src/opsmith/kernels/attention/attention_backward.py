"""Gradients of attention: weights are computed again, from scores and from the logarithms that were kept of their sums.

With ``p[m, n] = exp(scale * q[m] . k[n] + bias[m, n] - lse[m])`` and ``delta[m] = out[m] . grad[m]``:

- ``ds[m, n] = p[m, n] * (grad[m] . v[n] - delta[m])``, which is the gradient of the bias;
- ``dq[m] = scale * sum over n of ds[m, n] k[n]``;
- ``dk[n] = scale * sum over m of ds[m, n] q[m]`` and ``dv[n] = sum over m of p[m, n] grad[m]``.

The scale goes into ds before that becomes float16, whose largest number is 65504, where it makes it smaller: in
``p * (scale * dp - scale * delta)`` it costs no instruction. The gradient of the bias has none.

A dropout makes ``p z`` of the p in dv and ``z * (grad . v)`` of the product in ds, with z what it left of 1.

The sums run along two dimensions, so there are two launches: a program that owns queries walks along keys, and one that
owns keys along queries, those of all heads that share the keys. Nothing is added up in memory, which makes the
results the same in every run. Seven products of blocks are taken, two of them twice.

Operands of float32 may be split into TF32 numbers beforehand, as in :mod:`attention_forward`: what a loop reads, both
as it lies and, for the products that sum over its rows, turned.

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
from ..common.launch import INTERPRETED, await_earlier_kernels, launch, loop_bound
from ..common.tuning import Family, Work
from ..matmul.matmul import multiply_type
from ..matmul.product_tiles import parts_of_one_sign, product_along_rows, product_of_parts
from .attention_forward import (
    PRECISION,
    Rule,
    Tile,
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
    turned_in_parts,
    unit_of,
)

# ---------------------------------------------------------------- the kernels


@triton.jit
def query_gradients(
    dq_MD: tl.tensor,
    q_MD: tl.tensor,
    grad_ME: tl.tensor,
    lse_M: tl.tensor,
    delta_M: tl.tensor,
    q_low_MD: tl.tensor,
    grad_low_ME: tl.tensor,
    k_ptr: tl.tensor,
    v_ptr: tl.tensor,
    turned_k_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    dbias_ptr: tl.tensor,
    parts: tl.tuple,
    dropout: tl.tuple,
    head: tl.tensor,
    m: tl.tensor,
    end: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    k_strides: tl.tuple,
    v_strides: tl.tuple,
    turned_k_strides: tl.tuple,
    bias_strides: tl.tuple,
    dbias_strides: tl.tuple,
    scale: tl.tensor,
    factor: tl.tensor,
    shift: tl.tensor,
    UNIT: tl.constexpr,
    BIAS_UNIT: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    MASKED: tl.constexpr,
    BASE_2: tl.constexpr,
    INDEX: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
) -> tl.tensor:
    """Add the terms of the keys up to ``end``, times ``factor``. MASKED leaves out what a query does not see.

    ``parts`` says how many elements low parts lie behind high ones, of keys, values and turned keys, if they are split.
    """
    scaled_delta_M = delta_M * factor
    for start in range(0, end, BLOCK_N):
        n = start + tl.arange(0, BLOCK_N)
        if parts is not None:
            k_ND, k_low_ND = load_parts(k_ptr, parts[0], n, k_strides, UNIT, BLOCK_D, INDEX)
            v_NE, v_low_NE = load_parts(v_ptr, parts[1], n, v_strides, UNIT, BLOCK_E, INDEX)
            products_MN = product_of_parts(q_MD, q_low_MD, tl.trans(k_ND), tl.trans(k_low_ND))
            dp_MN = product_of_parts(grad_ME, grad_low_ME, tl.trans(v_NE), tl.trans(v_low_NE))
        else:
            k_ND = load_rows(k_ptr, n, N, k_strides, UNIT, D, BLOCK_D, MASKED, INDEX)
            v_NE = load_rows(v_ptr, n, N, v_strides, UNIT, E, BLOCK_E, MASKED, INDEX).to(MULTIPLY)
            products_MN = product_along_rows(q_MD, k_ND.to(MULTIPLY), PRECISION)
            dp_MN = product_along_rows(grad_ME, v_NE, PRECISION)
        s_MN = scores(
            products_MN, bias_ptr, m, n, M, N, bias_strides, scale, shift, BIAS_UNIT, CAUSAL, MASKED, BASE_2, INDEX
        )
        p_MN = power(s_MN - lse_M[:, None], BASE_2)
        if dropout is not None:
            dp_MN = dropped(dp_MN, head, m[:, None], n[None, :], M, N, dropout)
        ds_MN = p_MN * (dp_MN * factor - scaled_delta_M[:, None])
        if dbias_ptr is not None:
            at_MN = dbias_ptr + bias_offsets(m, n, M, dbias_strides, 1, INDEX)
            dbias_MN = p_MN * (dp_MN - delta_M[:, None])
            tl.store(at_MN, converted(dbias_MN, dbias_ptr.dtype.element_ty), mask=(m < M)[:, None] & (n < N)[None, :])
        if parts is not None:
            d = tl.arange(0, BLOCK_D)
            k_DN, k_low_DN = load_parts(turned_k_ptr + start, parts[2], d, turned_k_strides, UNIT, BLOCK_N, INDEX)
            ds_MN, ds_low_MN = parts_of_one_sign(ds_MN)
            dq_MD += product_of_parts(ds_MN, ds_low_MN, tl.trans(k_DN), tl.trans(k_low_DN))
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
    turned_k_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    parts: tl.tuple,
    dropout: tl.tuple,
    H: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    group: tl.tensor,
    dq_strides: tl.tuple,
    dbias_strides: tl.tuple,
    grad_strides: tl.tuple,
    out_strides: tl.tuple,
    lse_strides: tl.tuple,
    q_strides: tl.tuple,
    k_strides: tl.tuple,
    v_strides: tl.tuple,
    turned_k_strides: tl.tuple,
    bias_strides: tl.tuple,
    score_scale: tl.tensor,
    factor: tl.tensor,
    last_factor: tl.tensor,
    shift: tl.tensor,
    UNIT: tl.constexpr,
    GRAD_UNIT: tl.constexpr,
    BIAS_UNIT: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_N: tl.constexpr,
    BASE_2: tl.constexpr,
    INDEX: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
) -> None:
    """``dq``, the gradient of the bias and ``delta``, for a block of queries.

    ``parts``: see :func:`query_gradients`.
    """
    await_earlier_kernels()
    blocks = tl.cdiv(M, BLOCK_M)
    block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    if CAUSAL:
        block = blocks - 1 - block  # The last queries see most keys: they start first.
    b, h = head // H, head % H
    first_M = block * BLOCK_M
    m = first_M + tl.arange(0, BLOCK_M)
    q_ptr = head_of(q_ptr, b, h, q_strides, UNIT)
    grad_ptr = head_of(grad_ptr, b, h, grad_strides, GRAD_UNIT)
    out_ptr = head_of(out_ptr, b, h, out_strides, UNIT)
    k_ptr = head_of(k_ptr, b, h // group, k_strides, UNIT)
    v_ptr = head_of(v_ptr, b, h // group, v_strides, UNIT)
    if parts is not None:
        turned_k_ptr = head_of(turned_k_ptr, b, h // group, turned_k_strides, UNIT)
    if bias_ptr is not None:
        bias_ptr = head_of(bias_ptr, b, h, bias_strides, BIAS_UNIT)
    if dbias_ptr is not None:
        dbias_ptr = head_of(dbias_ptr, b, h, dbias_strides, 1)
    q_MD = load_rows(q_ptr, m, M, q_strides, UNIT, D, BLOCK_D, True, INDEX).to(MULTIPLY)
    grad_ME = load_rows(grad_ptr, m, M, grad_strides, GRAD_UNIT, E, BLOCK_E, True, INDEX)
    out_ME = load_rows(out_ptr, m, M, out_strides, UNIT, E, BLOCK_E, True, INDEX)
    delta_M = tl.sum(grad_ME.to(tl.float32) * out_ME.to(tl.float32), axis=1)
    tl.store(delta_ptr + head.to(tl.int64) * M + m, delta_M, mask=m < M)
    lse_ptr = head_of(lse_ptr, b, h, lse_strides, 1)
    lse_M = in_base(tl.load(lse_ptr + m.to(INDEX) * lse_strides[2], mask=m < M, other=float("inf")), BASE_2)
    end = N
    if CAUSAL and dbias_ptr is None:
        end = tl.minimum(end, first_M + shift + BLOCK_M)
    dq_MD = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    if parts is not None:
        q_MD, q_low_MD = parts_of_one_sign(q_MD)
        grad_ME, grad_low_ME = parts_of_one_sign(grad_ME)
    else:
        grad_ME = grad_ME.to(MULTIPLY)
        q_low_MD, grad_low_ME = None, None
    # One loop, masked as a whole: of two, ptxas makes the first wait for each of its products.
    dq_MD = query_gradients(
        dq_MD, q_MD, grad_ME, lse_M, delta_M, q_low_MD, grad_low_ME, k_ptr, v_ptr, turned_k_ptr, bias_ptr, dbias_ptr,
        parts, dropout, head, m, end, M, N, k_strides, v_strides, turned_k_strides, bias_strides, dbias_strides,
        score_scale, factor, shift, UNIT, BIAS_UNIT, D, E, CAUSAL, CAUSAL or not EVEN_N, BASE_2, INDEX, MULTIPLY,
        PRECISION, BLOCK_N, BLOCK_D, BLOCK_E,
    )  # fmt: skip
    store_rows(head_of(dq_ptr, b, h, dq_strides, UNIT), m, M, dq_MD * last_factor, dq_strides, UNIT, D, BLOCK_D, INDEX)


@triton.jit
def key_gradients(
    dk_ND: tl.tensor,
    dv_NE: tl.tensor,
    k_ND: tl.tensor,
    v_NE: tl.tensor,
    k_low_ND: tl.tensor,
    v_low_NE: tl.tensor,
    q_ptr: tl.tensor,
    grad_ptr: tl.tensor,
    turned_q_ptr: tl.tensor,
    turned_grad_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    delta_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    parts: tl.tuple,
    dropout: tl.tuple,
    head: tl.tensor,
    n: tl.tensor,
    first: tl.tensor,
    end: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    q_strides: tl.tuple,
    grad_strides: tl.tuple,
    turned_q_strides: tl.tuple,
    turned_grad_strides: tl.tuple,
    lse_stride_M: tl.tensor,
    bias_strides: tl.tuple,
    scale: tl.tensor,
    factor: tl.tensor,
    shift: tl.tensor,
    UNIT: tl.constexpr,
    GRAD_UNIT: tl.constexpr,
    BIAS_UNIT: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    EVEN_M: tl.constexpr,
    MASKED: tl.constexpr,
    BASE_2: tl.constexpr,
    INDEX: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
) -> tuple[tl.tensor, ...]:
    """Add the terms of the queries from ``first`` to ``end``, those of dk times ``factor``.

    MASKED leaves out those that do not see a key. Keys beyond the last one get sums of their own, which are not
    written. ``parts`` says how many elements low parts lie behind high ones, of queries, gradients, and both of them
    turned, if they are split.
    """
    for start in range(first, end, BLOCK_M):
        m = start + tl.arange(0, BLOCK_M)
        if parts is not None:
            q_MD, q_low_MD = load_parts(q_ptr, parts[0], m, q_strides, UNIT, BLOCK_D, INDEX)
            grad_ME, grad_low_ME = load_parts(grad_ptr, parts[1], m, grad_strides, GRAD_UNIT, BLOCK_E, INDEX)
            products_NM = product_of_parts(k_ND, k_low_ND, tl.trans(q_MD), tl.trans(q_low_MD))
            dp_NM = product_of_parts(v_NE, v_low_NE, tl.trans(grad_ME), tl.trans(grad_low_ME))
        else:
            q_MD = load_rows(q_ptr, m, M, q_strides, UNIT, D, BLOCK_D, not EVEN_M, INDEX)
            grad_ME = load_rows(grad_ptr, m, M, grad_strides, GRAD_UNIT, E, BLOCK_E, not EVEN_M, INDEX).to(MULTIPLY)
            products_NM = product_along_rows(k_ND, q_MD.to(MULTIPLY), PRECISION)
            dp_NM = product_along_rows(v_NE, grad_ME, PRECISION)
        # Queries beyond the last one have no weights.
        lse_M = in_base(tl.load(lse_ptr + m.to(INDEX) * lse_stride_M, mask=m < M, other=float("inf")), BASE_2)
        delta_M = tl.load(delta_ptr + m, mask=m < M, other=0)
        s_NM = products_NM * scale
        if bias_ptr is not None:
            at_NM = bias_ptr + tl.trans(bias_offsets(m, n, M, bias_strides, BIAS_UNIT, INDEX))
            s_NM += in_base(tl.load(at_NM, mask=(n < N)[:, None], other=0).to(tl.float32), BASE_2)
        if MASKED:
            s_NM = tl.where(n[:, None] <= m[None, :] + shift, s_NM, float("-inf"))
        p_NM = power(s_NM - lse_M[None, :], BASE_2)
        left_NM = p_NM
        if dropout is not None:
            left_NM = dropped(p_NM, head, m[None, :], n[:, None], M, N, dropout)
            dp_NM = dropped(dp_NM, head, m[None, :], n[:, None], M, N, dropout)
        ds_NM = p_NM * (dp_NM * factor - (delta_M * factor)[None, :])
        if parts is not None:
            d, e = tl.arange(0, BLOCK_D), tl.arange(0, BLOCK_E)
            grad_ptr_M, q_ptr_M = turned_grad_ptr + start, turned_q_ptr + start
            grad_EM, grad_low_EM = load_parts(grad_ptr_M, parts[3], e, turned_grad_strides, UNIT, BLOCK_M, INDEX)
            left_NM, left_low_NM = parts_of_one_sign(left_NM)
            dv_NE += product_of_parts(left_NM, left_low_NM, tl.trans(grad_EM), tl.trans(grad_low_EM))
            q_DM, q_low_DM = load_parts(q_ptr_M, parts[2], d, turned_q_strides, UNIT, BLOCK_M, INDEX)
            ds_NM, ds_low_NM = parts_of_one_sign(ds_NM)
            dk_ND += product_of_parts(ds_NM, ds_low_NM, tl.trans(q_DM), tl.trans(q_low_DM))
        else:
            dv_NE = tl.dot(converted(left_NM, q_MD.dtype).to(MULTIPLY), grad_ME, dv_NE, input_precision=PRECISION)
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
    turned_q_ptr: tl.tensor,
    turned_grad_ptr: tl.tensor,
    bias_ptr: tl.tensor,
    parts: tl.tuple,
    dropout: tl.tuple,
    H: tl.tensor,
    M: tl.tensor,
    N: tl.tensor,
    group: tl.tensor,
    dk_strides: tl.tuple,
    dv_strides: tl.tuple,
    grad_strides: tl.tuple,
    lse_strides: tl.tuple,
    q_strides: tl.tuple,
    k_strides: tl.tuple,
    v_strides: tl.tuple,
    turned_q_strides: tl.tuple,
    turned_grad_strides: tl.tuple,
    bias_strides: tl.tuple,
    score_scale: tl.tensor,
    factor: tl.tensor,
    last_factor: tl.tensor,
    shift: tl.tensor,
    UNIT: tl.constexpr,
    GRAD_UNIT: tl.constexpr,
    BIAS_UNIT: tl.constexpr,
    D: tl.constexpr,
    E: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_M: tl.constexpr,
    BASE_2: tl.constexpr,
    INDEX: tl.constexpr,
    MULTIPLY: tl.constexpr,
    PRECISION: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_E: tl.constexpr,
) -> None:
    """``dk`` and ``dv`` for a block of keys, of which there are H heads, each for ``group`` heads of queries.

    ``parts``: see :func:`key_gradients`.
    """
    await_earlier_kernels()
    blocks = tl.cdiv(N, BLOCK_N)
    block, head = tl.program_id(0) % blocks, tl.program_id(0) // blocks
    b, h = head // H, head % H
    first_N = block * BLOCK_N
    n = first_N + tl.arange(0, BLOCK_N)
    k_ptr, v_ptr = head_of(k_ptr, b, h, k_strides, UNIT), head_of(v_ptr, b, h, v_strides, UNIT)
    k_ND = load_rows(k_ptr, n, N, k_strides, UNIT, D, BLOCK_D, True, INDEX).to(MULTIPLY)
    v_NE = load_rows(v_ptr, n, N, v_strides, UNIT, E, BLOCK_E, True, INDEX).to(MULTIPLY)
    if parts is not None:
        k_ND, k_low_ND = parts_of_one_sign(k_ND)
        v_NE, v_low_NE = parts_of_one_sign(v_NE)
    else:
        k_low_ND, v_low_NE = None, None
    dk_ND = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    dv_NE = tl.zeros([BLOCK_N, BLOCK_E], tl.float32)
    first, full = 0, 0
    if CAUSAL:
        # From the first query that sees the first key to the first one that sees them all.
        first = tl.maximum(first_N - shift, 0) // BLOCK_M * BLOCK_M
        full = tl.minimum(first + tl.cdiv(tl.maximum(first_N + BLOCK_N - 1 - shift - first, 0), BLOCK_M) * BLOCK_M, M)
    for member in range(group):
        q_head = h * group + member
        q_head_ptr = head_of(q_ptr, b, q_head, q_strides, UNIT)
        grad_head_ptr = head_of(grad_ptr, b, q_head, grad_strides, GRAD_UNIT)
        lse_head_ptr = head_of(lse_ptr, b, q_head, lse_strides, 1)
        delta_head_ptr = delta_ptr + (b * H * group + q_head).to(tl.int64) * M
        if bias_ptr is not None:
            bias_head_ptr = head_of(bias_ptr, b, q_head, bias_strides, BIAS_UNIT)
        else:
            bias_head_ptr = None
        if parts is not None:
            turned_q_head_ptr = head_of(turned_q_ptr, b, q_head, turned_q_strides, UNIT)
            turned_grad_head_ptr = head_of(turned_grad_ptr, b, q_head, turned_grad_strides, UNIT)
        else:
            turned_q_head_ptr, turned_grad_head_ptr = None, None
        if CAUSAL:
            dk_ND, dv_NE = key_gradients(
                dk_ND, dv_NE, k_ND, v_NE, k_low_ND, v_low_NE, q_head_ptr, grad_head_ptr, turned_q_head_ptr,
                turned_grad_head_ptr, lse_head_ptr, delta_head_ptr, bias_head_ptr, parts, dropout, head, n, first, full,
                M, N, q_strides, grad_strides, turned_q_strides, turned_grad_strides, lse_strides[2], bias_strides,
                score_scale, factor, shift, UNIT, GRAD_UNIT, BIAS_UNIT, D, E, EVEN_M, True, BASE_2, INDEX, MULTIPLY,
                PRECISION, BLOCK_M, BLOCK_D, BLOCK_E,
            )  # fmt: skip
        dk_ND, dv_NE = key_gradients(
            dk_ND, dv_NE, k_ND, v_NE, k_low_ND, v_low_NE, q_head_ptr, grad_head_ptr, turned_q_head_ptr,
            turned_grad_head_ptr, lse_head_ptr, delta_head_ptr, bias_head_ptr, parts, dropout, head, n, full, M, M, N,
            q_strides, grad_strides, turned_q_strides, turned_grad_strides, lse_strides[2], bias_strides, score_scale,
            factor, shift, UNIT, GRAD_UNIT, BIAS_UNIT, D, E, EVEN_M, False, BASE_2, INDEX, MULTIPLY, PRECISION, BLOCK_M,
            BLOCK_D, BLOCK_E,
        )  # fmt: skip
    store_rows(head_of(dk_ptr, b, h, dk_strides, UNIT), n, N, dk_ND * last_factor, dk_strides, UNIT, D, BLOCK_D, INDEX)
    store_rows(head_of(dv_ptr, b, h, dv_strides, UNIT), n, N, dv_NE, dv_strides, UNIT, E, BLOCK_E, INDEX)


# ---------------------------------------------------------------- the host side


class Call(NamedTuple):
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


def attention_gradients(into: Gradients, call: Call, rule: Rule) -> None:
    """Fill ``into``."""
    delta = torch.empty(call.q.shape[:3], dtype=torch.float32, device=call.q.device)
    if call.q.numel():
        _fill_query_gradients(into, delta, call, rule)
    if call.k.numel():
        _fill_key_gradients(into, delta, call, rule)


def _fill_query_gradients(into: Gradients, delta: torch.Tensor, call: Call, rule: Rule) -> None:
    """And ``delta``, which the gradients of keys need."""
    (B, H, M, _), (HK, N, _) = call.q.shape, call.v.shape[1:]
    by_rule = _beforehand(QUERIES_BEFOREHAND, call) or _query_tile(M, N, _columns(call), call.q.dtype)
    tile = chosen(QUERY_TILES, by_rule, call.q, call.v, rule)
    k, v, turned_k, split = call.k, call.v, None, None
    if tile.beforehand and N:
        parts = rows_in_parts(k, tile.n), rows_in_parts(v, tile.n), turned_in_parts(k, tile.n)
        k, v, turned_k = (each.high(B) for each in parts)
        split = tuple(each.strides[0] for each in parts)
    units = _units(into, call, rule)
    unit, grad_unit, bias_unit = units
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
        turned_k,
        rule.bias,
        split,
        None if rule.dropout is None else rule.dropout.arguments(),
        H,
        M,
        N,
        H // HK,
        strides_in(unit, into.q),
        strides_in(1, into.bias),
        strides_in(grad_unit, call.grad),
        strides_in(unit, call.out),
        call.lse.stride(),
        strides_in(unit, call.q),
        strides_in(unit, k),
        strides_in(unit, v),
        strides_in(unit, turned_k),
        strides_in(bias_unit, rule.bias),
        *_numbers(call, rule),
        **_meta(into, call, rule, units, k, v, turned_k),
        EVEN_N=N % tile.n == 0,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _fill_key_gradients(into: Gradients, delta: torch.Tensor, call: Call, rule: Rule) -> None:
    (B, H, M, _), (HK, N, _) = call.q.shape, call.v.shape[1:]
    by_rule = _beforehand(KEYS_BEFOREHAND, call) or _key_tile(M, N, _columns(call), call.q.dtype)
    tile = chosen(KEY_TILES, by_rule, call.q, call.v, rule)
    q, grad, turned_q, turned_grad, split = call.q, call.grad, None, None, None
    if tile.beforehand and M:
        rows, turned = ([split_by(x, tile.m) for x in (q, grad)] for split_by in (rows_in_parts, turned_in_parts))
        q, grad, turned_q, turned_grad = (each.high(B) for each in (*rows, *turned))
        split = tuple(each.strides[0] for each in (*rows, *turned))
    units = _units(into, call, rule)
    unit, grad_unit, bias_unit = units
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
        turned_q,
        turned_grad,
        rule.bias,
        split,
        None if rule.dropout is None else rule.dropout.arguments(),
        HK,
        M,
        N,
        loop_bound(H // HK),
        strides_in(unit, into.k),
        strides_in(unit, into.v),
        strides_in(grad_unit, grad),
        call.lse.stride(),
        strides_in(unit, q),
        strides_in(unit, call.k),
        strides_in(unit, call.v),
        strides_in(unit, turned_q),
        strides_in(unit, turned_grad),
        strides_in(bias_unit, rule.bias),
        *_numbers(call, rule),
        **_meta(into, call, rule, units, q, grad, turned_q, turned_grad),
        EVEN_M=M % tile.m == 0,
        BLOCK_M=tile.m,
        BLOCK_N=tile.n,
        num_warps=tile.warps,
        num_stages=tile.stages,
    )


def _units(into: Gradients, call: Call, rule: Rule) -> tuple[int, int, int]:
    """Of strides of heads, of the result's gradient and of the bias, see :func:`unit_of`."""
    return unit_of(*into[:3], *call[1:5]), unit_of(call.grad), 1 if rule.bias is None else unit_of(rule.bias)


def _numbers(call: Call, rule: Rule) -> tuple[float, float, float, int]:
    """What makes scores of products, what is a factor of ds, what of the sums over it, and which keys are seen."""
    early = call.q.dtype == torch.float16 and abs(rule.scale) < 1
    factors = (rule.scale, 1.0) if early else (1.0, rule.scale)
    return in_base_of(call.q, rule.scale), *factors, rule.shift or 0


def _meta(
    into: Gradients,
    call: Call,
    rule: Rule,
    units: tuple[int, int, int],
    *read: torch.Tensor | None,
) -> dict[str, Any]:
    """What both kernels are compiled for; ``read``: what their loops read."""
    D, E = call.q.shape[3], call.v.shape[3]
    return {
        "UNIT": units[0],
        "GRAD_UNIT": units[1],
        "BIAS_UNIT": units[2],
        "D": D,
        "E": E,
        "CAUSAL": rule.shift is not None,
        "BASE_2": is_base_2(call.q),
        "INDEX": offsets_type(*into, *call[:5], rule.bias, *read),
        "MULTIPLY": multiply_type(call.q.dtype),
        "PRECISION": PRECISION,
        "BLOCK_D": block_of(D),
        "BLOCK_E": block_of(E),
    }


def _columns(call: Call) -> int:
    """Of a tile that holds any of the heads."""
    return max(block_of(call.q.shape[3]), block_of(call.v.shape[3]))


def _beforehand(tiles: tuple[Tile, Tile], call: Call) -> Tile | None:
    """One of these, of operands that are split beforehand, where that pays."""
    B, H, M, D = call.q.shape
    N, E = call.v.shape[2:]
    numbers = _parts_numbers(B * H, M, N, block_of(D) + block_of(E))
    columns = _columns(call)
    if columns > WIDEST_IN_PARTS or not splitting_pays(call.q, call.v, numbers):
        return None
    in_one_stage, in_two = tiles
    return in_two if columns <= 32 else in_one_stage


def _candidates(work: Work, half: Sequence[Tile], beforehand: Sequence[Tile]) -> list[Tile]:
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
#: latter holds four tiles in two parts each: with two of 64 columns a multiprocessor has room for one program.
QUERIES_BEFOREHAND = (Tile(64, 32, 4, 1, 1), Tile(64, 32, 4, 2, 1))
KEYS_BEFOREHAND = (Tile(32, 64, 4, 1, 1), Tile(32, 64, 4, 2, 1))
#: Of half types: the fastest five on an H200 for one or the other of heads of 64 and 128 columns.
WIDEST_WITH_CANDIDATES = 128
HALF_QUERIES = (
    Tile(64, 64, 4, 1),
    Tile(64, 64, 4, 2),
    Tile(64, 128, 4, 2),
    Tile(128, 64, 8, 3),
    Tile(128, 128, 8, 2),
)
HALF_KEYS = (
    Tile(32, 64, 4, 2),
    Tile(64, 64, 4, 1),
    Tile(64, 64, 4, 2),
    Tile(64, 128, 8, 2),
    Tile(64, 128, 8, 3),
)
QUERY_TILES = Family(
    "gradients of queries", Tile, partial(_candidates, half=HALF_QUERIES, beforehand=QUERIES_BEFOREHAND)
)
KEY_TILES = Family("gradients of keys", Tile, partial(_candidates, half=HALF_KEYS, beforehand=KEYS_BEFOREHAND))


def _query_tile(M: int, N: int, columns: int, dtype: torch.dtype) -> Tile:
    """The tile of a program that owns queries: it holds a block of q, of the gradient and of dq."""
    if INTERPRETED:
        return Tile(64, 64, 4, 1)
    if dtype == torch.float32:
        tile = Tile(32, 32, 8, 1) if columns <= 64 else Tile(32, 16, 8, 1) if columns <= 128 else Tile(16, 16, 8, 1)
    elif columns <= 128:
        tile = Tile(64, 64, 4, 2) if columns <= 64 else Tile(128, 64, 8, 3)
    else:
        tile = Tile(64, 32, 8, 2) if columns <= 256 else Tile(32, 32, 8, 1)
    return _cut(tile, M, N)


def _key_tile(M: int, N: int, columns: int, dtype: torch.dtype) -> Tile:
    """The tile of a program that owns keys: it holds a block of k, v, dk and dv."""
    if INTERPRETED:
        return Tile(64, 64, 4, 1)
    if dtype == torch.float32:
        tile = Tile(32, 32, 8, 1) if columns <= 64 else Tile(32, 16, 8, 1) if columns <= 128 else Tile(16, 16, 8, 1)
    elif columns <= 128:
        tile = Tile(64, 64, 4, 2)
    else:
        tile = Tile(32, 64, 8, 2) if columns <= 256 else Tile(32, 32, 8, 1)
    return _cut(tile, M, N)


def _cut(tile: Tile, M: int, N: int) -> Tile:
    """No larger than the problem is, and with half the warps for a quarter of the tile."""
    m, n = (max(triton.next_power_of_2(size), 16) for size in (M, N))
    m, n = min(tile.m, m), min(tile.n, n)
    return tile._replace(m=m, n=n, warps=4 if 4 * m * n <= tile.m * tile.n else tile.warps)
