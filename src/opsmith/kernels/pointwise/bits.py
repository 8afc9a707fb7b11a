"""Bitwise ops, shifts, common divisors, and floats taken apart into mantissa and exponent.

See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_elements, map_several, served_promotion
from ..common.launch import require_served
from ..common.type_rules import SINGLE, float_result, refuse_bool, require_type
from .comparisons import is_zero
from .exponentials import exp2_of

# ---------------------------------------------------------------- functions of values


@triton.jit
def and_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The bits that both have."""
    return x & y


@triton.jit
def or_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The bits that either has."""
    return x | y


@triton.jit
def xor_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The bits that one of them alone has."""
    return x ^ y


@triton.jit
def not_of(x: tl.tensor) -> tl.tensor:
    """The bits that x does not have."""
    return ~x


@triton.jit
def shifted_left_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x 2^y``; 0 where no bit of x is left, or y is negative."""
    width: tl.constexpr = x.dtype.primitive_bitwidth
    inside = (y >= 0) & (y < width)
    return tl.where(inside, x << tl.where(inside, y, 0), 0)


@triton.jit
def shifted_right_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``floor(x / 2^y)``; the sign alone where no bit of x is left, or y is negative."""
    width: tl.constexpr = x.dtype.primitive_bitwidth
    inside = (y >= 0) & (y < width)
    return (
        x >> tl.where(inside, y, width - 1)
        if x.dtype.is_int_signed()
        else tl.where(inside, x >> tl.where(inside, y, 0), 0)
    )


@triton.jit
def gcd_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The greatest common divisor, by Euclid's algorithm; the tile goes on until its last pair is done."""
    u, v = tl.broadcast(tl.abs(x), tl.abs(y))
    while tl.max(tl.max((v != 0).to(tl.int32), axis=1), axis=0) > 0:
        rest = u % tl.where(v == 0, 1, v)
        u, v = tl.where(v == 0, u, v), tl.where(v == 0, v, rest)
    return u


@triton.jit
def lcm_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The least common multiple ``|x / gcd * y|``; 0 if either is."""
    divisor = gcd_of(x, y)
    return tl.abs(x // tl.where(divisor == 0, 1, divisor) * y)


@triton.jit
def mantissa_and_exponent_of(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """M and e with ``x = m 2^e`` and ``0.5 <= |m| < 1``; zero, NaN and infinities as they are, with exponent 0."""
    small = tl.abs(x) < 1.1754943508222875e-38
    scaled = tl.where(small, x * 16777216.0, x)
    bits = scaled.to(tl.int32, bitcast=True)
    field = (bits >> 23) & 0xFF
    mantissa = ((bits & -0x7F800001) | (126 << 23)).to(tl.float32, bitcast=True)
    plain = (x == 0.0) | (field == 255)
    exponent = field - 126 - tl.where(small, 24, 0)
    return tl.where(plain, x, mantissa), tl.where(plain, 0, exponent)


@triton.jit
def scaled_by_power_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x 2^y``."""
    return x * exp2_of(y)


# ---------------------------------------------------------------- the ops


def _bitwise(function: object, self: Operand, other: Operand) -> torch.Tensor:
    result = served_promotion([self, other])
    if result.is_floating_point:
        raise TypeError(f"bits of {result} are not defined")
    return map_elements(function, [self, other], [result] * 2, result)


def bitwise_and(self: Operand, other: Operand) -> torch.Tensor:
    """The bits that both have."""
    return _bitwise(and_of, self, other)


def bitwise_or(self: Operand, other: Operand) -> torch.Tensor:
    """The bits that either has."""
    return _bitwise(or_of, self, other)


def bitwise_xor(self: Operand, other: Operand) -> torch.Tensor:
    """The bits that one of them alone has."""
    return _bitwise(xor_of, self, other)


def bitwise_not(self: torch.Tensor) -> torch.Tensor:
    """The bits that ``self`` does not have; "not" for bools."""
    require_served(self)
    if self.dtype.is_floating_point:
        raise TypeError(f"bits of {self.dtype} are not defined")
    function = is_zero if self.dtype == torch.bool else not_of
    return map_elements(function, [self], [self.dtype], self.dtype)


def left_shift(self: Operand, other: Operand) -> torch.Tensor:
    """``self * 2^other``."""
    return _shifted(shifted_left_of, self, other)


def right_shift(self: Operand, other: Operand) -> torch.Tensor:
    """``floor(self / 2^other)``."""
    return _shifted(shifted_right_of, self, other)


def _shifted(function: object, self: Operand, other: Operand) -> torch.Tensor:
    refuse_bool("a shift", served_promotion([self, other]))
    return _bitwise(function, self, other)


def gcd(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The greatest common divisor, elementwise."""
    return _shifted(gcd_of, self, other)


def lcm(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """The least common multiple, elementwise."""
    return _shifted(lcm_of, self, other)


def frexp(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Mantissa and exponent, the latter as int32: ``self = mantissa * 2^exponent``."""
    require_served(self)
    require_type(self.dtype, of=SINGLE)
    return map_several(mantissa_and_exponent_of, [self], [self.dtype], [self.dtype, torch.int32])  # type: ignore[return-value]


def ldexp(self: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """``self * 2^other``."""
    result = float_result(served_promotion([self, other]))
    return map_elements(scaled_by_power_of, [self, other], [result] * 2, result)
