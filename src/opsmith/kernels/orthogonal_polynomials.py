"""Orthogonal polynomials: of Chebyshev (four kinds, also shifted to [0, 1]), Hermite, Laguerre and Legendre.

All follow from their recurrences, of which one step is ``r[k + 1] = (a x + b) r[k] - c r[k - 1]``, walked in float64 as
far as the highest order of a tile's elements that are still finite in the result's type. Between -1 and 1, where they
would go on, those of Chebyshev have closed forms. The order is cut to an integer; below zero, the polynomial is 0. See
:mod:`.pointwise` for the traffic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import triton
import triton.language as tl

from .pointwise import Operand, map_elements, served_promotion
from .trigonometry import acos_of
from .type_rules import float_result

CHEBYSHEV, HERMITE, HERMITE_E, LAGUERRE, LEGENDRE = (tl.constexpr(kind) for kind in range(5))


#: Orders up to this are left to the recurrence.
_LOW = tl.constexpr(8.0)
#: Hermite polynomials of higher order are NaN, as eager has it.
_HIGHEST_HERMITE = tl.constexpr(512.0)


@triton.jit
def whole_order(order: tl.tensor, x: tl.tensor) -> tl.tensor:
    """An order cut to an integer, for each element; what is none counts as negative."""
    n = tl.where(order < 0.0, tl.ceil(order), tl.floor(order))
    return tl.where(tl.abs(order) < 9e18, n, -1.0) + tl.zeros_like(x)


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
def closed(x: tl.tensor, n: tl.tensor, at_1: tl.tensor, at_minus_1: tl.tensor, between: tl.tensor) -> tl.tensor:
    """What is known without a recurrence: at both ends, the lower one's sign changing with n, and between them."""
    sign = tl.where(tl.floor(n * 0.5) * 2.0 == n, 1.0, -1.0)
    return tl.where(x == 1.0, at_1, tl.where(x == -1.0, sign * at_minus_1, between))


@triton.jit
def has_closed_form(x: tl.tensor, n: tl.tensor) -> tl.tensor:
    """Whether :func:`closed` is used."""
    return (tl.abs(x) <= 1.0) & (n > _LOW)


@triton.jit
def angle_of(x: tl.tensor) -> tl.tensor:
    """``arccos x`` where it is defined."""
    return acos_of(tl.where(tl.abs(x) < 1.0, x, 0.0))


@triton.jit
def chebyshev_t_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``cos(n arccos x)``."""
    n = whole_order(order, x)
    one = tl.full(n.shape, 1.0, tl.float64)
    known = has_closed_form(x, n)
    form = closed(x, n, one, one, tl.cos(n * angle_of(x)))
    return tl.where(known, form, recurrence(x, n, x, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_u_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``sin((n + 1) a) / sin(a)`` with ``a = arccos x``."""
    n = whole_order(order, x)
    a = angle_of(x)
    known = has_closed_form(x, n)
    form = closed(x, n, n + 1.0, n + 1.0, tl.sin((n + 1.0) * a) / tl.sin(a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_v_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``cos((n + 1/2) a) / cos(a/2)`` with ``a = arccos x``."""
    n = whole_order(order, x)
    one = tl.full(n.shape, 1.0, tl.float64)
    a = angle_of(x)
    known = has_closed_form(x, n)
    form = closed(x, n, one, 2.0 * n + 1.0, tl.cos((n + 0.5) * a) / tl.cos(0.5 * a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x - 1.0, known, largest, CHEBYSHEV))


@triton.jit
def chebyshev_w_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """``sin((n + 1/2) a) / sin(a/2)`` with ``a = arccos x``."""
    n = whole_order(order, x)
    one = tl.full(n.shape, 1.0, tl.float64)
    a = angle_of(x)
    known = has_closed_form(x, n)
    form = closed(x, n, 2.0 * n + 1.0, one, tl.sin((n + 0.5) * a) / tl.sin(0.5 * a))
    return tl.where(known, form, recurrence(x, n, 2.0 * x + 1.0, known, largest, CHEBYSHEV))


@triton.jit
def shifted_chebyshev_t_of(x: tl.tensor, n: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The first kind at ``2 x - 1``."""
    return chebyshev_t_of(2.0 * x - 1.0, n, largest)


@triton.jit
def shifted_chebyshev_u_of(x: tl.tensor, n: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The second kind at ``2 x - 1``."""
    return chebyshev_u_of(2.0 * x - 1.0, n, largest)


@triton.jit
def shifted_chebyshev_v_of(x: tl.tensor, n: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The third kind at ``2 x - 1``."""
    return chebyshev_v_of(2.0 * x - 1.0, n, largest)


@triton.jit
def shifted_chebyshev_w_of(x: tl.tensor, n: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The fourth kind at ``2 x - 1``."""
    return chebyshev_w_of(2.0 * x - 1.0, n, largest)


@triton.jit
def hermite_h_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The physicists'."""
    n = whole_order(order, x)
    known = n > _HIGHEST_HERMITE
    return tl.where(known, float("nan"), recurrence(x, n, 2.0 * x, known, largest, HERMITE))


@triton.jit
def hermite_he_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """The probabilists'."""
    n = whole_order(order, x)
    known = n > _HIGHEST_HERMITE
    return tl.where(known, float("nan"), recurrence(x, n, x, known, largest, HERMITE_E))


@triton.jit
def laguerre_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """Laguerre's."""
    n = whole_order(order, x)
    known = x == 0.0
    return tl.where(known & (n >= 0.0), 1.0, recurrence(x, n, 1.0 - x, known, largest, LAGUERRE))


@triton.jit
def legendre_of(x: tl.tensor, order: tl.tensor, largest: tl.tensor) -> tl.tensor:
    """Legendre's."""
    n = whole_order(order, x)
    known = (tl.abs(x) == 1.0) & (n >= 0.0)
    one = tl.full(n.shape, 1.0, tl.float64)
    return tl.where(known, closed(x, n, one, one, one), recurrence(x, n, x, known, largest, LEGENDRE))


def _polynomial(function: Any) -> Callable[[Operand, Operand], torch.Tensor]:
    """An op of a place and an order, each a tensor or a number, in their promoted type, or the default float type."""

    def op(x: Operand, n: Operand) -> torch.Tensor:
        result = float_result(served_promotion([x, n]))
        return map_elements(function, [x, n, torch.finfo(result).max], [torch.float64] * 3, result)

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
