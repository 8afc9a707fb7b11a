"""Sums, products and quotients of complex numbers, on pairs of numbers; see :mod:`.complex_parts`.

On a GPU eager computes addcmul and addcdiv as LLVM's library does: infinities survive, as C's Annex G wants it, and a
divisor is scaled by a power of two. On a CPU, and in mul and div on either, it does neither: a quotient comes from the
smaller part of the divisor divided by the larger one (Smith, 1962), so that no square overflows.
"""

from __future__ import annotations

import triton
import triton.language as tl

from ..common.indexing import IS_INTERPRETED
from .comparisons import is_infinite, is_nan
from .signs import with_sign_of


@triton.jit
def unit_or_zero(x: tl.tensor) -> tl.tensor:
    """1 for an infinity, else 0, with the sign of x."""
    return with_sign_of(tl.where(is_infinite(x), 1.0, 0.0).to(x.dtype), x)


@triton.jit
def zero_for_nan(x: tl.tensor) -> tl.tensor:
    """0 with the sign of x for NaN, else x."""
    return tl.where(x == x, x, with_sign_of(tl.zeros_like(x), x))  # noqa: PLR0124 - false for NaN


@triton.jit
def times(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``(a + b i) (c + d i)``; two NaNs out of an infinity are computed again from its direction."""
    ac, bd, ad, bc = a * c, b * d, a * d, b * c
    real, imaginary = ac - bd, ad + bc
    if not IS_INTERPRETED:
        first, second = is_infinite(a) | is_infinite(b), is_infinite(c) | is_infinite(d)
        overflown = is_infinite(ac) | is_infinite(bd) | is_infinite(ad) | is_infinite(bc)
        is_lost = is_nan(real) & is_nan(imaginary) & (first | second | overflown)
        a, b = tl.where(first, unit_or_zero(a), zero_for_nan(a)), tl.where(first, unit_or_zero(b), zero_for_nan(b))
        c, d = tl.where(second, unit_or_zero(c), zero_for_nan(c)), tl.where(second, unit_or_zero(d), zero_for_nan(d))
        real = tl.where(is_lost, float("inf") * (a * c - b * d), real)
        imaginary = tl.where(is_lost, float("inf") * (a * d + b * c), imaginary)
    return real, imaginary


@triton.jit
def product_of(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``(a + b i) (c + d i)`` by the formula alone."""
    return a * c - b * d, a * d + b * c


@triton.jit
def is_finite(x: tl.tensor) -> tl.tensor:
    """Neither infinite nor NaN."""
    return tl.abs(x) < float("inf")


@triton.jit
def power_below(x: tl.tensor) -> tl.tensor:
    """The power of two in x, which is positive and normal."""
    if x.dtype == tl.float64:
        power = (x.to(tl.int64, bitcast=True) & 0x7FF0000000000000).to(tl.float64, bitcast=True)
    else:
        power = (x.to(tl.int32, bitcast=True) & 0x7F800000).to(tl.float32, bitcast=True)
    return power


@triton.jit
def scaled_quotient(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``(a + b i) / (c + d i)`` with c and d divided by the power of two in the larger one."""
    larger = tl.maximum(tl.abs(c), tl.abs(d))
    is_scaled = (larger > 0.0) & (larger < float("inf"))
    smallest_normal = 2.2250738585072014e-308 if c.dtype == tl.float64 else 1.1754943508222875e-38
    lift = tl.where(is_scaled & (larger < smallest_normal), 18446744073709551616.0, 1.0).to(c.dtype)
    power = tl.where(is_scaled, power_below(larger * lift), 1.0)
    c, d = c * lift / power, d * lift / power
    divisor = c * c + d * d
    real, imaginary = (a * c + b * d) / divisor * lift / power, (b * c - a * d) / divisor * lift / power
    # What is left of two NaNs: a divisor of 0, an infinity through a number, and a number through an infinity.
    is_lost = is_nan(real) & is_nan(imaginary)
    by_zero = is_lost & (divisor == 0.0) & ~(is_nan(a) & is_nan(b))
    of_infinite = is_lost & (is_infinite(a) | is_infinite(b)) & is_finite(c) & is_finite(d)
    by_infinite = is_lost & (is_infinite(c) | is_infinite(d)) & is_finite(a) & is_finite(b)
    end = with_sign_of(tl.zeros_like(c) + float("inf"), c)
    a1, b1, c1, d1 = unit_or_zero(a), unit_or_zero(b), unit_or_zero(c), unit_or_zero(d)
    real = tl.where(of_infinite, float("inf") * (a1 * c + b1 * d), real)
    imaginary = tl.where(of_infinite, float("inf") * (b1 * c - a1 * d), imaginary)
    real = tl.where(by_infinite, 0.0 * (a * c1 + b * d1), real)
    imaginary = tl.where(by_infinite, 0.0 * (b * c1 - a * d1), imaginary)
    return tl.where(by_zero, end * a, real), tl.where(by_zero, end * b, imaginary)


@triton.jit
def quotient_by_ratio(a: tl.tensor, b: tl.tensor, c: tl.tensor, d: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``(a + b i) / (c + d i)`` by way of the smaller one of c and d divided by the larger one."""
    is_flat = tl.abs(c) >= tl.abs(d)
    ratio = tl.where(is_flat, d / c, c / d)
    scale = 1.0 / tl.where(is_flat, c + d * ratio, c * ratio + d)
    real = tl.where(is_flat, a + b * ratio, a * ratio + b) * scale
    imaginary = tl.where(is_flat, b - a * ratio, b * ratio - a) * scale
    is_zero = (c == 0.0) & (d == 0.0)
    return tl.where(is_zero, a / tl.abs(c), real), tl.where(is_zero, b / tl.abs(d), imaginary)


@triton.jit
def reciprocal_of(c: tl.tensor, d: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``1 / (c + d i)``."""
    real, imaginary = quotient_by_ratio(tl.full(c.shape, 1.0, c.dtype), tl.zeros_like(c), c, d)
    return real, imaginary


@triton.jit
def add_of(
    x: tl.tensor, xi: tl.tensor, y: tl.tensor, yi: tl.tensor, alpha: tl.tensor, alphai: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """``x + alpha y``; each is followed by its imaginary part."""
    real, imaginary = product_of(alpha, alphai, y, yi)
    return x + real, xi + imaginary


@triton.jit
def sub_of(
    x: tl.tensor, xi: tl.tensor, y: tl.tensor, yi: tl.tensor, alpha: tl.tensor, alphai: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """``x - alpha y``; each is followed by its imaginary part."""
    real, imaginary = product_of(alpha, alphai, y, yi)
    return x - real, xi - imaginary


@triton.jit
def combination_of(
    x: tl.tensor,
    xi: tl.tensor,
    y: tl.tensor,
    yi: tl.tensor,
    alpha: tl.tensor,
    alphai: tl.tensor,
    beta: tl.tensor,
    betai: tl.tensor,
) -> tuple[tl.tensor, tl.tensor]:
    """``alpha x + beta y``; each is followed by its imaginary part."""
    real, imaginary = product_of(alpha, alphai, x, xi)
    other, other_imaginary = product_of(beta, betai, y, yi)
    return real + other, imaginary + other_imaginary


@triton.jit
def addcmul_of(
    x: tl.tensor, xi: tl.tensor, y: tl.tensor, yi: tl.tensor, z: tl.tensor, zi: tl.tensor, v: tl.tensor, vi: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """``x + v y z``; each is followed by its imaginary part."""
    real, imaginary = times(y, yi, z, zi)
    real, imaginary = times(v, vi, real, imaginary)
    return x + real, xi + imaginary


@triton.jit
def addcdiv_of(
    x: tl.tensor, xi: tl.tensor, y: tl.tensor, yi: tl.tensor, z: tl.tensor, zi: tl.tensor, v: tl.tensor, vi: tl.tensor
) -> tuple[tl.tensor, tl.tensor]:
    """``x + v y / z``; each is followed by its imaginary part."""
    if IS_INTERPRETED:
        real, imaginary = times(v, vi, y, yi)
        real, imaginary = quotient_by_ratio(real, imaginary, z, zi)
    else:
        real, imaginary = scaled_quotient(y, yi, z, zi)
        real, imaginary = times(v, vi, real, imaginary)
    return x + real, xi + imaginary
