"""Sums, products, quotients, powers and roots. See :mod:`.elementwise` for the traffic."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_elements, same, served_promotion
from ..common.launch import require_served
from ..common.type_rules import floating, form_for, promoting_to_float, refuse_bool
from . import complex_arithmetic
from .basic import add_of, mul_of
from .complex_parts import has_complex, map_parts
from .exponentials import exp2_of, log2_of
from .signs import sign_bit_of

# ---------------------------------------------------------------- quotients and roots


@triton.jit
def quotient_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x / y``, rounded as IEEE 754 says; a device's plain float32 division is off by up to 2 ulp."""
    if x.dtype == tl.float32:
        result = tl.div_rn(x, y)
    else:
        result = x / y
    return result


@triton.jit
def quotient_roughly(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x / y`` for half types."""
    return x / y


@triton.jit
def reciprocal_of(x: tl.tensor) -> tl.tensor:
    """``1 / x``."""
    return quotient_of(tl.full(x.shape, 1.0, x.dtype), x)


@triton.jit
def root_of(x: tl.tensor) -> tl.tensor:
    """``sqrt x``, rounded as IEEE 754 says."""
    if x.dtype == tl.float32:
        result = tl.sqrt_rn(x)
    else:
        result = tl.sqrt(x)
    return result


@triton.jit
def reciprocal_root_of(x: tl.tensor) -> tl.tensor:
    """``1 / sqrt x``; denormal numbers are scaled by ``2^24``, whose root ``2^12`` is put back."""
    if x.dtype == tl.float64:
        result = 1.0 / tl.sqrt(x)
    else:
        small = tl.abs(x) < 1.1754943508222875e-38
        result = tl.rsqrt(tl.where(small, x * 16777216.0, x)) * tl.where(small, 4096.0, 1.0)
    return result


# ---------------------------------------------------------------- sums


@triton.jit
def sub_of(x: tl.tensor, y: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    """``x - alpha y``."""
    return x - alpha * y


@triton.jit
def addcmul_of(x: tl.tensor, y: tl.tensor, z: tl.tensor, value: tl.tensor) -> tl.tensor:
    """``x + value y z``."""
    return x + value * y * z


@triton.jit
def addcdiv_of(x: tl.tensor, y: tl.tensor, z: tl.tensor, value: tl.tensor) -> tl.tensor:
    """``x + value y / z``."""
    return x + value * y / z


@triton.jit
def lerp_of(start: tl.tensor, end: tl.tensor, weight: tl.tensor) -> tl.tensor:
    """``start + weight (end - start)``, from the nearer end, so that weight 1 gives ``end`` itself."""
    distance = end - start
    near_start = tl.abs(weight) < 0.5
    return tl.where(near_start, start + weight * distance, end - distance * (1.0 - weight))


# ---------------------------------------------------------------- powers


@triton.jit
def power_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x^y`` of floats by ``e^(y ln |x|)`` in float64, whose digits outlast the factor y."""
    size = tl.exp(y.to(tl.float64) * tl.log(tl.abs(x).to(tl.float64)))
    return power_of_size(x, y, size.to(x.dtype))


@triton.jit
def power_roughly(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """As :func:`power_of` for half types, by ``2^(y log2 |x|)`` in float32."""
    return power_of_size(x, y, exp2_of(y * log2_of(tl.abs(x))))


@triton.jit
def power_of_size(x: tl.tensor, y: tl.tensor, size: tl.tensor) -> tl.tensor:
    """``x^y`` from ``|x|^y``, by the rules of C99.

    An exponent of 0 and a base of 1 give 1 whatever the other one is. A negative base needs a whole exponent, else the
    result is NaN; the sign of the base is that of the result where the exponent is odd.
    """
    u = tl.abs(x)
    whole = tl.floor(y) == y
    odd = whole & (tl.floor(0.5 * y) != 0.5 * y)
    size = tl.where((u == 1.0) & (y == y), 1.0, size)  # noqa: PLR0124 - false for NaN
    result = tl.where(sign_bit_of(x) & odd, -size, size)
    result = tl.where((x < 0.0) & (u < float("inf")) & (whole == 0), float("nan"), result)
    return tl.where((y == 0.0) | (x == 1.0), 1.0, result)


@triton.jit
def integer_power_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x^y`` of integers by squaring, which wraps; a negative exponent gives 0 but for the bases 1 and -1."""
    x, y = tl.broadcast(x, y)
    result = tl.full(x.shape, 1, x.dtype)
    square = result * x
    left = tl.where(y < 0, 0, y)
    while tl.max(tl.max(left, axis=1), axis=0) > 0:
        result = tl.where((left & 1) == 1, result * square, result)
        square *= square
        left = left >> 1
    alternating = tl.where((y & 1) == 1, x, x * x)
    unit = (x == 1) | (x + 1 == 0)
    return tl.where(y < 0, tl.where(unit, alternating, 0), result)


@triton.jit
def square_of(x: tl.tensor) -> tl.tensor:
    """``x^2``."""
    return x * x


@triton.jit
def cube_of(x: tl.tensor) -> tl.tensor:
    """``x^3``."""
    return x * x * x


@triton.jit
def inverse_square_of(x: tl.tensor) -> tl.tensor:
    """``1 / x^2``."""
    return reciprocal_of(x * x)


@triton.jit
def one_of(x: tl.tensor) -> tl.tensor:
    """1, whatever x is."""
    return tl.full(x.shape, 1, x.dtype)


# ---------------------------------------------------------------- the ops

sqrt = floating(root_of)
rsqrt = floating(reciprocal_root_of)
_real_reciprocal = floating(reciprocal_of)
_real_quotient = promoting_to_float(quotient_of, quotient_roughly)


def reciprocal(self: torch.Tensor) -> torch.Tensor:
    """``1 / self``; integers and bools are taken as the default float type."""
    if self.is_complex():
        return map_parts(complex_arithmetic.reciprocal_of, [self])
    return _real_reciprocal(self)


def div(self: Operand, other: Operand) -> torch.Tensor:
    """``self / other`` in the promoted type, or the default float type where that is an integer's or bool."""
    if has_complex(self, other):
        return map_parts(complex_arithmetic.quotient_by_ratio, [self, other])
    return _real_quotient(self, other)


def add(self: Operand, other: Operand, *, alpha: float = 1) -> torch.Tensor:
    """``self + alpha * other`` in the promoted type; "or" for bools.

    Raises:
        TypeError: an ``alpha`` of a kind that the result type does not have.
    """
    if has_complex(self, other):
        return map_parts(complex_arithmetic.add_of, [self, other], [alpha])
    result = served_promotion([self, other])
    if isinstance(alpha, bool) and result != torch.bool:
        raise TypeError("a bool alpha needs bool operands")
    _require_factor(result, alpha)
    scale = bool(alpha) if result == torch.bool else alpha
    return map_elements(add_of, [self, other], [result] * 2, result, parameters=[scale])


def sub(self: Operand, other: Operand, *, alpha: float = 1) -> torch.Tensor:
    """``self - alpha * other`` in the promoted type."""
    return _scaled_difference(self, other, alpha)


def sub_scalar(self: torch.Tensor, other: float, alpha: float = 1) -> torch.Tensor:
    """As :func:`sub`, of a number."""
    return _scaled_difference(self, other, alpha)


def rsub(self: torch.Tensor, other: torch.Tensor, *, alpha: float = 1) -> torch.Tensor:
    """``other - alpha * self`` in the promoted type."""
    return _scaled_difference(other, self, alpha)


def rsub_scalar(self: torch.Tensor, other: float, alpha: float = 1) -> torch.Tensor:
    """As :func:`rsub`, of a number."""
    return _scaled_difference(other, self, alpha)


def _scaled_difference(self: Operand, other: Operand, alpha: float) -> torch.Tensor:
    if has_complex(self, other):
        return map_parts(complex_arithmetic.sub_of, [self, other], [alpha])
    result = served_promotion([self, other])
    refuse_bool("a difference", result, *(torch.result_type(x, x) for x in (self, other)))
    _require_factor(result, alpha)
    return map_elements(sub_of, [self, other], [result] * 2, result, parameters=[alpha])


def add_scalar(self: torch.Tensor, other: float, alpha: float = 1) -> torch.Tensor:
    """``self + alpha * other``."""
    return add(self, other, alpha=alpha)


def mul(self: Operand, other: Operand) -> torch.Tensor:
    """``self * other`` in the promoted type; "and" for bools."""
    if has_complex(self, other):
        return map_parts(complex_arithmetic.product_of, [self, other])
    result = served_promotion([self, other])
    return map_elements(mul_of, [self, other], [result] * 2, result)


def addcmul(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """``self + value * tensor1 * tensor2`` in the promoted type."""
    operands = [self, tensor1, tensor2]
    if has_complex(*operands):
        return map_parts(complex_arithmetic.addcmul_of, operands, [value])
    result = served_promotion(operands)
    refuse_bool("addcmul", result)
    _require_factor(result, value)
    return map_elements(addcmul_of, operands, [result] * 3, result, parameters=[value])


def addcdiv(self: torch.Tensor, tensor1: torch.Tensor, tensor2: torch.Tensor, *, value: float = 1) -> torch.Tensor:
    """``self + value * tensor1 / tensor2`` in the promoted type, which has to be floating point or complex."""
    operands = [self, tensor1, tensor2]
    if not any(x.dtype.is_floating_point or x.is_complex() for x in operands[1:]):
        raise TypeError("addcdiv of integers is not defined: use div and add")
    if has_complex(*operands):
        return map_parts(complex_arithmetic.addcdiv_of, operands, [value])
    result = served_promotion(operands)
    return map_elements(addcdiv_of, operands, [result] * 3, result, parameters=[value])


def _require_factor(result: torch.dtype, factor: float) -> None:
    """Refuse a factor of a kind that the result type does not have."""
    if isinstance(factor, complex) or (isinstance(factor, float) and not result.is_floating_point):
        raise TypeError(f"the factor {factor!r} does not fit a {result} result")


def lerp(self: torch.Tensor, end: torch.Tensor, weight: Operand) -> torch.Tensor:
    """``self + weight * (end - self)``; tensors of one floating type."""
    tensors = [x for x in (self, end, weight) if isinstance(x, torch.Tensor)]
    require_served(*tensors, joins_numbers=True)
    if any(x.dtype != self.dtype for x in tensors) or not self.dtype.is_floating_point:
        raise TypeError("lerp needs tensors of one floating point type")
    if isinstance(weight, torch.Tensor):
        return map_elements(lerp_of, tensors, [self.dtype] * 3, self.dtype)
    return map_elements(lerp_of, tensors, [self.dtype] * 2, self.dtype, parameters=[weight])


#: Exponents that are a few products. Eager has the same ones, so that signs of zero and infinities agree.
_SHORT_POWERS = {
    0.5: root_of,
    1.0: same,
    2.0: square_of,
    3.0: cube_of,
    -0.5: reciprocal_root_of,
    -1.0: reciprocal_of,
    -2.0: inverse_square_of,
}


def pow_tensor_scalar(self: torch.Tensor, exponent: float) -> torch.Tensor:
    """``self ^ exponent`` in the promoted type.

    Raises:
        ValueError: a negative whole exponent of integers.
    """
    result = served_promotion([self, exponent])
    if exponent == 0:
        return map_elements(one_of, [self], [result], result)
    short = _SHORT_POWERS.get(float(exponent))
    if result.is_floating_point and short is not None:
        return map_elements(short, [self], [result], result)
    if not result.is_floating_point and exponent < 0:
        raise ValueError("integers have no negative powers")
    return power(self, exponent)


def power(self: Operand, exponent: Operand) -> torch.Tensor:
    """``self ^ exponent`` in the promoted type, elementwise."""
    result = served_promotion([self, exponent])
    if result.is_floating_point:
        function = form_for(result, power_of, power_roughly)
    else:
        refuse_bool("pow", result)
        function = integer_power_of
    return map_elements(function, [self, exponent], [result] * 2, result)
