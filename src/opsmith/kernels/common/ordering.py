"""Order as integers, and networks that sort them.

What is sorted is packed into 64-bit integers: above, a key of 32 bits in the order of the values; below,
the position, which makes every number different, so that the order is total and the sort stable.

A bitonic network sorts in registers: at each of its ``log n (log n + 1) / 2`` steps every element is compared with the
one whose number differs in one bit, its partner (K. E. Batcher, "Sorting networks and their applications", 1968).
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def ordered_bits(x: tl.tensor, NAN_IS_GREATEST: tl.constexpr) -> tl.tensor:
    """A float as a signed integer in the same order: below zero all bits but the sign's turn round.

    A NaN comes after everything, or before. The bits of a float16 are the upper half of 32.
    """
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True)
        key = bits ^ ((bits >> 63) & 0x7FFFFFFFFFFFFFFF)
        nan = 0x7FFFFFFFFFFFFFFF if NAN_IS_GREATEST else -0x8000000000000000
    else:
        if x.dtype == tl.float16:
            bits = x.to(tl.int16, bitcast=True).to(tl.int32) << 16
        else:
            bits = x.to(tl.int32, bitcast=True)
        key = bits ^ ((bits >> 31) & 0x7FFFFFFF)
        nan = 0x7FFFFFFF if NAN_IS_GREATEST else -0x80000000
    return tl.where(x == x, key, tl.full(key.shape, nan, key.dtype))  # noqa: PLR0124 - False for NaN.


@triton.jit
def float_of_bits(key: tl.tensor) -> tl.tensor:
    """The float32 or float64 of which :func:`ordered_bits` made an integer."""
    if key.dtype == tl.int32:
        value = (key ^ ((key >> 31) & 0x7FFFFFFF)).to(tl.float32, bitcast=True)
    else:
        value = (key ^ ((key >> 63) & 0x7FFFFFFFFFFFFFFF)).to(tl.float64, bitcast=True)
    return value


#: Which half of a 64-bit key is packed; shorter keys are packed whole.
WHOLE, LOW, HIGH = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)


@triton.jit
def sort_key(x: tl.tensor, HALF: tl.constexpr, DESCENDING: tl.constexpr) -> tl.tensor:
    """The key of 32 bits by which ``x`` is sorted. NaN is the greatest, and -0.0 is equal to 0.0, as in eager.

    Of half types the upper 16 bits tell all values apart.
    """
    if HALF == WHOLE:
        if x.dtype == tl.float16:
            key = ordered_bits(x + 0.0, True)
        elif x.dtype.is_floating():
            key = ordered_bits(x.to(tl.float32) + 0.0, True)
        else:
            key = x.to(tl.int32)
    else:
        if x.dtype.is_floating():
            wide = ordered_bits(x + 0.0, True)
        else:
            wide = x.to(tl.int64)
        if HALF == LOW:
            # Unsigned order by way of signed comparison: the sign bit turned round.
            key = (wide & 0xFFFFFFFF).to(tl.uint32).to(tl.int32, bitcast=True) ^ -0x80000000
        else:
            key = (wide >> 32).to(tl.int32)
    return ~key if DESCENDING else key


@triton.jit
def packed(key: tl.tensor, position: tl.tensor) -> tl.tensor:
    """A key and a position in one number."""
    return (key.to(tl.int64) << 32) | position.to(tl.int64)


@triton.jit
def partner_of(x: tl.tensor, DISTANCE: tl.constexpr) -> tl.tensor:
    """``x[i ^ DISTANCE]``: the sum of a pair, less oneself; what overflows comes back."""
    pairs = tl.reshape(x, [x.numel // (2 * DISTANCE), 2, DISTANCE])
    return tl.reshape(tl.sum(pairs, axis=1, keep_dims=True) - pairs, [x.numel])


@triton.jit
def merge_bitonic(x: tl.tensor, n: tl.tensor, LOG: tl.constexpr) -> tl.tensor:
    """Sort ``2^LOG`` elements that rise and then fall, of which ``n`` is the number."""
    for j in tl.static_range(LOG):
        other = partner_of(x, 1 << (LOG - 1 - j))
        upper = (n & (1 << (LOG - 1 - j))) != 0
        x = tl.where(upper, tl.maximum(x, other), tl.minimum(x, other))
    return x


@triton.jit
def sort_bitonic(x: tl.tensor, n: tl.tensor, LOG: tl.constexpr, UNIT: tl.constexpr) -> tl.tensor:
    """Sort groups of ``2^LOG`` elements, UNIT apart, of which ``n`` is the number within its group.

    Merges to groups of twice the size are a loop, whose body holds the steps of the last one: written out, the steps of
    all would take five times as long to compile.
    """
    for log in range(1, LOG + 1):
        falling = ((n >> log) & 1) != 0  # Never in the last merge.
        for j in tl.static_range(LOG):
            if LOG - 1 - j < log:
                other = partner_of(x, UNIT << (LOG - 1 - j))
                upper = (n & (1 << (LOG - 1 - j))) != 0
                x = tl.where(upper != falling, tl.maximum(x, other), tl.minimum(x, other))
    return x
