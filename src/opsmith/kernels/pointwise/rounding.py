"""Rounding to whole numbers, and division with a whole quotient or a remainder.

See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_elements, served_promotion
from ..common.indexing import converted
from ..common.launch import ELEMENT_TYPE, INTERPRETED, require_served
from ..common.type_rules import SINGLE, only_floating, refuse_bool, require_type, rounding
from .arithmetic import div, quotient_of

#: The half types, to which eager rounds quotients. The compiler takes constants only, the interpreter plain types.
BFLOAT16, FLOAT16 = (
    kind if INTERPRETED else tl.constexpr(kind) for kind in (ELEMENT_TYPE[torch.bfloat16], ELEMENT_TYPE[torch.float16])
)

# ---------------------------------------------------------------- to whole numbers


@triton.jit
def floor_of(x: tl.tensor) -> tl.tensor:
    """The greatest whole number up to x; a device takes denormal numbers for zero, whose floor is -1 below it."""
    down = tl.floor(x)
    return tl.where((down == 0) & (x < 0), -1.0, down)


@triton.jit
def ceil_of(x: tl.tensor) -> tl.tensor:
    """The least whole number from x on; denormal numbers as in :func:`floor_of`."""
    up = tl.ceil(x)
    return tl.where((up == 0) & (x > 0), 1.0, up)


@triton.jit
def trunc_of(x: tl.tensor) -> tl.tensor:
    """X without its fraction."""
    return tl.where(x < 0, tl.ceil(x), tl.floor(x))


@triton.jit
def frac_of(x: tl.tensor) -> tl.tensor:
    """The fraction of x, with its sign."""
    return x - trunc_of(x)


@triton.jit
def round_of(x: tl.tensor) -> tl.tensor:
    """The nearest whole number, ties to even: x plus a number that leaves no room for fractions, and minus it."""
    no_fractions: tl.constexpr = 4503599627370496.0 if x.dtype == tl.float64 else 8388608.0
    u = tl.abs(x)
    nearest = (u + no_fractions) - no_fractions
    nearest = tl.where(u < no_fractions, nearest, u)
    # Times -1 and not a difference, so that -0.3 gives -0.0.
    return tl.where(x < 0, -nearest, tl.where(x == 0, x, nearest))


@triton.jit
def rounded(x: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """The nearest number of ``TYPE``."""
    return converted(x, TYPE).to(x.dtype)


@triton.jit
def round_fraction_in(x: tl.tensor, power: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """X rounded to a multiple of ``1 / power``, with the power and the product in ``TYPE``."""
    power = rounded(power, TYPE)
    return quotient_of(round_of(rounded(x * power, TYPE)), power)


@triton.jit
def round_tens_in(x: tl.tensor, power: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """X rounded to a multiple of ``power``, with the power and the quotient in ``TYPE``."""
    power = rounded(power, TYPE)
    return round_of(rounded(quotient_of(x, power), TYPE)) * power


@triton.jit
def round_fraction_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """X rounded to a multiple of ``1 / power``."""
    return round_fraction_in(x, power, x.dtype)


@triton.jit
def round_tens_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """X rounded to a multiple of ``power``."""
    return round_tens_in(x, power, x.dtype)


@triton.jit
def round_bfloat16_fraction_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """:func:`round_fraction_of` by way of bfloat16."""
    return round_fraction_in(x, power, BFLOAT16)


@triton.jit
def round_bfloat16_tens_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """:func:`round_tens_of` by way of bfloat16."""
    return round_tens_in(x, power, BFLOAT16)


@triton.jit
def round_float16_fraction_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """:func:`round_fraction_of` by way of float16."""
    return round_fraction_in(x, power, FLOAT16)


@triton.jit
def round_float16_tens_of(x: tl.tensor, power: tl.tensor) -> tl.tensor:
    """:func:`round_tens_of` by way of float16."""
    return round_tens_in(x, power, FLOAT16)


# ---------------------------------------------------------------- remainders


@triton.jit
def fmod_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x - y trunc(x / y)``, exact: the remainder has the sign of x.

    Floats are divided in float64, where a multiple of y is exact while the factor has at most 28 bits. A longer
    quotient is taken off in pieces of 27 bits, the leading ones first; nearly always there is one piece.
    """
    if x.dtype.is_floating():
        rest, step = tl.broadcast(tl.abs(x).to(tl.float64), tl.abs(y).to(tl.float64))
        defined = (rest < float("inf")) & (step > 0.0)
        rest = tl.where(defined, rest, 0.0)
        step = tl.where(defined, step, 1.0)
        while tl.max(tl.max((rest >= step).to(tl.int32), axis=1), axis=0) > 0:
            quotient = rest / step
            exponent = (quotient.to(tl.int64, bitcast=True) >> 52) - 1023
            piece = (tl.maximum(exponent - 27, 0) + 1023 << 52).to(tl.float64, bitcast=True)
            less = rest - tl.floor(quotient / piece) * (step * piece)
            less = tl.where(less < 0.0, less + step * piece, less)
            rest = tl.where(rest < step, rest, less)
        size = rest.to(x.dtype)
        result = tl.where(defined, tl.where(x < 0, -size, size), float("nan"))
    else:
        result = x % y
    return result


@triton.jit
def remainder_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x - y floor(x / y)``: the remainder has the sign of y."""
    rest = fmod_of(x, y)
    return tl.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


@triton.jit
def floor_quotient_in(x: tl.tensor, y: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """``floor(x / y)`` of floats with every step rounded to ``TYPE``.

    As Python has it: from the exact remainder, so that a quotient that rounds up to a whole number is not taken for it.
    """
    quotient = quotient_of(x, y)
    rest = fmod_of(x, y)
    exact = rounded(quotient_of(rounded(x - rest, TYPE), y), TYPE)
    exact = tl.where((rest != 0.0) & ((rest < 0.0) != (y < 0.0)), rounded(exact - 1.0, TYPE), exact)
    down = floor_of(exact)
    down = tl.where(exact - down > 0.5, down + 1.0, down)
    signed_zero = quotient * 0.0
    return tl.where(y == 0.0, quotient, tl.where(exact == 0.0, signed_zero, down))


@triton.jit
def floor_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``floor(x / y)``."""
    if x.dtype.is_floating():
        result = floor_quotient_in(x, y, x.dtype)
    else:
        quotient = x // y
        result = tl.where((quotient * y != x) & ((x < 0) != (y < 0)), quotient - 1, quotient)
    return result


@triton.jit
def floor_bfloat16_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``floor(x / y)`` in bfloat16."""
    return floor_quotient_in(x, y, BFLOAT16)


@triton.jit
def floor_float16_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``floor(x / y)`` in float16."""
    return floor_quotient_in(x, y, FLOAT16)


@triton.jit
def whole_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``trunc(x / y)``."""
    if x.dtype.is_floating():
        result = trunc_of(quotient_of(x, y))
    else:
        result = x // y
    return result


@triton.jit
def whole_bfloat16_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``trunc(x / y)`` of the quotient in bfloat16."""
    return trunc_of(rounded(quotient_of(x, y), BFLOAT16))


@triton.jit
def whole_float16_quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``trunc(x / y)`` of the quotient in float16."""
    return trunc_of(rounded(quotient_of(x, y), FLOAT16))


# ---------------------------------------------------------------- the ops

floor = rounding(floor_of)
ceil = rounding(ceil_of)
trunc = rounding(trunc_of)
round_to_even = rounding(round_of)
frac = only_floating(frac_of)


def round_decimals(self: torch.Tensor, *, decimals: int) -> torch.Tensor:
    """``self`` rounded to a number of decimals, which may be negative."""
    require_served(self)
    if not self.dtype.is_floating_point:
        raise TypeError(f"rounding to decimals is not defined for {self.dtype}")
    if decimals == 0:
        return round_to_even(self)
    fraction, tens = (_ROUNDED_ON_DEVICE if self.is_cuda else {}).get(self.dtype, (round_fraction_of, round_tens_of))
    function = fraction if decimals > 0 else tens
    return map_elements(function, [self], [self.dtype], self.dtype, parameters=[10.0 ** abs(decimals)])


def fmod(self: Operand, other: Operand) -> torch.Tensor:
    """The remainder of ``self / other`` with the sign of ``self``."""
    return _divided(fmod_of, self, other, rounds_numbers=True)


def remainder(self: Operand, other: Operand) -> torch.Tensor:
    """The remainder of ``self / other`` with the sign of ``other``."""
    return _divided(remainder_of, self, other, rounds_numbers=True)


def floor_divide(self: Operand, other: Operand) -> torch.Tensor:
    """``floor(self / other)``."""
    return _divided(floor_quotient_of, self, other, None if _is_on_device(self, other) else _FLOOR_QUOTIENTS)


def div_mode(self: Operand, other: Operand, *, rounding_mode: str | None) -> torch.Tensor:
    """``self / other``, rounded down (``floor``), towards zero (``trunc``) or not at all (None)."""
    if rounding_mode is None:
        return div(self, other)
    if rounding_mode not in ("floor", "trunc"):
        raise ValueError(f"rounding_mode must be None, 'floor' or 'trunc', not {rounding_mode!r}")
    if rounding_mode == "floor":
        return floor_divide(self, other)
    return _divided(whole_quotient_of, self, other, _WHOLE_QUOTIENTS)


def _is_on_device(*operands: Operand) -> bool:
    return any(isinstance(operand, torch.Tensor) and operand.is_cuda for operand in operands)


#: In half types eager rounds every step of a division of tensors, except to a floor on a device; by a number it divides
#: in float32.
_FLOOR_QUOTIENTS = {torch.bfloat16: floor_bfloat16_quotient_of, torch.float16: floor_float16_quotient_of}
#: And on a device, other than on a CPU, it scales to decimals in them.
_ROUNDED_ON_DEVICE = {
    torch.bfloat16: (round_bfloat16_fraction_of, round_bfloat16_tens_of),
    torch.float16: (round_float16_fraction_of, round_float16_tens_of),
}
_WHOLE_QUOTIENTS = {torch.bfloat16: whole_bfloat16_quotient_of, torch.float16: whole_float16_quotient_of}


def _divided(
    function: object,
    self: Operand,
    other: Operand,
    between_tensors: Mapping[torch.dtype, object] | None = None,
    *,
    rounds_numbers: bool = False,
) -> torch.Tensor:
    """Apply a whole division in the promoted type; float64 would need more than float64 inside."""
    result = served_promotion([self, other])
    refuse_bool("a whole quotient or remainder", result)
    if result.is_floating_point and function is not whole_quotient_of:
        require_type(result, of=SINGLE)
    if between_tensors and isinstance(other, torch.Tensor) and (other.ndim or other.is_cuda):
        function = between_tensors.get(result, function)
    return map_elements(function, [self, other], [result] * 2, result, rounds_numbers=rounds_numbers)
