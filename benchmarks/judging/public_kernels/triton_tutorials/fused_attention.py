"""Attention in one pass over the keys, after the Triton tutorial ``06-fused-attention.py`` (flash attention 2)."""

import math

import torch
import triton
import triton.language as tl


@triton.jit
def forward_kernel(
    Q, K, V, MASK, OUT, LSE, scale, SQ, SK, D, DV, H,
    q_b, q_h, q_s, q_d, k_b, k_h, k_s, k_d, v_b, v_h, v_s, v_d, m_b, m_h, m_q, m_k,
    CAUSAL: tl.constexpr, MASKED: tl.constexpr, STEPS: tl.constexpr, BM: tl.constexpr, BN: tl.constexpr,
    BD: tl.constexpr, BV: tl.constexpr,
):  # fmt: skip
    batch = (tl.program_id(1) // H).to(tl.int64)
    head = (tl.program_id(1) % H).to(tl.int64)
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    d = tl.arange(0, BD)
    dv = tl.arange(0, BV)
    q = tl.load(
        Q + batch * q_b + head * q_h + rows[:, None] * q_s + d[None, :] * q_d,
        mask=(rows[:, None] < SQ) & (d[None, :] < D),
        other=0.0,
    )
    top = tl.full((BM,), float("-inf"), tl.float32)
    total = tl.zeros((BM,), tl.float32)
    acc = tl.zeros((BM, BV), tl.float32)
    for step in range(STEPS):
        keys = step * BN + tl.arange(0, BN)
        k = tl.load(
            K + batch * k_b + head * k_h + keys[None, :] * k_s + d[:, None] * k_d,
            mask=(keys[None, :] < SK) & (d[:, None] < D),
            other=0.0,
        )
        score = tl.dot(q, k, input_precision="ieee") * scale
        if MASKED:
            bias = tl.load(
                MASK + batch * m_b + head * m_h + rows[:, None] * m_q + keys[None, :] * m_k,
                mask=(rows[:, None] < SQ) & (keys[None, :] < SK),
                other=0.0,
            )
            score += bias.to(tl.float32)
        visible = keys[None, :] < SK
        if CAUSAL:
            visible = visible & (keys[None, :] <= rows[:, None])
        score = tl.where(visible, score, float("-inf"))
        highest = tl.max(score, axis=1)
        new = tl.where(highest > top, highest, top)
        shift = tl.where(new == float("-inf"), 0.0, new)
        p = tl.exp(score - shift[:, None])
        kept = tl.exp(top - shift)
        total = total * kept + tl.sum(p, axis=1)
        v = tl.load(
            V + batch * v_b + head * v_h + keys[:, None] * v_s + dv[None, :] * v_d,
            mask=(keys[:, None] < SK) & (dv[None, :] < DV),
            other=0.0,
        )
        acc = acc * kept[:, None] + tl.dot(p.to(v.dtype), v, input_precision="ieee")
        top = new
    out = acc / total[:, None]
    place = tl.program_id(1).to(tl.int64) * SQ + rows
    mask = (rows[:, None] < SQ) & (dv[None, :] < DV)
    tl.store(OUT + place[:, None] * DV + dv[None, :], out.to(OUT.dtype.element_ty), mask=mask)
    tl.store(LSE + place, top + tl.log(total), mask=rows < SQ)


def attention(query, key, value, dropout_p=0.0, is_causal=False, *, attn_mask=None, scale=None):
    if dropout_p:
        raise NotImplementedError("without dropout only")
    B, H, SQ, D = query.shape
    SK, DV = key.shape[2], value.shape[3]
    if key.shape[1] != H or value.shape[1] != H:
        raise NotImplementedError("heads that share keys")
    out = torch.empty((B, H, SQ, DV), dtype=query.dtype, device=query.device)
    lse = torch.empty((B, H, SQ), dtype=torch.float32, device=query.device)
    if not out.numel() or not SK:
        raise NotImplementedError("attention to nothing")
    mask = None if attn_mask is None else attn_mask.expand(B, H, SQ, SK)
    power = triton.next_power_of_2
    forward_kernel[(triton.cdiv(SQ, 32), B * H)](
        query, key, value, query if mask is None else mask, out, lse, 1 / math.sqrt(D) if scale is None else scale,
        SQ, SK, D, DV, H, *query.stride(), *key.stride(), *value.stride(),
        *((0, 0, 0, 0) if mask is None else mask.stride()), CAUSAL=is_causal, MASKED=mask is not None,
        STEPS=triton.cdiv(SK, 32), BM=32, BN=32, BD=max(16, power(D)), BV=max(16, power(DV)),
    )  # fmt: skip
    return out, lse
