"""Orthogonal polynomials: of Chebyshev (four kinds, also shifted to [0, 1]), Hermite, Laguerre and Legendre.

All follow from their recurrences, of which one step is ``r[k + 1] = (a x + b) r[k] - c r[k - 1]``, walked in float64 as
far as the highest order of a tile's elements that are still finite in the result's type. Between -1 and 1, where they
would go on, those of Chebyshev have closed forms. The order is cut to an integer; below zero, the polynomial is 0. See
:mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import Operand, map_elements, served_promotion
from ..common.launch import INTERPRETED
from ..common.type_rules import float_result
from ..pointwise.trigonometry import acos_of
from .special_functions import i0e_of, i1e_of, j0_of, j1_of

CHEBYSHEV, HERMITE, HERMITE_E, LAGUERRE, LEGENDRE = (tl.constexpr(kind) for kind in range(5))


#: Orders up to this are left to the recurrence.
_LOW = tl.constexpr(8.0)
#: Hermite polynomials of higher order are NaN, as eager has it.
_HIGHEST_HERMITE = tl.constexpr(512.0)
#: What eager takes for an order is an int64. What exceeds it is negative on a CPU, and on a GPU the greatest one, which
#: is odd; its float64 is not.
_GREATEST = tl.constexpr(2.0**63)
#: Above these orders the expansions are nearer to the truth than a recurrence in float64, whose coefficients round x;
#: a GPU takes a second to walk up to them.
_HIGH = tl.constexpr(2.0**24)


@triton.jit
def whole_order(order: tl.tensor, x: tl.tensor, beyond: tl.tensor) -> tl.tensor:
    """An order cut to an integer, for each element: ``beyond`` if it exceeds an int64, negative if it is no number."""
    n = tl.where(order < 0.0, tl.ceil(order), tl.floor(order))
    return tl.where(n >= _GREATEST, beyond, tl.where(n > -1.0, n, -1.0)) + tl.zeros_like(x)


@triton.jit
def recurrence(
    x: tl.tensor, n: tl.tensor, first: tl.tensor, known: tl.tensor, largest: tl.tensor, KIND: tl.constexpr
) -> tl.tensor:
    """The polynomial of order n, of which that of order 1 is ``first``; anything where it is ``known`` already.

    What exceeds ``largest`` is infinite, and NaN soon after, or an order of 1e20 would keep a tile busy for ever.
    """
    before = tl.full(n.shape, 1.0, tl.float64)
    here = first + tl.zeros_like(n)
    result = tl.where(n < 0.0, 0.0, tl.where(n < 1.0, before, here))
    n = tl.where(known, 0.0, n)
    last = tl.max(tl.max(n, axis=1), axis=0)
    k = last * 0.0 + 1.0
    while k < last:
        if KIND == CHEBYSHEV:
            after = 2.0 * x * here - before
        elif KIND == HERMITE:
            after = 2.0 * (x * here - k * before)
        elif KIND == HERMITE_E:
            after = x * here - k * before
        elif KIND == LAGUERRE:
            after = ((2.0 * k + 1.0 - x) * here - k * before) / (k + 1.0)
        else:
            after = ((2.0 * k + 1.0) * x * here - k * before) / (k + 1.0)
        before = here
        here = tl.where(tl.abs(after) > largest, after * float("inf"), after)
        k += 1.0
        lost = here != here  # noqa: PLR0124 - NaN stays NaN.
        result = tl.where((n == k) | (lost & (n > k)), here, result)
        last = tl.max(tl.max(tl.where(lost, 0.0, n), axis=1), axis=0)
    return result


@triton.jit
def sign_of_order(n: tl.tensor) -> tl.tensor:
    """``(-1)^n``."""
    return tl.where((tl.floor(n * 0.5) * 2.0 == n) & (n < _GREATEST), 1.0, -1.0)


@triton.jit
def closed(x: tl.tensor, n: tl.tensor, at_1: tl.tensor, at_minus_1: tl.tensor, between: tl.tensor) -> tl.tensor:
    """What is known without a recurrence: at both ends, the lower one's sign changing with n, and between them."""
    return tl.where(x == 1.0, at_1, tl.where(x == -1.0, sign_of_order(n) * at_minus_1, between))


@triton.jit
def twice_and_1(n: tl.tensor) -> tl.tensor:
    """``2 n + 1``, which overflows eager's int64 for the greatest order."""
    return tl.where(n < _GREATEST, 2.0 * n + 1.0, -1.0)


@triton.jit
def has_closed_form(x: tl.tensor, n: tl.tensor) -> tl.tensor:
    """Whether :func:`closed` is used."""
    return (tl.abs(x) <= 1.0) & (n > _LOW)


@triton.jit
def angle_of(x: tl.tensor) -> tl.tensor:
    """``arccos x`` where it is defined."""
    return acos_of(tl.where(tl.abs(x) < 1.0, x, 0.0))


@triton.jit
def chebyshev_t_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``cos(n arccos x)``."""
    n = whole_order(order, x, beyond)
    one = tl.full(n.shape, 1.0, tl.float64)
    known = has_closed_form(x, n)
    form = closed(x, n, one, one, tl.cos(n * angle_of(x)))
    return tl.where(known, form, recurrence(x, n, x, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_u_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``sin((n + 1) a) / sin(a)`` with ``a = arccos x``."""
    n = whole_order(order, x, beyond)
    a = angle_of(x)
    known = has_closed_form(x, n)
    # Also n + 1 overflows, and its opposite is itself.
    at_1 = tl.where(n < _GREATEST, n + 1.0, -_GREATEST)
    form = closed(x, n, at_1, n + 1.0, tl.sin((n + 1.0) * a) / tl.sin(a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_v_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``cos((n + 1/2) a) / cos(a/2)`` with ``a = arccos x``."""
    n = whole_order(order, x, beyond)
    one = tl.full(n.shape, 1.0, tl.float64)
    a = angle_of(x)
    known = has_closed_form(x, n)
    form = closed(x, n, one, twice_and_1(n), tl.cos((n + 0.5) * a) / tl.cos(0.5 * a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x - 1.0, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_w_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``sin((n + 1/2) a) / sin(a/2)`` with ``a = arccos x``."""
    n = whole_order(order, x, beyond)
    one = tl.full(n.shape, 1.0, tl.float64)
    a = angle_of(x)
    known = has_closed_form(x, n)
    form = closed(x, n, twice_and_1(n), one, tl.sin((n + 0.5) * a) / tl.sin(0.5 * a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x + 1.0, known, largest, CHEBYSHEV))


@triton.jit
def shifted_chebyshev_t_of(x: tl.tensor, n: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The first kind at ``2 x - 1``."""
    return chebyshev_t_of(2.0 * x - 1.0, n, beyond, largest)


@triton.jit
def shifted_chebyshev_u_of(x: tl.tensor, n: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The second kind at ``2 x - 1``."""
    return chebyshev_u_of(2.0 * x - 1.0, n, beyond, largest)


@triton.jit
def shifted_chebyshev_v_of(x: tl.tensor, n: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The third kind at ``2 x - 1``."""
    return chebyshev_v_of(2.0 * x - 1.0, n, beyond, largest)


@triton.jit
def shifted_chebyshev_w_of(x: tl.tensor, n: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The fourth kind at ``2 x - 1``."""
    return chebyshev_w_of(2.0 * x - 1.0, n, beyond, largest)


@triton.jit
def hermite_h_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The physicists'."""
    n = whole_order(order, x, beyond)
    known = n > _HIGHEST_HERMITE
    return tl.where(known, float("nan"), recurrence(x, n, 2.0 * x, known, largest, HERMITE))


@triton.jit
def hermite_he_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The probabilists'."""
    n = whole_order(order, x, beyond)
    known = n > _HIGHEST_HERMITE
    return tl.where(known, float("nan"), recurrence(x, n, x, known, largest, HERMITE_E))


@triton.jit
def high_laguerre(x: tl.tensor, n: tl.tensor) -> tl.tensor:
    """``e^(x/2) (J0(u) - c J3(u))`` with ``u = sqrt((4 n + 2) x)`` and ``c = x^2 / (6 u)``; below zero I of ``|x|``.

    The first two terms of F. Tricomi's expansion, of which the third is some ``x^3 / (288 n)``.
    """
    u = tl.sqrt((4.0 * n + 2.0) * tl.abs(x))
    v = tl.where(u < 1.0, 1.0, u)  # For smaller ones the second term is none.
    c = x * x / (6.0 * v)
    i0, j0 = i0e_of(u), j0_of(u)
    i3 = (1.0 + 8.0 / (v * v)) * i1e_of(u) - 4.0 / v * i0
    j3 = (8.0 / (v * v) - 1.0) * j1_of(u) - 4.0 / v * j0
    return tl.where(x < 0.0, tl.exp(0.5 * x + u) * (i0 + c * i3), tl.exp(0.5 * x) * (j0 - c * j3))


@triton.jit
def laguerre_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """Laguerre's."""
    n = whole_order(order, x, beyond)
    at_0 = (x == 0.0) & (n >= 0.0)
    # Farther to the right a polynomial of any high order has left the type's range at an order of some x / 4.
    high = (n > _HIGH) & (x < 2.0 * tl.log(largest) + 20.0) & (x > float("-inf"))
    values = recurrence(x, n, 1.0 - x, at_0 | high, largest, LAGUERRE)
    return tl.where(at_0, 1.0, tl.where(high, high_laguerre(x, n), values))


@triton.jit
def high_legendre(x: tl.tensor, n: tl.tensor) -> tl.tensor:
    """``sqrt(a / sin a) J0((n + 1/2) a)`` with ``a = arccos |x|``: Legendre's of high order between -1 and 1."""
    a = angle_of(tl.abs(x))
    return tl.where(x < 0.0, sign_of_order(n), 1.0) * tl.sqrt(a / tl.sin(a)) * j0_of((n + 0.5) * a)


@triton.jit
def legendre_of(x: tl.tensor, order: tl.tensor, beyond: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """Legendre's."""
    n = whole_order(order, x, beyond)
    known = (tl.abs(x) == 1.0) & (n >= 0.0) | (tl.abs(x) < 1.0) & (n > _HIGH)
    one = tl.full(n.shape, 1.0, tl.float64)
    form = closed(x, n, one, one, high_legendre(x, n))
    return tl.where(known, form, recurrence(x, n, x, known, largest, LEGENDRE))


def _polynomial(function: Any) -> Callable[[Operand, Operand], torch.Tensor]:
    """An op of a place and an order, each a tensor or a number, in their promoted type, or the default float type."""

    def op(x: Operand, n: Operand) -> torch.Tensor:
        result = float_result(served_promotion([x, n]))
        beyond = -1.0 if INTERPRETED else 2.0**63
        return map_elements(function, [x, n, beyond, torch.finfo(result).max], [torch.float64] * 4, result)

    return op


special_chebyshev_polynomial_t = _polynomial(chebyshev_t_of)
special_chebyshev_polynomial_u = _polynomial(chebyshev_u_of)
special_chebyshev_polynomial_v = _polynomial(chebyshev_v_of)
special_chebyshev_polynomial_w = _polynomial(chebyshev_w_of)
special_shifted_chebyshev_polynomial_t = _polynomial(shifted_chebyshev_t_of)
special_shifted_chebyshev_polynomial_u = _polynomial(shifted_chebyshev_u_of)
special_shifted_chebyshev_polynomial_v = _polynomial(shifted_chebyshev_v_of)
special_shifted_chebyshev_polynomial_w = _polynomial(shifted_chebyshev_w_of)
special_hermite_polynomial_h = _polynomial(hermite_h_of)
special_hermite_polynomial_he = _polynomial(hermite_he_of)
special_laguerre_polynomial_l = _polynomial(laguerre_of)
special_legendre_polynomial_p = _polynomial(legendre_of)
