"""Signs and lengths: abs, neg, sign, sgn, signbit, copysign, heaviside, and the neighbours of a number.

A complex number's sign is the point of the unit circle in its direction. See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import as_bits, map_elements, same
from ..common.launch import require_served
from ..common.type_rules import predicate, promoting_to_float, refuse_bool
from .complex_parts import map_parts, map_to_real

# ---------------------------------------------------------------- functions of values


@triton.jit
def sign_bit_of(x: tl.tensor) -> tl.tensor:
    """Whether the sign bit of a float is set: of -0.0 and of a negative NaN too."""
    if x.dtype == tl.float64:
        bits = x.to(tl.int64, bitcast=True)
    else:
        bits = x.to(tl.int32, bitcast=True)
    return bits < 0


@triton.jit
def with_sign_of(magnitude: tl.tensor, sign: tl.tensor) -> tl.tensor:
    """``magnitude`` with the sign bit of ``sign``."""
    positive = tl.abs(magnitude)
    return tl.where(sign_bit_of(sign), positive * -1, positive)  # Triton's ``-0.0`` is ``0 - 0.0``.


@triton.jit
def negative_of(x: tl.tensor) -> tl.tensor:
    """``-x``; the negative of a zero is the other one, which ``0 - x`` is not."""
    return x * -1


@triton.jit
def absolute_of(x: tl.tensor) -> tl.tensor:
    """``|x|``."""
    return tl.abs(x)


@triton.jit
def sign_of(x: tl.tensor) -> tl.tensor:
    """-1, 0 or 1; 0 for NaN, as eager has it."""
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


@triton.jit
def hypot_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``sqrt(x^2 + y^2)`` scaled by the larger coordinate, so that no square overflows; infinity wins over NaN."""
    u, v = tl.abs(x), tl.abs(y)
    larger = tl.maximum(u, v, propagate_nan=tl.PropagateNan.ALL)
    ratio = tl.minimum(u, v, propagate_nan=tl.PropagateNan.ALL) / larger
    length = tl.where(larger == 0.0, 0.0, larger * tl.sqrt(1.0 + ratio * ratio))
    return tl.where((u == float("inf")) | (v == float("inf")), float("inf"), length)


@triton.jit
def negative_pair_of(x: tl.tensor, y: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``-(x + y i)``."""
    return -x, -y


@triton.jit
def direction_of(x: tl.tensor, y: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``(x + y i) / |x + y i|``; 0 for 0."""
    length = hypot_of(x, y)
    is_zero = length == 0.0
    return tl.where(is_zero, 0.0, x / length), tl.where(is_zero, 0.0, y / length)


@triton.jit
def is_negative(x: tl.tensor) -> tl.tensor:
    """Whether an integer is negative."""
    return x < 0


@triton.jit
def heaviside_of(x: tl.tensor, at_zero: tl.tensor) -> tl.tensor:
    """0 below zero, 1 above it, ``at_zero`` there; 0 for NaN."""
    return tl.where(x == 0, at_zero, (x > 0).to(at_zero.dtype))


@triton.jit
def next_bits_of(x: tl.tensor, y: tl.tensor, largest: tl.tensor, infinity: tl.tensor) -> tl.tensor:
    """The bits of the float that follows x towards y, all seen as signed integers; ``largest`` is their maximum.

    Read as sign and magnitude, the bits of floats count in the order of the floats: the neighbour is one away. From
    zero it is the smallest number with the sign of y; a NaN of either becomes the result.
    """
    u, v = x & largest, y & largest
    ordered_x, ordered_y = tl.where(x < 0, -u, u), tl.where(y < 0, -v, v)
    grows = (ordered_x < ordered_y) == (x >= 0)
    moved = tl.where(grows, x + 1, x - 1)
    moved = tl.where(u == 0, tl.where(y < 0, -largest, largest * 0 + 1), moved)
    moved = tl.where(ordered_x == ordered_y, y, moved)
    return tl.where(u > infinity, x, tl.where(v > infinity, y, moved))


# ---------------------------------------------------------------- the ops

copysign = promoting_to_float(with_sign_of)
signbit = predicate(sign_bit_of, of_integers=is_negative)


def absolute(self: torch.Tensor) -> torch.Tensor:
    """``|self|``, of complex numbers in the type of their parts; bools and unsigned integers as they are."""
    if self.is_complex():
        return map_to_real(hypot_of, self)
    require_served(self)
    chosen = absolute_of if self.dtype.is_signed else same
    return map_elements(chosen, [self], [self.dtype], self.dtype)


def neg(self: torch.Tensor) -> torch.Tensor:
    """``-self``; unsigned types wrap."""
    if self.is_complex():
        return map_parts(negative_pair_of, [self])
    require_served(self)
    refuse_bool("neg", self.dtype)
    return map_elements(negative_of, [self], [self.dtype], self.dtype)


def sign(self: torch.Tensor) -> torch.Tensor:
    """-1, 0 or 1 in the type of ``self``; bools as they are."""
    require_served(self)
    chosen = same if self.dtype == torch.bool else sign_of
    return map_elements(chosen, [self], [self.dtype], self.dtype)


def sgn(self: torch.Tensor) -> torch.Tensor:
    """As :func:`sign`; of complex numbers ``self / |self|``, and 0 of 0."""
    return map_parts(direction_of, [self]) if self.is_complex() else sign(self)


def heaviside(self: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """0 where ``self`` is negative, 1 where it is positive, ``values`` where it is zero; both have one type."""
    require_served(self, values)
    if self.dtype != values.dtype:
        raise TypeError(f"self is {self.dtype} and values {values.dtype}: they have to agree")
    return map_elements(heaviside_of, [self, values], [self.dtype] * 2, self.dtype)


#: Bits of infinity, as a signed integer, for each float type.
_INFINITY_BITS = {torch.float16: 0x7C00, torch.bfloat16: 0x7F80, torch.float32: 0x7F800000, torch.float64: 0x7FF << 52}


def nextafter(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The float that follows ``self`` in the direction of ``other``."""
    dtype = self.dtype
    if dtype not in _INFINITY_BITS or other.dtype != dtype:
        raise NotImplementedError(f"nextafter of {dtype} and {other.dtype} is not served")
    x, y = as_bits(self), as_bits(other)
    limits = [torch.iinfo(x.dtype).max, _INFINITY_BITS[dtype]]
    return map_elements(next_bits_of, [x, y], [x.dtype] * 2, x.dtype, parameters=limits).view(dtype)
