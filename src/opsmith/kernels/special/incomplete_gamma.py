"""The regularized incomplete gamma functions: igamma, ``P(a, x)``, and igammac, ``Q(a, x) = 1 - P(a, x)``.

``P = e^(a ln x - x - ln gamma(a + 1)) (1 + x/(a + 1) + x^2/((a + 1)(a + 2)) + ..)`` where x is below a + 1, and above
it ``Q = e^(a ln x - x - ln gamma(a))`` times a continued fraction, by the modified method of Lentz (NIST Digital
Library of Mathematical Functions, 8.7.1 and 8.9.2). Both go on until the terms of all elements of a tile are below
float64's last digit; the number of steps grows with the root of a. From 10,000 on, two terms of N. M. Temme's uniform
expansion (the same, 8.12) are exact to 1e-9. Computed in float64 and rounded once.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, Operand, map_elements, served_promotion
from ..common.type_rules import refuse_bool, require_type
from .special_functions import erfc_of, lgamma_above_0

#: Steps of a sum or fraction: enough for a up to 10,000.
_MOST_STEPS = tl.constexpr(2000)
_GREAT = tl.constexpr(1e4)
_SMALLEST = tl.constexpr(1e-15)


@triton.jit
def prefactor(a: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``x^a e^-x / gamma(a + 1)``."""
    return tl.exp(a * tl.log(x) - x - lgamma_above_0(a + 1.0))


@triton.jit
def lower_sum(a: tl.tensor, x: tl.tensor, wanted: tl.tensor) -> tl.tensor:
    """``1 + x/(a + 1) + x^2/((a + 1)(a + 2)) + ..`` where it is ``wanted``."""
    x = tl.where(wanted, x, 0.0)
    term = tl.zeros_like(x) + 1.0
    total = term
    k = 1.0
    going = 1
    steps = 0
    while (going > 0) & (steps < _MOST_STEPS):
        term = term * x / (a + k)
        total += term
        k += 1.0
        steps += 1
        going = tl.max(tl.max((term > total * _SMALLEST).to(tl.int32), axis=1), axis=0)
    return total


@triton.jit
def upper_fraction(a: tl.tensor, x: tl.tensor, wanted: tl.tensor) -> tl.tensor:
    """``1/(x + 1 - a - 1(1 - a)/(x + 3 - a - 2(2 - a)/(x + 5 - a - ..)))`` where it is ``wanted``."""
    a = tl.where(wanted, a, 1.0)
    b = tl.where(wanted, x, 1.0) + 1.0 - a
    c = tl.zeros_like(b) + 1e300
    d = 1.0 / b
    result = d
    k = 1.0
    going = 1
    steps = 0
    while (going > 0) & (steps < _MOST_STEPS):
        factor = -k * (k - a)
        b += 2.0
        d = factor * d + b
        c = b + factor / c
        d = 1.0 / tl.where(d == 0.0, 1e-300, d)
        c = tl.where(c == 0.0, 1e-300, c)
        result = result * (c * d)
        k += 1.0
        steps += 1
        going = tl.max(tl.max((tl.abs(c * d - 1.0) > _SMALLEST).to(tl.int32), axis=1), axis=0)
    return result


@triton.jit
def upper_of_great(a: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``Q(a, x)`` for great a: ``erfc(e sqrt(a/2)) / 2 + c e^(-a e^2/2) / sqrt(2 pi a)``.

    With ``m = (x - a) / a``, ``e`` is the root of ``2 (m - ln(1 + m))`` with the sign of m, and ``c = 1/m - 1/e``; both
    are taken from their series near zero.
    """
    m = (x - a) / a
    near = tl.abs(m) < 0.01
    far_m = tl.where(near, 1.0, m)
    root = tl.sqrt(2.0 * (far_m - tl.log(1.0 + far_m)))
    far_e = tl.where(far_m < 0.0, -root, root)
    near_e = m * (1.0 - m * (0.3333333333333333 - m * (0.19444444444444445 - m * 0.13518518518518519)))
    near_c = -0.3333333333333333 + near_e * (0.08333333333333333 - near_e * 0.014814814814814815)
    e = tl.where(near, near_e, far_e)
    c = tl.where(near, near_c, 1.0 / far_m - 1.0 / far_e)
    scaled = e * tl.sqrt(0.5 * a)
    return 0.5 * erfc_of(scaled) + c * tl.exp(-scaled * scaled) / tl.sqrt(a * 6.283185307179586)


@triton.jit
def regularized(a: tl.tensor, x: tl.tensor, LOWER: tl.constexpr) -> tl.tensor:
    """``P(a, x)`` or ``Q(a, x)``."""
    inside = (a > 0.0) & (x > 0.0) & (a < 1e300) & (x < 1e300)
    a_in, x_in = tl.where(inside, a, 1.0), tl.where(inside, x, 1.0)
    great = a_in > _GREAT
    expanded = upper_of_great(tl.where(great, a_in, _GREAT), tl.where(great, x_in, _GREAT))
    a_in, x_in = tl.where(great, 1.0, a_in), tl.where(great, 1.0, x_in)
    below = (x_in < a_in + 1.0) & (great == 0)
    front = prefactor(a_in, x_in)
    lower = front * lower_sum(a_in, x_in, below)
    upper = tl.where(great, expanded, front * a_in * upper_fraction(a_in, x_in, below == 0))
    none, one = tl.zeros_like(lower), tl.zeros_like(lower) + 1.0
    if LOWER:
        result = tl.where(below, lower, 1.0 - upper)
        at_0, at_end = none, one
    else:
        result = tl.where(below, 1.0 - lower, upper)
        at_0, at_end = one, none
    first, last = (x == 0.0) | (a == float("inf")), ((a == 0.0) & (x > 0.0)) | (x == float("inf"))
    # As in eager, an end hides a NaN in the other argument.
    defined = (first | last) & ((a < 0.0) == 0) & ((x < 0.0) == 0)
    defined = defined & (((a == 0.0) & (x == 0.0)) == 0) & (((a == float("inf")) & (x == float("inf"))) == 0)
    ends = tl.where(defined, tl.where(first, at_0, at_end), float("nan"))
    return tl.where(inside, result, ends)


@triton.jit
def lower_of(a: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``P(a, x)``."""
    return regularized(a, x, True)


@triton.jit
def upper_of(a: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``Q(a, x)``."""
    return regularized(a, x, False)


def igamma(self: Operand, other: Operand) -> torch.Tensor:
    """``P(self, other)``."""
    return _incomplete(lower_of, self, other)


def igammac(self: Operand, other: Operand) -> torch.Tensor:
    """``Q(self, other)``."""
    return _incomplete(upper_of, self, other)


def _incomplete(function: object, a: Operand, x: Operand) -> torch.Tensor:
    result = served_promotion([a, x])
    refuse_bool("the incomplete gamma function", result)
    require_type(result, of=FLOATS)
    return map_elements(function, [a, x], [torch.float64] * 2, result)
