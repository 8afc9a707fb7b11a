"""Sorting by radix and the largest k, after FlagGems' ``ops/{sort,topk}.py``.

Numbers become unsigned keys whose order is theirs: both zeros are one, NaN is the largest. Each of 32 passes puts the
keys with a zero bit in front of the others and keeps their order.
"""

import torch
import triton
import triton.language as tl

from .softmax import lines


@triton.jit
def key_of(x, DESCENDING: tl.constexpr):
    x = tl.where(x == 0, 0.0, x.to(tl.float32))
    bits = x.to(tl.int32, bitcast=True)
    # Of negative numbers all bits are turned, of others the sign.
    key = tl.where(bits < 0, bits ^ 0x7FFFFFFF, bits).to(tl.int64)
    key = tl.where(x != x, 2147483647, key)
    return -key if DESCENDING else key


@triton.jit
def make_keys(x_ptr, key_ptr, place_ptr, n, N, DESCENDING: tl.constexpr, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    x = tl.load(x_ptr + i, mask=i < n, other=0.0)
    tl.store(key_ptr + i, key_of(x, DESCENDING) + 2147483648, mask=i < n)
    tl.store(place_ptr + i, i % N, mask=i < n)


@triton.jit
def one_bit(key_ptr, place_ptr, new_key_ptr, new_place_ptr, M, N, bit, TM: tl.constexpr, TN: tl.constexpr):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.arange(0, TN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    offset = rows[:, None] * N + columns[None, :]
    key = tl.load(key_ptr + offset, mask=inside, other=0)
    place = tl.load(place_ptr + offset, mask=inside, other=0)
    one = ((key >> bit) & 1).to(tl.int32)
    zero = tl.where(inside, 1 - one, 0)
    ones = tl.where(inside, one, 0)
    zeros = tl.sum(zero, axis=1)
    target = tl.where(one == 1, zeros[:, None] + tl.cumsum(ones, axis=1) - 1, tl.cumsum(zero, axis=1) - 1)
    tl.store(new_key_ptr + rows[:, None] * N + target, key, mask=inside)
    tl.store(new_place_ptr + rows[:, None] * N + target, place, mask=inside)


@triton.jit
def take(x_ptr, place_ptr, value_ptr, index_ptr, n, N, SIZE: tl.constexpr):
    i = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    place = tl.load(place_ptr + i, mask=i < n, other=0)
    x = tl.load(x_ptr + (i // N) * N + place, mask=i < n, other=0.0)
    tl.store(value_ptr + i, x, mask=i < n)
    tl.store(index_ptr + i, place.to(tl.int64), mask=i < n)


def sort(self, dim=-1, descending=False):
    """Stable, as a sort by radix is."""
    x, back = lines(self, dim)
    M, N = x.shape
    values = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    indices = torch.empty(x.shape, dtype=torch.int64, device=x.device)
    n = x.numel()
    if n:
        x = x.contiguous()
        keys = [torch.empty(n, dtype=torch.int64, device=x.device) for _ in range(2)]
        places = [torch.empty(n, dtype=torch.int32, device=x.device) for _ in range(2)]
        grid = (triton.cdiv(n, 1024),)
        make_keys[grid](x, keys[0], places[0], n, N, DESCENDING=descending, SIZE=1024)
        TN = triton.next_power_of_2(N)
        TM = min(triton.next_power_of_2(M), max(1, 2048 // TN))
        for bit in range(33):
            one_bit[(triton.cdiv(M, TM),)](keys[0], places[0], keys[1], places[1], M, N, bit, TM=TM, TN=TN)
            keys.reverse()
            places.reverse()
        take[grid](x, places[0], values, indices, n, N, SIZE=1024)
    return back(values), back(indices)


@triton.jit
def largest_rows(
    x_ptr, value_ptr, index_ptr, M, N, LARGEST: tl.constexpr, K: tl.constexpr, TM: tl.constexpr, TN: tl.constexpr
):
    rows = tl.program_id(0) * TM + tl.arange(0, TM)
    columns = tl.arange(0, TN)
    inside = (rows[:, None] < M) & (columns[None, :] < N)
    x = tl.load(x_ptr + rows[:, None] * N + columns[None, :], mask=inside, other=0.0)
    key = key_of(x, not LARGEST)
    # The key above the place, which counts down: the first of equals is the largest.
    ranked = key * 2147483648 + (2147483647 - columns[None, :])
    lowest = -9223372036854775807
    ranked = tl.where(inside, ranked, lowest)
    for k in range(K):
        best = tl.max(ranked, axis=1)
        hit = ranked == best[:, None]
        place = tl.sum(tl.where(hit, columns[None, :], 0), axis=1)
        value = tl.load(x_ptr + rows * N + place, mask=rows < M, other=0.0)
        tl.store(value_ptr + rows * K + k, value, mask=rows < M)
        tl.store(index_ptr + rows * K + k, place.to(tl.int64), mask=rows < M)
        ranked = tl.where(hit, lowest, ranked)


def topk(self, k, dim=-1, largest=True, sorted=True):
    """One after another the largest of what is left."""
    x, _ = lines(self, dim)
    x = x.contiguous()
    M, N = x.shape
    if not 0 <= k <= N:
        raise RuntimeError("k is out of range")
    values = torch.empty((M, k), dtype=x.dtype, device=x.device)
    indices = torch.empty((M, k), dtype=torch.int64, device=x.device)
    if values.numel():
        TN = triton.next_power_of_2(N)
        TM = min(triton.next_power_of_2(M), max(1, 2048 // TN))
        largest_rows[(triton.cdiv(M, TM),)](x, values, indices, M, N, LARGEST=largest, K=k, TM=TM, TN=TN)
    if self.dim() == 0:
        return values.reshape(()), indices.reshape(())
    shape = [n for d, n in enumerate(self.shape) if d != dim % self.dim()]
    return values.view(*shape, k).movedim(-1, dim), indices.view(*shape, k).movedim(-1, dim)
