"""Special functions of one variable: error functions, gamma functions, Bessel and Airy functions.

All but ``erf`` and ``erfinv`` are computed in float64, whatever the type of the elements, and rounded once: what
cancels in one form or another, such as lgamma near its zeros, loses nothing that a float32 result would show. Fits are
those of :mod:`.fitted_series`; the other formulas are named where they stand. See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, empty_result, map_elements, map_into, served_promotion
from ..common.indexing import IS_INTERPRETED
from ..common.launch import require_served
from ..common.type_rules import float_result, floating
from ..pointwise.basic import clamp_of
from ..pointwise.exponentials import log1p_of
from ..pointwise.rounding import BFLOAT16, FLOAT16, rounded
from . import fitted_series as fits

_PI = tl.constexpr(math.pi)
_ROOT_PI = tl.constexpr(math.sqrt(math.pi))
_ROOT_2 = tl.constexpr(math.sqrt(2.0))
_LOG_PI = tl.constexpr(math.log(math.pi))
_LOG_ROOT_2PI = tl.constexpr(0.5 * math.log(2.0 * math.pi))

ERFCX, ERF_ROUGH = fits.ERFCX, fits.ERF_ROUGH
INVERSE_ERF_NEAR, INVERSE_ERF_FAR = fits.INVERSE_ERF_NEAR, fits.INVERSE_ERF_FAR
I0E_NEAR, I0E_FAR, I1E_NEAR, I1E_FAR = fits.I0E_NEAR, fits.I0E_FAR, fits.I1E_NEAR, fits.I1E_FAR
J0_NEAR, J1_NEAR, Y0_NEAR, Y1_NEAR = fits.J0_NEAR, fits.J1_NEAR, fits.Y0_NEAR, fits.Y1_NEAR
P0_FAR, Q0_FAR, P1_FAR, Q1_FAR = fits.P0_FAR, fits.Q0_FAR, fits.P1_FAR, fits.Q1_FAR
K0_NEAR, K1_NEAR, K0E_FAR, K1E_FAR = fits.K0_NEAR, fits.K1_NEAR, fits.K0E_FAR, fits.K1E_FAR
AIRY_RIGHT, AIRY_NEAR, AIRY_P, AIRY_Q = fits.AIRY_RIGHT, fits.AIRY_NEAR, fits.AIRY_P, fits.AIRY_Q


@triton.jit
def polynomial(t: tl.tensor, COEFFICIENTS: tl.constexpr, COUNT: tl.constexpr) -> tl.tensor:
    """``COEFFICIENTS[0] + COEFFICIENTS[1] t + ..``, by Horner's rule."""
    p = t * 0.0
    for i in tl.static_range(COUNT):
        p = p * t + COEFFICIENTS[COUNT - 1 - i]
    return p


# ---------------------------------------------------------------- error functions


@triton.jit
def erf_of(x: tl.tensor) -> tl.tensor:
    """``2/sqrt(pi)`` times the integral of ``e^(-t^2)`` from 0 to x."""
    return tl.erf(x)


@triton.jit
def erf_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`erf_of`, to 3e-5 of its value, for half types, for which it is 1 from 3 on: ``x`` times a polynomial.

    A float32 ``erf`` has an exponential, two series and a choice between them.
    """
    near = clamp_of(x, -3.0, 3.0)
    return near * polynomial(near * near, ERF_ROUGH, 9)


@triton.jit
def erfcx_above_0(x: tl.tensor) -> tl.tensor:
    """``e^(x^2) erfc(x)`` for ``x >= 0``."""
    return polynomial(1.0 - 8.0 / (x + 4.0), ERFCX, 23) / (1.0 + 2.0 * x)


@triton.jit
def erfc_of(x: tl.tensor) -> tl.tensor:
    """``1 - erf(x)``."""
    positive = tl.exp(-x * x) * erfcx_above_0(tl.abs(x))
    return tl.where(x < 0.0, 2.0 - positive, positive)


@triton.jit
def erfcx_of(x: tl.tensor) -> tl.tensor:
    """``e^(x^2) erfc(x)``."""
    positive = erfcx_above_0(tl.abs(x))
    return tl.where(x < 0.0, 2.0 * tl.exp(x * x) - positive, positive)


@triton.jit
def inverse_erf(x: tl.tensor, q: tl.tensor) -> tl.tensor:
    """The y with ``erf(y) = x``, where ``q = 1 - |x|`` in all its digits.

    Three steps of Halley's method, on erf near 0 and on erfc elsewhere. They begin at the Taylor series of degree 5, or
    at S. Winitzki's ``sqrt(sqrt(b^2 - L/a) - b)``, ``L = ln(1 - x^2)``, ``b = 2/(pi a) + L/2``, ``a = 0.147``.
    """
    a = tl.abs(x)
    central = q > 0.5
    log_q = tl.log(tl.where(central, 0.5, q * (2.0 - q)))
    b = 4.330746750799873 + 0.5 * log_q
    tail = tl.sqrt(tl.sqrt(b * b - log_q * 6.802721088435375) - b)
    y = tl.where(central, a * (0.5 * _ROOT_PI) * (1.0 + a * a * (0.2617993877991494 + a * a * 0.143931731)), tail)
    for _ in tl.static_range(3):
        gap = tl.where(central, tl.erf(y) - a, q - erfc_of(y)) * (0.5 * _ROOT_PI) * tl.exp(y * y)
        y = y - gap / (1.0 + y * gap)
    y = tl.where(q == 0.0, float("inf"), tl.where(q < 0.0, float("nan"), y))
    return tl.where(x < 0.0, -y, tl.where(x == 0.0, x, y))


@triton.jit
def erfinv_of(x: tl.tensor) -> tl.tensor:
    """The y with ``erf(y) = x``.

    In float32 ``x`` times a polynomial in ``w = -ln(1 - x^2)``, or in its root where x is near 1 (M. Giles,
    "Approximating the erfinv function", 2011); the coefficients are our own.
    """
    q = 1.0 - tl.abs(x)
    if x.dtype == tl.float64:
        result = inverse_erf(x, q)
    else:
        w = -tl.log(q * (2.0 - q))
        near = polynomial(0.4 * w - 1.0, INVERSE_ERF_NEAR, 10)
        far = polynomial(1.0807916796308203 * (tl.sqrt(w) - 3.16131566292015), INVERSE_ERF_FAR, 10)
        ratio = tl.where(w <= 5.0, near, far)
        result = tl.where(q > 0.0, x * ratio, tl.where(q == 0.0, x * float("inf"), float("nan")))
    return result


@triton.jit
def ndtri_of(p: tl.tensor) -> tl.tensor:
    """The y below which a standard normal variable lies with probability p."""
    return inverse_erf(2.0 * p - 1.0, tl.where(p < 0.5, 2.0 * p, 2.0 * (1.0 - p))) * _ROOT_2


@triton.jit
def log_ndtr_of(x: tl.tensor) -> tl.tensor:
    """The logarithm of the probability that a standard normal variable lies below x."""
    scaled = x / _ROOT_2
    low = tl.log(0.5 * erfcx_above_0(tl.abs(scaled))) - scaled * scaled
    return tl.where(x < -1.0, low, log1p_of(-0.5 * erfc_of(scaled)))


# ---------------------------------------------------------------- gamma functions


@triton.jit
def lgamma_above_0(x: tl.tensor) -> tl.tensor:
    """``ln gamma(x)`` for x > 0: Stirling's series from 10 on; below, of x + 10 less ``ln(x (x + 1) ..)``."""
    small = x < 10.0
    product = tl.where(small, x, 1.0)
    for i in tl.static_range(1, 10):
        product = product * tl.where(small, x + i, 1.0)
    z = tl.where(small, x + 10.0, x)
    r = 1.0 / (z * z)
    series = 0.0007936507936507937 - r * (
        0.0005952380952380953 - r * (0.0008417508417508417 - r * 0.0019175269175269176)
    )
    series = 0.08333333333333333 - r * (0.002777777777777778 - r * series)
    result = (z - 0.5) * tl.log(z) - z + _LOG_ROOT_2PI + series / z - tl.log(product)
    return tl.where(x == float("inf"), x, result)


@triton.jit
def from_nearest_integer(x: tl.tensor) -> tl.tensor:
    """``x`` less the integer next to it."""
    return x - tl.floor(x + 0.5)


@triton.jit
def lgamma_of(x: tl.tensor) -> tl.tensor:
    """``ln |gamma(x)|``; below 1/2 by ``gamma(x) gamma(1 - x) = pi / sin(pi x)``."""
    mirrored = x < 0.5
    above = lgamma_above_0(tl.where(mirrored, 1.0 - x, x))
    sine = tl.abs(tl.sin(from_nearest_integer(x) * _PI))
    below = _LOG_PI - tl.log(sine) - above
    below = tl.where((sine == 0.0) | (x == float("-inf")), float("inf"), below)
    return tl.where(mirrored, below, above)


@triton.jit
def mvlgamma_of(x: tl.tensor, p: tl.tensor) -> tl.tensor:
    """``p (p - 1) / 4 ln pi`` and the sum of ``ln |gamma(x - j / 2)|`` over ``j < p``."""
    count = tl.max(tl.max(p, axis=1), axis=0)
    total = tl.zeros_like(x) + p * (p - 1.0) * 0.28618247146235004
    j = count * 0.0
    while j < count:
        total += lgamma_of(x - 0.5 * j)
        j += 1.0
    return total


@triton.jit
def mvlgamma_by_way_of(x: tl.tensor, p: tl.tensor, TYPE: tl.constexpr) -> tl.tensor:
    """:func:`mvlgamma_of` as eager has it of a half type: each argument, each term and their sum are rounded to it."""
    count = tl.max(tl.max(p, axis=1), axis=0)
    total = tl.zeros_like(x).to(tl.float32)
    j = count * 0.0
    while j < count:
        shift = rounded(tl.zeros_like(x).to(tl.float32) + (0.5 * (j + 1.0 - count)).to(tl.float32), TYPE)
        argument = rounded(x.to(tl.float32) + shift, TYPE)
        total += rounded(lgamma_of(argument.to(tl.float64)).to(tl.float32), TYPE)
        j += 1.0
    constant = (p * (p - 1.0) * 0.28618247146235004).to(tl.float32)
    if IS_INTERPRETED:
        constant = rounded(constant, TYPE)  # On a CPU eager rounds a number before it is added.
    return rounded(total, TYPE) + constant


@triton.jit
def mvlgamma_by_way_of_bfloat16(x: tl.tensor, p: tl.tensor) -> tl.tensor:
    """:func:`mvlgamma_by_way_of` bfloat16."""
    return mvlgamma_by_way_of(x, p, BFLOAT16)


@triton.jit
def mvlgamma_by_way_of_float16(x: tl.tensor, p: tl.tensor) -> tl.tensor:
    """:func:`mvlgamma_by_way_of` float16."""
    return mvlgamma_by_way_of(x, p, FLOAT16)


@triton.jit
def digamma_of(x: tl.tensor) -> tl.tensor:
    """The derivative of ``ln gamma``: its asymptotic series from 10 on; mirrored as :func:`lgamma_of`."""
    mirrored = x < 0.5
    y = tl.where(mirrored, 1.0 - x, x)
    small = y < 10.0
    steps = y * 0.0
    for i in tl.static_range(10):
        steps += 1.0 / (y + i)
    z = tl.where(small, y + 10.0, y)
    r = 1.0 / (z * z)
    series = 0.004166666666666667 - r * (0.007575757575757576 - r * (0.021092796092796094 - r * 0.08333333333333333))
    series = 0.08333333333333333 - r * (0.008333333333333333 - r * (0.003968253968253968 - r * series))
    above = tl.log(z) - 0.5 / z - r * series - tl.where(small, steps, 0.0)
    angle = from_nearest_integer(x) * _PI
    below = above - tl.cos(angle) / tl.sin(angle) * _PI
    below = tl.where((angle == 0.0) | (x == float("-inf")), float("nan"), below)
    result = tl.where(mirrored, below, above)
    return tl.where(x == 0.0, -1.0 / x, tl.where(x == float("inf"), x, result))


@triton.jit
def trigamma_of(x: tl.tensor) -> tl.tensor:
    """The derivative of digamma, as that."""
    mirrored = x < 0.5
    y = tl.where(mirrored, 1.0 - x, x)
    small = y < 10.0
    steps = y * 0.0
    for i in tl.static_range(10):
        steps += 1.0 / ((y + i) * (y + i))
    z = tl.where(small, y + 10.0, y)
    r = 1.0 / (z * z)
    series = 0.03333333333333333 - r * (0.07575757575757576 - r * (0.2531135531135531 - r * 1.1666666666666667))
    series = 0.16666666666666666 - r * (0.03333333333333333 - r * (0.023809523809523808 - r * series))
    above = (1.0 + 0.5 / z + r * series) / z + tl.where(small, steps, 0.0)
    sine = tl.sin(from_nearest_integer(x) * _PI) / _PI
    below = tl.where(x == float("-inf"), float("nan"), 1.0 / (sine * sine) - above)
    return tl.where(mirrored, below, above)


@triton.jit
def zeta_above_0(s: tl.tensor, q: tl.tensor) -> tl.tensor:
    """The sum of ``(q + k)^-s`` over ``k >= 0`` for q > 0: ten terms for q < 10, then the Euler-Maclaurin formula."""
    small = q < 10.0
    total = tl.zeros_like(s + q)
    k = 0.0
    for _ in range(10):  # Code for one of them: all ten would take a compiler half a minute.
        total += tl.where(small, tl.exp(-s * tl.log(q + k)), 0.0)
        k += 1.0
    a = tl.where(small, q + 10.0, q)
    power = tl.exp(-s * tl.log(a))
    r = 1.0 / (a * a)
    # Bernoulli numbers over factorials, each with the next two factors of s (s + 1) ..
    term = power * s / a
    total += power * a / (s - 1.0) + 0.5 * power + term * 0.08333333333333333
    term = term * r * (s + 1.0) * (s + 2.0)
    total -= term * 0.001388888888888889
    term = term * r * (s + 3.0) * (s + 4.0)
    total += term * 3.306878306878307e-05
    term = term * r * (s + 5.0) * (s + 6.0)
    total -= term * 8.267195767195768e-07
    term = term * r * (s + 7.0) * (s + 8.0)
    total += term * 2.08767569878681e-08
    term = term * r * (s + 9.0) * (s + 10.0)
    total -= term * 5.284190138687493e-10
    term = term * r * (s + 11.0) * (s + 12.0)
    total += term * 1.3382536530684679e-11
    return total


@triton.jit
def zeta_of(s: tl.tensor, q: tl.tensor) -> tl.tensor:
    """Hurwitz's zeta function, the sum of ``(q + k)^-s`` over ``k >= 0``.

    The bases below zero, which have powers for integers s only, are ``-g, -g - 1, .. q``: with ``g`` between 0 and 1
    their sum is ``(-1)^s (zeta(s, g) - zeta(s, 1 - q))``.
    """
    whole = (tl.floor(s) == s) & (tl.floor(q) != q)
    weight = tl.zeros_like(s + q) + 1.0
    sign = tl.where(tl.floor(s * 0.5) * 2.0 == s, weight, -weight)
    below = q < 0.0
    g = tl.where(below, -q - tl.floor(-q), 0.5)
    base = tl.where(below, 1.0 - g, q)
    total = weight * 0.0
    # Again code for one, and no rounds for what a tile does not have.
    for part in range(1 + 2 * tl.max(tl.max(below.to(tl.int32), axis=1), axis=0)):
        total += tl.where(weight == 0.0, 0.0, weight * zeta_above_0(s, base))
        base = tl.where(part == 0, g, 1.0 - tl.where(below, q, 0.0))
        weight = tl.where(below, tl.where(part == 0, sign, -sign), 0.0)
    # Eager's formula overflows for an exponent like this, and has the first term alone, if that is not zero.
    limit = tl.where(q < 1.0, float("inf"), tl.where(q == 1.0, 1.0, float("nan")))
    total = tl.where(s > 1e13, limit, total)
    # Also for an exponent that is NaN, as in eager.
    pole = (s == 1.0) | ((s < 1.0) == 0) & (q <= 0.0) & (tl.floor(q) == q)
    defined = (s > 1.0) & ((q > 0.0) | whole) & (q != float("inf"))
    return tl.where(pole, float("inf"), tl.where(defined, total, float("nan")))


@triton.jit
def polygamma_of(x: tl.tensor, s: tl.tensor, factor: tl.tensor) -> tl.tensor:
    """``(-1)^s (s - 1)! zeta(s, x)``, the derivative of order s of ``ln gamma``; ``factor`` is its first part."""
    return factor * zeta_of(s.to(tl.float64), x)


# ---------------------------------------------------------------- modified Bessel functions


@triton.jit
def i0e_of(x: tl.tensor) -> tl.tensor:
    """``e^-|x| I0(x)``."""
    a = tl.abs(x)
    far = tl.where(a <= 8.0, 8.0, a)
    result = polynomial(16.0 / far - 1.0, I0E_FAR, 21) / tl.sqrt(far)
    return tl.where(a <= 8.0, polynomial(a * 0.25 - 1.0, I0E_NEAR, 29), result)


@triton.jit
def i1e_of(x: tl.tensor) -> tl.tensor:
    """``e^-|x| I1(x)``."""
    a = tl.abs(x)
    far = tl.where(a <= 8.0, 8.0, a)
    result = polynomial(16.0 / far - 1.0, I1E_FAR, 21) / tl.sqrt(far)
    result = tl.where(x < 0.0, -result, result)
    return tl.where(a <= 8.0, x * polynomial(a * 0.25 - 1.0, I1E_NEAR, 32), result)


@triton.jit
def i0_of(x: tl.tensor) -> tl.tensor:
    """The modified Bessel function of the first kind of order 0."""
    return tl.exp(tl.abs(x)) * i0e_of(x)


@triton.jit
def i1_of(x: tl.tensor) -> tl.tensor:
    """The modified Bessel function of the first kind of order 1."""
    return tl.exp(tl.abs(x)) * i1e_of(x)


@triton.jit
def of_positive(x: tl.tensor, at_0: tl.tensor, result: tl.tensor) -> tl.tensor:
    """A result for what is defined above zero: ``at_0`` there, NaN below."""
    return tl.where(x > 0.0, result, tl.where(x == 0.0, at_0, float("nan")))


@triton.jit
def k0_parts(x: tl.tensor) -> tl.tuple:
    """``K0(x)`` for x up to 2, and ``e^x K0(x)`` above."""
    far = tl.where(x <= 2.0, 2.0, x)
    scaled = polynomial(4.0 / far - 1.0, K0E_FAR, 19) / tl.sqrt(far)
    return polynomial(x * x * 0.5 - 1.0, K0_NEAR, 9) - tl.log(x) * i0_of(x), scaled


@triton.jit
def k1_parts(x: tl.tensor) -> tl.tuple:
    """``K1(x)`` for x up to 2, and ``e^x K1(x)`` above."""
    far = tl.where(x <= 2.0, 2.0, x)
    scaled = polynomial(4.0 / far - 1.0, K1E_FAR, 19) / tl.sqrt(far)
    return polynomial(x * x * 0.5 - 1.0, K1_NEAR, 10) / x + tl.log(x) * i1_of(x), scaled


@triton.jit
def k0_of(x: tl.tensor) -> tl.tensor:
    """The modified Bessel function of the second kind of order 0."""
    near, scaled = k0_parts(x)
    return of_positive(x, float("inf"), tl.where(x <= 2.0, near, tl.exp(-x) * scaled))


@triton.jit
def k0e_of(x: tl.tensor) -> tl.tensor:
    """``e^x K0(x)``."""
    near, scaled = k0_parts(x)
    return of_positive(x, float("inf"), tl.where(x <= 2.0, tl.exp(x) * near, scaled))


@triton.jit
def k1_of(x: tl.tensor) -> tl.tensor:
    """The modified Bessel function of the second kind of order 1."""
    near, scaled = k1_parts(x)
    return of_positive(x, float("inf"), tl.where(x <= 2.0, near, tl.exp(-x) * scaled))


@triton.jit
def k1e_of(x: tl.tensor) -> tl.tensor:
    """``e^x K1(x)``."""
    near, scaled = k1_parts(x)
    return of_positive(x, float("inf"), tl.where(x <= 2.0, tl.exp(x) * near, scaled))


# ---------------------------------------------------------------- Bessel functions


@triton.jit
def sine_and_cosine_behind(x: tl.tensor, EIGHTHS: tl.constexpr) -> tl.tuple:
    """Sine and cosine of ``x - EIGHTHS pi/4`` for 1 and 3 eighths of a turn, from those of x."""
    sine, cosine = tl.sin(x), tl.cos(x)
    if EIGHTHS == 1:
        result = (sine - cosine) / _ROOT_2, (sine + cosine) / _ROOT_2
    else:
        result = -(sine + cosine) / _ROOT_2, (sine - cosine) / _ROOT_2
    return result


@triton.jit
def j0_of(x: tl.tensor) -> tl.tensor:
    """The Bessel function of the first kind of order 0."""
    a = tl.abs(x)
    far = tl.where(a <= 8.0, 8.0, a)
    t = 128.0 / (far * far) - 1.0
    sine, cosine = sine_and_cosine_behind(far, 1)
    wave = polynomial(t, P0_FAR, 11) * cosine - polynomial(t, Q0_FAR, 12) / far * sine
    return tl.where(a <= 8.0, polynomial(a * a / 32.0 - 1.0, J0_NEAR, 15), wave * tl.sqrt(2.0 / (far * _PI)))


@triton.jit
def j1_of(x: tl.tensor) -> tl.tensor:
    """The Bessel function of the first kind of order 1."""
    a = tl.abs(x)
    far = tl.where(a <= 8.0, 8.0, a)
    t = 128.0 / (far * far) - 1.0
    sine, cosine = sine_and_cosine_behind(far, 3)
    wave = polynomial(t, P1_FAR, 11) * cosine - polynomial(t, Q1_FAR, 12) / far * sine
    wave = wave * tl.sqrt(2.0 / (far * _PI))
    return tl.where(a <= 8.0, x * polynomial(a * a / 32.0 - 1.0, J1_NEAR, 15), tl.where(x < 0.0, -wave, wave))


@triton.jit
def y0_of(x: tl.tensor) -> tl.tensor:
    """The Bessel function of the second kind of order 0."""
    far = tl.where(x <= 8.0, 8.0, x)
    t = 128.0 / (far * far) - 1.0
    sine, cosine = sine_and_cosine_behind(far, 1)
    wave = polynomial(t, P0_FAR, 11) * sine + polynomial(t, Q0_FAR, 12) / far * cosine
    near = polynomial(x * x / 32.0 - 1.0, Y0_NEAR, 16) + tl.log(x) * j0_of(x) * (2.0 / _PI)
    return of_positive(x, float("-inf"), tl.where(x <= 8.0, near, wave * tl.sqrt(2.0 / (far * _PI))))


@triton.jit
def y1_of(x: tl.tensor) -> tl.tensor:
    """The Bessel function of the second kind of order 1."""
    far = tl.where(x <= 8.0, 8.0, x)
    t = 128.0 / (far * far) - 1.0
    sine, cosine = sine_and_cosine_behind(far, 3)
    wave = polynomial(t, P1_FAR, 11) * sine + polynomial(t, Q1_FAR, 12) / far * cosine
    near = x * polynomial(x * x / 32.0 - 1.0, Y1_NEAR, 15) + (tl.log(x) * j1_of(x) - 1.0 / x) * (2.0 / _PI)
    return of_positive(x, float("-inf"), tl.where(x <= 8.0, near, wave * tl.sqrt(2.0 / (far * _PI))))


@triton.jit
def spherical_j0_of(x: tl.tensor) -> tl.tensor:
    """``sin(x) / x``."""
    return tl.where(x == 0.0, 1.0, tl.where(tl.abs(x) == float("inf"), 0.0, tl.sin(x) / x))


@triton.jit
def airy_ai_of(x: tl.tensor) -> tl.tensor:
    """The solution of ``y'' = x y`` that vanishes to the right."""
    right, left = tl.where(x > 2.0, x, 4.0), tl.where(x < -4.0, -x, 4.0)
    root = tl.sqrt(right)
    z = right * root / 1.5
    falling = tl.exp(-z) * polynomial(32.0 / (9.0 * z) - 1.0, AIRY_RIGHT, 20) / (tl.sqrt(root) * (2.0 * _ROOT_PI))
    root = tl.sqrt(left)
    z = left * root / 1.5
    t = 512.0 / (9.0 * z * z) - 1.0
    sine, cosine = (tl.sin(z) + tl.cos(z)) / _ROOT_2, (tl.cos(z) - tl.sin(z)) / _ROOT_2
    wave = polynomial(t, AIRY_P, 14) * sine - polynomial(t, AIRY_Q, 15) / z * cosine
    near = polynomial((x + 1.0) / 3.0, AIRY_NEAR, 29)
    result = tl.where(x > 2.0, falling, tl.where(x < -4.0, wave / (tl.sqrt(root) * _ROOT_PI), near))
    return tl.where(tl.abs(x) == float("inf"), float("nan"), result)


# ---------------------------------------------------------------- the ops


def _in_float64(function: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """An op that computes in float64; integers and bools are taken as the default float type."""

    def op(self: torch.Tensor) -> torch.Tensor:
        require_served(self)
        return map_elements(function, [self], [torch.float64], float_result(self.dtype))

    return op


def _of_x(function: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """As :func:`_in_float64`, for ops whose argument is called x."""

    def op(x: torch.Tensor) -> torch.Tensor:
        require_served(x)
        return map_elements(function, [x], [torch.float64], float_result(x.dtype))

    return op


def special_zeta(self: Operand, other: Operand) -> torch.Tensor:
    """Hurwitz's zeta function of ``self``, from ``other`` on."""
    result = float_result(served_promotion([self, other]))
    return map_elements(zeta_of, [self, other], [torch.float64] * 2, result)


erf = floating(erf_of, erf_roughly)
erfc = _in_float64(erfc_of)
erfinv = floating(erfinv_of)
special_erfcx = _in_float64(erfcx_of)
special_ndtri = _in_float64(ndtri_of)
special_log_ndtr = _in_float64(log_ndtr_of)
lgamma = _in_float64(lgamma_of)
digamma = _in_float64(digamma_of)
i0 = _in_float64(i0_of)
special_i0e = _in_float64(i0e_of)
special_i1 = _in_float64(i1_of)
special_i1e = _in_float64(i1e_of)
special_modified_bessel_i0 = _in_float64(i0_of)
special_modified_bessel_i1 = _in_float64(i1_of)
special_modified_bessel_k0 = _in_float64(k0_of)
special_modified_bessel_k1 = _in_float64(k1_of)
special_scaled_modified_bessel_k0 = _of_x(k0e_of)
special_scaled_modified_bessel_k1 = _of_x(k1e_of)
special_bessel_j0 = _in_float64(j0_of)
special_bessel_j1 = _in_float64(j1_of)
special_bessel_y0 = _in_float64(y0_of)
special_bessel_y1 = _in_float64(y1_of)
special_spherical_bessel_j0 = _of_x(spherical_j0_of)
special_airy_ai = _of_x(airy_ai_of)


_MVLGAMMA = {torch.bfloat16: mvlgamma_by_way_of_bfloat16, torch.float16: mvlgamma_by_way_of_float16}


def mvlgamma(self: torch.Tensor, p: int) -> torch.Tensor:
    """The logarithm of the gamma function of dimension ``p``.

    Raises:
        ValueError: ``p`` is not positive.
    """
    require_served(self)
    if p < 1:
        raise ValueError(f"p is 1 or more, not {p}")
    function = _MVLGAMMA.get(self.dtype, mvlgamma_of)
    return map_elements(function, [self], [torch.float64], float_result(self.dtype), [p])


def polygamma(n: int, self: torch.Tensor) -> torch.Tensor:
    """The derivative of order ``n`` of digamma.

    Raises:
        ValueError: ``n`` is negative.
    """
    require_served(self)
    out = empty_result([self], float_result(self.dtype))
    _write_polygamma(out, n, self)
    return out


def polygamma_(self: torch.Tensor, n: int) -> torch.Tensor:
    """As :func:`polygamma`, in place.

    Raises:
        TypeError: a type that does not hold the result.
    """
    require_served(self)
    if not self.dtype.is_floating_point:
        raise TypeError(f"{self.dtype} does not hold a derivative of digamma")
    _write_polygamma(self, n, self)
    return self


def _write_polygamma(out: torch.Tensor, n: int, x: torch.Tensor) -> None:
    if n < 0:
        raise ValueError(f"there is no derivative of order {n}")
    if n < 2:
        map_into(out, digamma_of if n == 0 else trigamma_of, [x], [torch.float64])
        return
    factor = math.factorial(n) * (1 if n % 2 else -1)
    map_into(out, polygamma_of, [x], [torch.float64], [n + 1, factor])
