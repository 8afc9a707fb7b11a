"""Attention of one new token over keys and values in 8 bits, with a scale for each head.

For each head of a batch::

    s[n] = (q . k[n]) * scale_k / sqrt(D),     out = scale_v * (sum over n of exp(s[n] - max) v[n]) / sum of exp(..)

Keys and values are read once, ``2 N D`` bytes a head: half of bfloat16's, and nothing else of that size moves. A
program goes along a share of a head's keys with an online softmax (Milakov and Gimelshein, 2018). Heads that are too
few to fill the device are cut into splits (flash-decoding; Dao and others, 2023), which a second kernel weighs and adds
up. With one query there is nothing to share between rows of a tensor core's tile: products are sums in float32. Each
place n of a tile has a largest score, a sum of exponentials and an average of its own along the steps; they meet after
the last one, so that warps do not wait for each other in between.

Suffixes: ``_N`` keys, ``_D`` numbers of a key or value, ``_S`` splits.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import converted, widened
from ..common.launch import INTERPRETED, launch, loop_bound, multiprocessors, pdl_prologue, require_served
from .formats import FLOAT8, ROUNDED, SOURCES, from_float8, require_low, scale_at

_LOG2_E = math.log2(math.e)
#: Numbers of a tile of keys: 64 for each of 128 threads, and as many of values.
TILE = 1 << 16 if INTERPRETED else 8192
#: The largest head of which a tile has 16 keys.
LARGEST_HEAD = 512
#: Programs for each multiprocessor, so many as registers let run side by side.
PROGRAMS = 4
#: A split has this many tiles at least: fewer are over before the second launch.
FEWEST_TILES = 4
MOST_SPLITS = 32


class Strides(NamedTuple):
    """Of (batch, head, key, number) of each; the query has one key, scales have neither."""

    q: Any
    k: Any
    v: Any
    scale_k: Any
    scale_v: Any


@triton.jit
def cached_attention_kernel(
    out_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    query_ptr: tl.tensor,
    keys_ptr: tl.tensor,
    values_ptr: tl.tensor,
    scale_keys_ptr: tl.tensor,
    scale_values_ptr: tl.tensor,
    heads: tl.tensor,
    length: tl.tensor,
    size: tl.tensor,
    factor: tl.tensor,
    strides: tl.tuple,
    share: tl.tensor,
    steps: tl.tensor,
    SPLITS: tl.constexpr,
    BLOCK_N: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """The keys of one split of one head: its average of the values, and log2 of its sum where there are SPLITS.

    Args:
        out_ptr: (batch * heads, splits, size).
        lse_ptr: (batch * heads, splits).
        query_ptr: (batch, heads, 1, size).
        keys_ptr: (batch, heads, length, size).
        values_ptr: as keys.
        scale_keys_ptr: one for each head.
        scale_values_ptr: one for each head.
        heads: of a batch.
        length: keys of a head.
        size: numbers of a key.
        factor: of scores, in units of log 2.
        strides: see :class:`Strides`.
        share: keys of a split.
        steps: tiles of a split.
        SPLITS: of a head.
        BLOCK_N: keys of a tile.
        BLOCK_D: numbers of a tile.
    """
    pdl_prologue()
    place = tl.program_id(0)
    pair, split = place // SPLITS, place % SPLITS
    batch, head = (pair // heads).to(tl.int64), (pair % heads).to(tl.int64)
    d = tl.arange(0, BLOCK_D)
    q_ptr_D = query_ptr + batch * strides.q[0] + head * strides.q[1] + d * strides.q[3]
    q_D = widened(tl.load(q_ptr_D, mask=d < size, other=0.0)).to(tl.float32)
    q_D *= scale_at(scale_keys_ptr + head * strides.scale_k[0]) * factor
    keys_ptr += batch * strides.k[0] + head * strides.k[1]
    values_ptr += batch * strides.v[0] + head * strides.v[1]
    begin = split * share
    end = tl.minimum(begin + share, length)
    largest_N = tl.full((BLOCK_N,), -float("inf"), tl.float32)
    total_N = tl.zeros((BLOCK_N,), tl.float32)
    sum_ND = tl.zeros((BLOCK_N, BLOCK_D), tl.float32)
    for step in range(steps):
        n = begin + step * BLOCK_N + tl.arange(0, BLOCK_N)
        inside_ND = (n < end)[:, None] & (d < size)[None, :]
        row_N = n.to(tl.int64)
        k_ptr_ND = keys_ptr + row_N[:, None] * strides.k[2] + d[None, :] * strides.k[3]
        v_ptr_ND = values_ptr + row_N[:, None] * strides.v[2] + d[None, :] * strides.v[3]
        k_ND = from_float8(tl.load(k_ptr_ND, mask=inside_ND, other=0.0))
        v_ND = from_float8(tl.load(v_ptr_ND, mask=inside_ND, other=0.0))
        s_N = tl.where(n < end, tl.sum(k_ND * q_D[None, :], axis=1), -float("inf"))
        # A NaN among the scores is no largest, and reaches the result through its own exponential.
        larger_N = tl.maximum(largest_N, s_N)
        seen_N = tl.where(larger_N == -float("inf"), 0.0, larger_N)
        p_N, shrunk_N = tl.exp2(s_N - seen_N), tl.exp2(largest_N - seen_N)
        total_N = total_N * shrunk_N + p_N
        sum_ND = sum_ND * shrunk_N[:, None] + p_N[:, None] * v_ND
        largest_N = larger_N
    largest = tl.max(largest_N, axis=0)
    weight_N = tl.exp2(largest_N - tl.where(largest == -float("inf"), 0.0, largest))
    total = tl.sum(total_N * weight_N, axis=0)
    out_D = tl.sum(sum_ND * weight_N[:, None], axis=0) / total * scale_at(scale_values_ptr + head * strides.scale_v[0])
    tl.store(out_ptr + place.to(tl.int64) * size + d, converted(out_D, out_ptr.dtype.element_ty), mask=d < size)
    if SPLITS > 1:
        tl.store(lse_ptr + place, largest + tl.log2(total))


@triton.jit
def join_kernel(
    out_ptr: tl.tensor,
    part_ptr: tl.tensor,
    lse_ptr: tl.tensor,
    size: tl.tensor,
    splits: tl.tensor,
    BLOCK_S: tl.constexpr,
    BLOCK_D: tl.constexpr,
) -> None:
    """A head's average of its splits' averages, by the sums of exponentials."""
    pdl_prologue()
    pair = tl.program_id(0).to(tl.int64)
    s, d = tl.arange(0, BLOCK_S), tl.arange(0, BLOCK_D)
    lse_S = tl.load(lse_ptr + pair * splits + s, mask=s < splits, other=-float("inf"))
    weight_S = tl.exp2(lse_S - tl.max(lse_S, axis=0))
    inside_SD = (s < splits)[:, None] & (d < size)[None, :]
    part_SD = tl.load(part_ptr + (pair * splits + s)[:, None] * size + d[None, :], mask=inside_SD, other=0.0)
    out_D = tl.sum(part_SD * weight_S[:, None], axis=0) / tl.sum(weight_S, axis=0)
    tl.store(out_ptr + pair * size + d, converted(out_D, out_ptr.dtype.element_ty), mask=d < size)


def cached_attention(
    query: torch.Tensor,
    keys: torch.Tensor,
    values: torch.Tensor,
    scale_keys: torch.Tensor,
    scale_values: torch.Tensor,
) -> torch.Tensor:
    """Attention of one query a head, in bfloat16.

    Args:
        query: of shape (B, H, 1, D).
        keys: of shape (B, H, N, D), in E4M3 or E5M2.
        values: as keys.
        scale_keys: of shape (H, 1, 1).
        scale_values: as scale_keys.

    Raises:
        NotImplementedError: other types, devices, shapes or larger heads.
    """
    require_served(query, dtypes=SOURCES)
    require_low(keys, values, dtypes=FLOAT8)
    require_served(scale_keys, scale_values, dtypes=SOURCES)
    if query.ndim != 4 or keys.ndim != 4 or keys.shape != values.shape:
        raise NotImplementedError(f"keys of {list(keys.shape)} and values of {list(values.shape)} are not served")
    batch, heads, length, size = keys.shape
    if tuple(query.shape) != (batch, heads, 1, size) or not length or not 0 < size <= LARGEST_HEAD:
        raise NotImplementedError(f"{list(query.shape)} queries of {list(keys.shape)} keys are not served")
    if {tuple(scale_keys.shape), tuple(scale_values.shape)} != {(heads, 1, 1)}:
        raise NotImplementedError(f"scales of {list(scale_keys.shape)} are not served")
    out = torch.empty((batch, heads, 1, size), dtype=ROUNDED, device=query.device)
    pairs = batch * heads
    if not pairs:
        return out
    block_d = triton.next_power_of_2(size)
    block_n = min(TILE // block_d, triton.next_power_of_2(length))
    splits = splits_of(pairs, triton.cdiv(length, block_n), query.device)
    share = triton.cdiv(triton.cdiv(length, block_n), splits) * block_n
    part = torch.empty((pairs, splits, size), dtype=torch.float32, device=query.device) if splits > 1 else out
    lse = torch.empty((pairs, splits), dtype=torch.float32, device=query.device) if splits > 1 else out
    launch(
        cached_attention_kernel,
        (pairs * splits,),
        query.device,
        part,
        lse,
        query,
        keys,
        values,
        scale_keys,
        scale_values,
        heads,
        length,
        size,
        _LOG2_E * size**-0.5,
        Strides(*(tensor.stride() for tensor in (query, keys, values, scale_keys, scale_values))),
        share,
        loop_bound(triton.cdiv(share, block_n)),
        SPLITS=splits,
        BLOCK_N=block_n,
        BLOCK_D=block_d,
        num_warps=4,
        num_stages=3,
    )
    if splits > 1:
        launch(
            join_kernel,
            (pairs,),
            query.device,
            out,
            part,
            lse,
            size,
            splits,
            BLOCK_S=triton.next_power_of_2(splits),
            BLOCK_D=block_d,
            num_warps=4,
        )
    return out


def splits_of(pairs: int, tiles: int, device: torch.device) -> int:
    """Into how many splits the tiles of a head are cut; none of them is empty."""
    wanted = PROGRAMS * multiprocessors(device) // pairs
    splits = max(1, min(wanted, tiles // FEWEST_TILES, MOST_SPLITS))
    return int(triton.cdiv(tiles, triton.cdiv(tiles, splits)))


class CachedAttention(torch.nn.Module):
    """Problem 17."""

    def forward(
        self,
        query: torch.Tensor,
        keys: torch.Tensor,
        values: torch.Tensor,
        scale_keys: torch.Tensor,
        scale_values: torch.Tensor,
    ) -> torch.Tensor:
        """The values' averages, ``[B, H, 1, D]``."""
        return cached_attention(query, keys, values, scale_keys, scale_values)
