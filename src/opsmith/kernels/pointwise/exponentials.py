"""Exponentials, logarithms and what is made of them: expm1, exp2, log, log1p, sigmoid, logit, logaddexp, xlogy, entr.

A device's float32 ``exp`` and ``log`` treat denormal numbers as zero, and their compositions cancel near the zeros of a
function; each form below is chosen so that the relative error stays at a few ulp. See :mod:`.elementwise` for the
traffic.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_elements
from ..common.launch import require_served
from ..common.type_rules import float_result, floating, promoting_to_float, require_type
from .basic import clamp_of, exp_of, minimum_of

_SMALLEST_NORMAL = tl.constexpr(1.1754943508222875e-38)
_LN2 = tl.constexpr(0.6931471805599453)

# ---------------------------------------------------------------- exponentials


@triton.jit
def exp2_of(x: tl.tensor) -> tl.tensor:
    """``2^x`` as ``2^n 2^(x - n)``; ``2^n`` in two factors, since ``2^-149`` is no power that a device gives."""
    if x.dtype == tl.float64:
        result = tl.exp2(x)
    else:
        clamped = clamp_of(x, -160.0, 130.0)
        n = tl.floor(clamped)
        half_n = tl.floor(n * 0.5)
        result = tl.exp2(clamped - n) * tl.exp2(half_n) * tl.exp2(n - half_n)
    return result


@triton.jit
def expm1_of(x: tl.tensor) -> tl.tensor:
    """``e^x - 1`` without cancelling near 0.

    float32: ``x = n ln 2 + r`` as in :func:`.basic.exp_of`; ``e^r - 1`` is a polynomial (minimax for ``|r| <
    0.348``, error 3e-10 of r), and ``2^n (e^r - 1) + (2^n - 1)`` adds numbers of which the second is exact. It is
    computed with half the power, so that the largest results do not overflow on the way. float64: ``(u - 1) x / log
    u`` with the rounded ``u = e^x``, whose two errors cancel (W. Kahan).
    """
    if x.dtype == tl.float64:
        u = tl.exp(x)
        result = tl.where(u - 1.0 == -1.0, -1.0, (u - 1.0) * (x / tl.log(u)))
        result = tl.where(u == 1.0, x, tl.where(u == float("inf"), u, result))
    else:
        clamped = clamp_of(x, -50.0, 89.0)
        n = tl.floor(clamped * 1.4426950408889634 + 0.5)
        r = clamped - n * 0.693145751953125 - n * 1.4286068203094173e-06
        p = 1.3941220559999545e-03 + r * 1.9913851403334894e-04
        p = 0.04166635204430803 + r * (8.333273678041679e-03 + r * p)
        p = r + r * r * (0.5000000047041011 + r * (0.16666666814147144 + r * p))
        half_power = tl.exp2(n - 1.0)
        result = 2.0 * (half_power * p + (half_power - 0.5))
        result = tl.where(x > 88.73, float("inf"), tl.where(x == 0.0, x, result))
    return result


# ---------------------------------------------------------------- logarithms


@triton.jit
def log_of(x: tl.tensor) -> tl.tensor:
    """``ln x``; denormal numbers are scaled into the range of the device's ``log``."""
    if x.dtype == tl.float64:
        result = tl.log(x)
    else:
        small = x < _SMALLEST_NORMAL
        result = tl.log(tl.where(small, x * 16777216.0, x)) - tl.where(small, 24.0 * _LN2, 0.0)
    return result


@triton.jit
def log2_of(x: tl.tensor) -> tl.tensor:
    """``log2 x``."""
    if x.dtype == tl.float64:
        result = tl.log2(x)
    else:
        small = x < _SMALLEST_NORMAL
        result = tl.log2(tl.where(small, x * 16777216.0, x)) - tl.where(small, 24.0, 0.0)
    return result


@triton.jit
def log10_of(x: tl.tensor) -> tl.tensor:
    """``ln x / ln 10``."""
    return log_of(x) * 0.4342944819032518


@triton.jit
def log1p_of(x: tl.tensor) -> tl.tensor:
    """``ln(1 + x)``: ``ln(u) x / (u - 1)`` with the rounded ``u = 1 + x``, whose two errors cancel (W. Kahan)."""
    u = 1.0 + x
    result = tl.log(u) * (x / (u - 1.0))
    return tl.where(u == 1.0, x, tl.where(u == float("inf"), u, result))


# ---------------------------------------------------------------- the logistic function


@triton.jit
def sigmoid_of(x: tl.tensor) -> tl.tensor:
    """``1 / (1 + e^-x)``."""
    return 1.0 / (1.0 + exp_of(-x))


@triton.jit
def sigmoid_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`sigmoid_of`, for half types."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def logit_of(x: tl.tensor) -> tl.tensor:
    """``ln(x / (1 - x))``."""
    return log_of(x / (1.0 - x))


@triton.jit
def clamped_logit_of(x: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """The logit of ``x`` limited to [low, high]."""
    return logit_of(clamp_of(x, low, high))


@triton.jit
def log_sigmoid_of(x: tl.tensor) -> tl.tensor:
    """``ln(1 / (1 + e^-x)) = min(x, 0) - ln(1 + e^-|x|)``."""
    return minimum_of(x, 0.0) - log1p_of(exp_of(-tl.abs(x)))


# ---------------------------------------------------------------- sums and products with logarithms


@triton.jit
def logaddexp_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``ln(e^x + e^y) = max + ln(1 + e^-|x - y|)``; equal infinities have no difference."""
    larger = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    distance = tl.abs(x - y)
    return tl.where((x == y) & (distance != 0.0), x, larger + log1p_of(exp_of(-distance)))


@triton.jit
def logaddexp2_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``log2(2^x + 2^y)``, as :func:`logaddexp_of`."""
    larger = tl.maximum(x, y, propagate_nan=tl.PropagateNan.ALL)
    distance = tl.abs(x - y)
    sum_ = larger + log1p_of(exp2_of(-distance)) * 1.4426950408889634
    return tl.where((x == y) & (distance != 0.0), x, sum_)


@triton.jit
def xlogy_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x ln y``, and 0 for x = 0 unless y is NaN."""
    return tl.where((x == 0.0) & (y == y), 0.0, x * log_of(y))  # noqa: PLR0124 - false for NaN


@triton.jit
def xlog1py_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x ln(1 + y)``, and 0 for x = 0 unless y is NaN."""
    return tl.where((x == 0.0) & (y == y), 0.0, x * log1p_of(y))  # noqa: PLR0124 - false for NaN


@triton.jit
def entr_of(x: tl.tensor) -> tl.tensor:
    """``-x ln x``, 0 at 0, minus infinity below."""
    inside = tl.where(x == 0.0, 0.0, -x * log_of(x))
    return tl.where(x < 0.0, float("-inf"), inside)


# ---------------------------------------------------------------- the ops

exp2 = floating(exp2_of)
expm1 = floating(expm1_of)
log = floating(log_of)
log2 = floating(log2_of)
log10 = floating(log10_of)
log1p = floating(log1p_of)
sigmoid = floating(sigmoid_of, sigmoid_roughly)
special_entr = floating(entr_of)
logaddexp = promoting_to_float(logaddexp_of)
logaddexp2 = promoting_to_float(logaddexp2_of)
xlogy = promoting_to_float(xlogy_of)
special_xlog1py = promoting_to_float(xlog1py_of)


def logit(self: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """``ln(x / (1 - x))``, with ``self`` first limited to [eps, 1 - eps] where eps is given."""
    require_served(self)
    result = float_result(self.dtype)
    require_type(result, of=FLOATS)
    if eps is None:
        return map_elements(logit_of, [self], [result], result)
    return map_elements(clamped_logit_of, [self], [result], result, parameters=[eps, 1.0 - eps])
