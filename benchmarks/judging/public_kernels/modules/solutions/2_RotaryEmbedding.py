"""Rotary embedding by a program for each position, after Liger-Kernel's ``src/liger_kernel/ops/rope.py``.

Liger and Unsloth turn in place; here the results are new tensors.
"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def rope_kernel(
    q_ptr,
    k_ptr,
    cos_ptr,
    sin_ptr,
    qo_ptr,
    ko_ptr,
    L,
    QH,
    KH,
    HALF,
    BQ: tl.constexpr,
    BK: tl.constexpr,
    BD: tl.constexpr,
):
    batch, place = tl.program_id(0) // L, tl.program_id(0) % L
    d = tl.arange(0, BD)
    mask = d < HALF
    cos1 = tl.load(cos_ptr + place * 2 * HALF + d, mask=mask, other=0.0)
    sin1 = tl.load(sin_ptr + place * 2 * HALF + d, mask=mask, other=0.0)
    cos2 = tl.load(cos_ptr + place * 2 * HALF + HALF + d, mask=mask, other=0.0)
    sin2 = tl.load(sin_ptr + place * 2 * HALF + HALF + d, mask=mask, other=0.0)
    heads = tl.arange(0, BQ)
    at = (((batch * QH + heads) * L + place) * 2 * HALF)[:, None] + d[None, :]
    inside = (heads[:, None] < QH) & mask[None, :]
    first = tl.load(q_ptr + at, mask=inside, other=0.0)
    second = tl.load(q_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(qo_ptr + at, first * cos1 - second * sin1, mask=inside)
    tl.store(qo_ptr + at + HALF, second * cos2 + first * sin2, mask=inside)
    heads = tl.arange(0, BK)
    at = (((batch * KH + heads) * L + place) * 2 * HALF)[:, None] + d[None, :]
    inside = (heads[:, None] < KH) & mask[None, :]
    first = tl.load(k_ptr + at, mask=inside, other=0.0)
    second = tl.load(k_ptr + at + HALF, mask=inside, other=0.0)
    tl.store(ko_ptr + at, first * cos1 - second * sin1, mask=inside)
    tl.store(ko_ptr + at + HALF, second * cos2 + first * sin2, mask=inside)


class ModelNew(nn.Module):
    def forward(self, q, k, cos, sin):
        q, k, cos, sin = (each.contiguous() for each in (q, k, cos, sin))
        batch, QH, L, D = q.shape
        KH = k.shape[1]
        qo, ko = torch.empty_like(q), torch.empty_like(k)
        power = triton.next_power_of_2
        rope_kernel[(batch * L,)](
            q, k, cos, sin, qo, ko, L, QH, KH, D // 2, BQ=power(QH), BK=power(KH), BD=power(D // 2)
        )
        return qo, ko
