"""Elementwise ops: relu, gelu, exp, where, clamp. See :mod:`.elementwise` for the kernel and its traffic."""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, Operand, as_bits, map_elements, served_promotion
from ..common.launch import pick_device, require_served

# ---------------------------------------------------------------- functions of values


@triton.jit
def relu_of(x: tl.tensor) -> tl.tensor:
    """``max(x, 0)``; the comparison is false for NaN, which stays."""
    return tl.where(x < 0, tl.zeros_like(x), x)


@triton.jit
def exp_of(x: tl.tensor) -> tl.tensor:
    """``e^x`` to about 2 ulp over the whole range.

    A device's float32 ``exp`` is ``2^(x log2 e)``: rounding the product costs up to ``|x| / 2`` ulp. So
    ``x = n ln 2 + r`` with ``|r| < 0.35`` and ``e^x = e^r 2^n``, with ln 2 in two parts of which the first
    has so few bits that ``n`` times it is exact, and ``2^n`` in two factors that stay in range.
    """
    if x.dtype == tl.float64:
        result = tl.exp(x)
    else:
        clamped = minimum_of(maximum_of(x, -150.0), 130.0)
        n = tl.floor(clamped * 1.4426950408889634 + 0.5)
        r = clamped - n * 0.693145751953125 - n * 1.4286068203094173e-06
        half_n = tl.floor(n * 0.5)
        result = tl.exp(r) * tl.exp2(half_n) * tl.exp2(n - half_n)
    return result


@triton.jit
def exp_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`exp_of`, for half types: ``2^(x log2 e)``, a third of its instructions, errs by 1e-5 at most."""
    return tl.exp(x)


@triton.jit
def gelu_erf_of(x: tl.tensor) -> tl.tensor:
    """``x/2 (1 + erf(x / sqrt 2))``."""
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh_of(x: tl.tensor) -> tl.tensor:
    """``x/2 (1 + tanh u) = x / (1 + e^-2u)`` with ``u = sqrt(2/pi) (x + 0.044715 x^3)``.

    The right-hand form does not cancel where tanh u is near -1.
    """
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    return x / (1.0 + exp_of(-2.0 * u))


@triton.jit
def normal_tail_roughly(x: tl.tensor) -> tl.tensor:
    """``P(X > |x|) / e^(-x^2/2)`` of a standard normal X to 2e-6 of its value up to 3.5, to 1e-4 up to 14.

    A polynomial in ``t = 1 / (1 + 0.3 |x|)``, fitted so that the greatest relative error is least. t is the square
    of a reciprocal root, which is one instruction where a division is seven.
    """
    root = tl.rsqrt(1.0 + 0.3 * tl.abs(x))
    t = root * root
    p = (-0.0812357977 * t + 0.228044630) * t - 0.0299589380
    return (((p * t + 0.150628252) * t + 0.112353759) * t + 0.120167467) * t


@triton.jit
def gelu_erf_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`gelu_erf_of`, for half types: ``x P(X <= x)`` from the tail of the normal distribution."""
    tail = normal_tail_roughly(x) * tl.exp2(x * x * -0.7213475204444817)
    return x * tl.where(x < 0.0, tail, 1.0 - tail)


@triton.jit
def gelu_tanh_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`gelu_tanh_of`, for half types: ``x r^2`` with ``r = 1 / sqrt(1 + e^-2u)``."""
    root = tl.rsqrt(1.0 + tl.exp2(x * (-2.302208198 - 0.10294323965 * x * x)))
    return x * (root * root)


@triton.jit
def add_of(x: tl.tensor, y: tl.tensor, alpha: tl.tensor) -> tl.tensor:
    """``x + alpha y``."""
    return x + alpha * y


@triton.jit
def mul_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x y``."""
    return x * y


@triton.jit
def where_of(condition: tl.tensor, x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x`` where the condition holds, else ``y``."""
    return tl.where(condition != 0, x, y)


@triton.jit
def maximum_of(x: tl.tensor, low: tl.tensor) -> tl.tensor:
    """The greater value; NaN if either is NaN."""
    return tl.maximum(x, low, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def minimum_of(x: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The smaller value; NaN if either is NaN."""
    return tl.minimum(x, high, propagate_nan=tl.PropagateNan.ALL)


@triton.jit
def clamp_of(x: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """``min(max(x, low), high)``: ``high`` wins where ``low`` exceeds it."""
    return minimum_of(maximum_of(x, low), high)


# ---------------------------------------------------------------- the ops


def relu(self: torch.Tensor) -> torch.Tensor:
    """``max(self, 0)``. Serves every real type but bool, for which eager raises."""
    require_served(self)
    if self.dtype == torch.bool:
        raise TypeError("relu is not defined for bool")
    return map_elements(relu_of, [self], [self.dtype], self.dtype)


def gelu(self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """``self * P(X <= self)`` for a standard normal X, or its tanh approximation."""
    require_served(self, dtypes=FLOATS)
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    if self.dtype in (torch.float16, torch.bfloat16):
        function = gelu_erf_roughly if approximate == "none" else gelu_tanh_roughly
    else:
        function = gelu_erf_of if approximate == "none" else gelu_tanh_of
    return map_elements(function, [self], [self.dtype], self.dtype)


def exp(self: torch.Tensor) -> torch.Tensor:
    """``e^self``; integers and bools give the default float dtype."""
    require_served(self)
    result = self.dtype if self.dtype.is_floating_point else torch.get_default_dtype()
    function = exp_roughly if result in (torch.float16, torch.bfloat16) else exp_of
    return map_elements(function, [self], [result], result)


def where(condition: torch.Tensor, self: Operand, other: Operand) -> torch.Tensor:
    """``self`` where ``condition`` holds, else ``other``.

    Two tensors of one type move as bits, so complex64 and float8 are served.
    """
    if condition.dtype not in (torch.bool, torch.uint8):  # uint8 is deprecated in eager, and still taken.
        raise TypeError(f"the condition must be a bool tensor, not {condition.dtype}")
    device = pick_device([condition, self, other])
    condition = condition.to(device)
    self, other = (x.to(device) if isinstance(x, torch.Tensor) else x for x in (self, other))
    require_served(condition)
    if isinstance(self, torch.Tensor) and isinstance(other, torch.Tensor) and self.dtype == other.dtype:
        x, y = as_bits(self), as_bits(other)
        return map_elements(where_of, [condition, x, y], [torch.bool, x.dtype, y.dtype], x.dtype).view(self.dtype)
    result = served_promotion([self, other])
    return map_elements(where_of, [condition, self, other], [torch.bool, result, result], result)


def clamp(self: torch.Tensor, min: float | None = None, max: float | None = None) -> torch.Tensor:  # noqa: A002
    """``self`` limited by numbers, in the promoted type; a number that this type cannot hold is an error."""
    return limited(self, min, max)


def clamp_tensor(
    self: torch.Tensor,
    min: torch.Tensor | None = None,  # noqa: A002
    max: torch.Tensor | None = None,  # noqa: A002
) -> torch.Tensor:
    """``self`` limited elementwise by tensors, which broadcast, in the promoted type."""
    return limited(self, min, max)


def limited(self: torch.Tensor, low: Operand | None, high: Operand | None) -> torch.Tensor:
    """Apply the limits that are given: two tensors or two numbers, of which one may be None.

    Raises:
        ValueError: no limit is given.
        TypeError: the result type is bool, for which only one limit is defined, which is a tensor.
        OverflowError: a number is no value of the result type.
    """
    limits = [limit for limit in (low, high) if limit is not None]
    if not limits:
        raise ValueError("clamp needs a minimum or a maximum")
    result = served_promotion([self, *limits])
    tensors = [self, *(limit for limit in limits if isinstance(limit, torch.Tensor))]
    numbers = [limit for limit in limits if not isinstance(limit, torch.Tensor)]
    if result == torch.bool and (numbers or len(limits) == 2):
        raise TypeError("clamp is not defined for bool")
    for value in numbers:
        require_holds(result, value)
    function = clamp_of if len(limits) == 2 else minimum_of if low is None else maximum_of
    return map_elements(function, tensors, [result] * len(tensors), result, parameters=numbers)


def require_holds(dtype: torch.dtype, value: float) -> None:
    """Refuse a number outside the type's range; negative ones wrap in unsigned types, as in eager."""
    if dtype.is_floating_point:
        finite = torch.finfo(dtype)
        fits = math.isnan(value) or math.isinf(value) or finite.min <= value <= finite.max
    else:
        integer = torch.iinfo(dtype)
        fits = (-integer.max if integer.min == 0 else integer.min) <= value <= integer.max
    if not fits:
        raise OverflowError(f"{value!r} is no {dtype} value")
