"""Circular and hyperbolic functions and their inverses, atan2, hypot, sinc, angle and polar coordinates.

The polynomials are minimax fits of this project (iteratively reweighted least squares against 30 digits); in float64
their 8 digits are the start of one Newton-like step of third order, for which sine and cosine are at hand.
See :mod:`.elementwise` for the traffic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import empty_result, map_into_several
from ..common.launch import require_served
from ..common.type_rules import floating, promoting, promoting_to_float, require_type
from .basic import exp_of
from .complex_parts import map_to_real
from .exponentials import expm1_of, log1p_of, log_of
from .signs import hypot_of, sign_bit_of, with_sign_of

_PI = tl.constexpr(3.141592653589793)
_HALF_PI = tl.constexpr(1.5707963267948966)

# ---------------------------------------------------------------- circular functions


@triton.jit
def sin_of(x: tl.tensor) -> tl.tensor:
    """``sin x``, with the exact reduction of large arguments that devices have."""
    return tl.sin(x)


@triton.jit
def cos_of(x: tl.tensor) -> tl.tensor:
    """``cos x``."""
    return tl.cos(x)


@triton.jit
def tan_of(x: tl.tensor) -> tl.tensor:
    """``sin x / cos x``."""
    return tl.sin(x) / tl.cos(x)


@triton.jit
def sinc_of(x: tl.tensor) -> tl.tensor:
    """``sin(pi x) / (pi x)``, 1 next to 0: a device takes denormal numbers for 0 in ``sin``, and ``pi x`` is none."""
    u = x * _PI
    return tl.where(tl.abs(x) < 1e-9, 1.0, tl.sin(u) / u)


@triton.jit
def deg2rad_of(x: tl.tensor) -> tl.tensor:
    """``x pi / 180``."""
    return x * 0.017453292519943295


@triton.jit
def rad2deg_of(x: tl.tensor) -> tl.tensor:
    """``x 180 / pi``."""
    return x * 57.29577951308232


# ---------------------------------------------------------------- their inverses


@triton.jit
def asin_core(x: tl.tensor) -> tl.tensor:
    """``asin x`` for ``|x| <= 0.5``: ``x + x^3 P(x^2)`` with an error below 5e-9 of x."""
    z = x * x
    p = 0.024147611860444236 + z * 0.042218546136556866
    p = 0.07495241777457631 + z * (0.04547709711500355 + z * p)
    return x + x * z * (0.16666753928110148 + z * p)


@triton.jit
def asin_single(x: tl.tensor) -> tl.tensor:
    """``asin x`` to single precision: by ``asin x = pi/2 - 2 asin(sqrt((1 - x) / 2))`` beyond 0.5."""
    u = tl.abs(x)
    outer = u > 0.5
    core = asin_core(tl.where(outer, tl.sqrt(0.5 * (1.0 - u)), u))
    return with_sign_of(tl.where(outer, _HALF_PI - 2.0 * core, core), x)


@triton.jit
def acos_single(x: tl.tensor) -> tl.tensor:
    """``acos x`` to single precision: ``2 asin(sqrt((1 - |x|) / 2))`` from either end, where the angle is small."""
    u = tl.abs(x)
    outer = u > 0.5
    core = asin_core(tl.where(outer, tl.sqrt(0.5 * (1.0 - u)), x))
    return tl.where(outer, tl.where(x < 0.0, _PI - 2.0 * core, 2.0 * core), _HALF_PI - core)


@triton.jit
def asin_of(x: tl.tensor) -> tl.tensor:
    """``asin x``; in float64 corrected by ``sin(asin x - y) = x cos y - sqrt(1 - x^2) sin y``."""
    y = asin_single(x)
    if x.dtype == tl.float64:
        y += x * tl.cos(y) - tl.sqrt((1.0 - x) * (1.0 + x)) * tl.sin(y)
    return y


@triton.jit
def acos_of(x: tl.tensor) -> tl.tensor:
    """``acos x``; in float64 corrected by ``sin(acos x - y) = sqrt(1 - x^2) cos y - x sin y``."""
    y = acos_single(x)
    if x.dtype == tl.float64:
        y += tl.sqrt((1.0 - x) * (1.0 + x)) * tl.cos(y) - x * tl.sin(y)
    return y


@triton.jit
def atan_core(x: tl.tensor) -> tl.tensor:
    """``atan x`` for ``0 <= x <= 1``: ``x + x^3 P(x^2)`` with an error below 3e-9 of x."""
    z = x * x
    p = 0.01106431499774235 + z * -0.0018271846427767038
    p = 0.05823432003406831 + z * (-0.03145546905919716 + z * p)
    p = 0.10957571851054743 + z * (-0.08419445963780223 + z * p)
    p = 0.19998638552546674 + z * (-0.14265244598619203 + z * p)
    y = x + x * z * (-0.33333301864567877 + z * p)
    if x.dtype == tl.float64:
        # tan(atan x - y) = (x cos y - sin y) / (cos y + x sin y).
        y += (x * tl.cos(y) - tl.sin(y)) / (tl.cos(y) + x * tl.sin(y))
    return y


@triton.jit
def atan_of(x: tl.tensor) -> tl.tensor:
    """``atan x``, as ``pi/2 - atan(1/x)`` beyond 1."""
    u = tl.abs(x)
    outer = u > 1.0
    core = atan_core(tl.where(outer, 1.0 / u, u))
    return with_sign_of(tl.where(outer, _HALF_PI - core, core), x)


@triton.jit
def atan2_of(y: tl.tensor, x: tl.tensor) -> tl.tensor:
    """The angle of the point (x, y) in (-pi, pi], by the quotient of the smaller over the larger coordinate."""
    u, v = tl.abs(x), tl.abs(y)
    larger, smaller = tl.maximum(u, v), tl.minimum(u, v)
    ratio = tl.where(smaller == larger, 1.0, smaller / larger)
    core = atan_core(tl.where(larger == 0.0, 0.0, ratio))
    angle = tl.where(v > u, _HALF_PI - core, core)
    angle = with_sign_of(tl.where(sign_bit_of(x), _PI - angle, angle), y)
    return tl.where((x == x) & (y == y), angle, x + y)  # noqa: PLR0124 - false for NaN


@triton.jit
def angle_of(x: tl.tensor) -> tl.tensor:
    """The angle of a real number: pi below zero, else 0; NaN stays."""
    return tl.where(x < 0.0, _PI, tl.where(x == x, 0.0, x))  # noqa: PLR0124 - false for NaN


@triton.jit
def angle_of_pair(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The angle of ``x + y i`` in (-pi, pi]."""
    return atan2_of(y, x)


# ---------------------------------------------------------------- hyperbolic functions


@triton.jit
def sinh_of(x: tl.tensor) -> tl.tensor:
    """``(m + m / (m + 1)) / 2`` with ``m = e^|x| - 1``; far out ``(e^(|x|/2) / 2) e^(|x|/2)``: no overflow."""
    u = tl.abs(x)
    m = expm1_of(u)
    root = exp_of(0.5 * u)
    return with_sign_of(tl.where(u > 20.0, (0.5 * root) * root, 0.5 * (m + m / (m + 1.0))), x)


@triton.jit
def cosh_of(x: tl.tensor) -> tl.tensor:
    """``(e^|x| + e^-|x|) / 2``, far out as :func:`sinh_of`."""
    u = tl.abs(x)
    root = exp_of(0.5 * u)
    e = root * root
    return tl.where(u > 20.0, (0.5 * root) * root, 0.5 * (e + 1.0 / e))


@triton.jit
def tanh_of(x: tl.tensor) -> tl.tensor:
    """``-m / (m + 2)`` with ``m = e^(-2|x|) - 1``, and the sign of x."""
    m = expm1_of(-2.0 * tl.abs(x))
    return with_sign_of(m / (m + 2.0), x)


@triton.jit
def tanh_roughly(x: tl.tensor) -> tl.tensor:
    """``2 / (1 + e^-2x) - 1`` for half types; near 0, where that cancels, ``x - x^3/3 + 2x^5/15``."""
    z = x * x
    series = x + x * z * (-0.3333333333333333 + z * 0.13333333333333333)
    return tl.where(z < 0.0625, series, 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0)


@triton.jit
def asinh_of(x: tl.tensor) -> tl.tensor:
    """``ln(|x| + sqrt(x^2 + 1)) = ln(1 + |x| + x^2 / (1 + sqrt(x^2 + 1)))``, and the sign of x; ``ln 2|x|`` far out."""
    u = tl.abs(x)
    near = log1p_of(u + u * u / (1.0 + tl.sqrt(u * u + 1.0)))
    return with_sign_of(tl.where(u > 268435456.0, log_of(u) + 0.6931471805599453, near), x)


@triton.jit
def acosh_of(x: tl.tensor) -> tl.tensor:
    """``ln(1 + t + sqrt(2 t + t^2))`` with ``t = x - 1``; ``ln 2x`` far out."""
    t = x - 1.0
    near = log1p_of(t + tl.sqrt(t * (t + 2.0)))
    inside = tl.where(x > 268435456.0, log_of(x) + 0.6931471805599453, near)
    return tl.where(x < 1.0, float("nan"), inside)


@triton.jit
def atanh_of(x: tl.tensor) -> tl.tensor:
    """``ln(1 + 2 |x| / (1 - |x|)) / 2``, and the sign of x."""
    u = tl.abs(x)
    return with_sign_of(0.5 * log1p_of(2.0 * u / (1.0 - u)), x)


@triton.jit
def polar_of(radius: tl.tensor, theta: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """The real and the imaginary part of ``radius e^(i theta)``."""
    return radius * tl.cos(theta), radius * tl.sin(theta)


# ---------------------------------------------------------------- the ops

sin = floating(sin_of)
cos = floating(cos_of)
tan = floating(tan_of)
asin = floating(asin_of)
acos = floating(acos_of)
atan = floating(atan_of)
sinh = floating(sinh_of)
cosh = floating(cosh_of)
tanh = floating(tanh_of, tanh_roughly)
asinh = floating(asinh_of)
acosh = floating(acosh_of)
atanh = floating(atanh_of)
sinc = floating(sinc_of)
deg2rad = floating(deg2rad_of)
rad2deg = floating(rad2deg_of)
_real_angle = floating(angle_of)
atan2 = promoting_to_float(atan2_of)
hypot = promoting(hypot_of, bools=False, name="hypot")


def angle(self: torch.Tensor) -> torch.Tensor:
    """The angle of each number, a real one's too; of complex ones row-major, in the type of their parts."""
    return map_to_real(angle_of_pair, self, is_row_major=True) if self.is_complex() else _real_angle(self)


def polar(abs: torch.Tensor, angle: torch.Tensor) -> torch.Tensor:  # noqa: A002
    """``abs e^(i angle)`` as a complex tensor, for float32 and float64."""
    require_served(abs, angle)
    if abs.dtype != angle.dtype:
        raise TypeError(f"abs is {abs.dtype} and angle {angle.dtype}: they have to agree")
    require_type(abs.dtype, of=(torch.float32, torch.float64))
    out = empty_result([abs, angle], torch.complex64 if abs.dtype == torch.float32 else torch.complex128)
    parts = torch.view_as_real(out)
    map_into_several(parts.unbind(-1), polar_of, [abs, angle], [abs.dtype] * 2)
    return out
