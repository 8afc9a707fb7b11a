"""Tensors drawn from a distribution, in place or after the model of another: uniform, normal, Bernoulli and others.

Each op is a function of one sample (see :mod:`.philox`). Traffic: ``numel * itemsize`` bytes written; float32 normal
numbers cost more instructions than that takes time.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, Operand
from ..common.launch import require_served
from ..pointwise.basic import exp_of
from ..pointwise.exponentials import log_of
from .philox import LONGS, WORDS, draw_into, source_for

#: Up to this many integers a word of 32 bits is enough: none is more than 2^-12 more likely than another.
_FEW_INTEGERS = 1 << 20

# ---------------------------------------------------------------- functions of one sample


@triton.jit
def uniform_of(unit: tl.tensor, low: tl.tensor, high: tl.tensor, last: tl.tensor) -> tl.tensor:
    """Uniform in [low, high); ``last`` is the greatest number of the result's type below ``high``."""
    return tl.maximum(tl.minimum(low + unit * (high - low), last), low)


@triton.jit
def below_of(unit: tl.tensor, probability: tl.tensor) -> tl.tensor:
    """1 with this probability, else 0."""
    return (unit < probability).to(tl.float32)


@triton.jit
def normal_of(normal: tl.tensor, mean: tl.tensor, deviation: tl.tensor) -> tl.tensor:
    """Normal with this mean and standard deviation."""
    return mean + deviation * normal


@triton.jit
def log_normal_of(normal: tl.tensor, mean: tl.tensor, deviation: tl.tensor) -> tl.tensor:
    """E to the power of :func:`normal_of`."""
    return exp_of(mean + deviation * normal)


@triton.jit
def exponential_of(unit: tl.tensor, rate: tl.tensor) -> tl.tensor:
    """Exponential: ``-ln(u) / rate``, never 0 unless the result's type has nothing smaller."""
    return -log_of(unit) / rate


@triton.jit
def geometric_of(unit: tl.tensor, log_failure: tl.tensor) -> tl.tensor:
    """How many trials the first success takes: ``ceil(ln(u) / ln(1 - p))``."""
    return tl.ceil(log_of(unit) / log_failure)


@triton.jit
def cauchy_of(unit: tl.tensor, median: tl.tensor, scale: tl.tensor) -> tl.tensor:
    """Cauchy: ``median + scale tan(pi (u - 1/2))``, by way of the cotangent of the distance to the nearer end."""
    angle = tl.minimum(unit, 1.0 - unit) * 3.141592653589793
    magnitude = tl.cos(angle) / tl.sin(angle)
    return median + scale * tl.where(unit < 0.5, -magnitude, magnitude)


@triton.jit
def integer_of(word: tl.tensor, low: tl.tensor, count: tl.tensor) -> tl.tensor:
    """One of the ``count`` integers from ``low`` on: the upper half of a product (D. Lemire, 2019)."""
    return low + tl.umulhi(word, count.to(word.dtype)).to(tl.int64)


# ---------------------------------------------------------------- filling a tensor


def _require_floating(out: torch.Tensor) -> None:
    """Check that a tensor can hold numbers of a continuous distribution.

    Raises:
        TypeError: it holds integers.
        NotImplementedError: it is not served.
    """
    if not out.dtype.is_floating_point and not out.dtype.is_complex:
        raise TypeError(f"a distribution over real numbers needs a floating-point tensor, not {out.dtype}")
    require_served(out, dtypes=FLOATS)


def fill_uniform(out: torch.Tensor, low: float, high: float, generator: torch.Generator | None) -> torch.Tensor:
    """Fill ``out`` with numbers of [low, high).

    Raises:
        ValueError: the interval is none, or its length exceeds the type.
    """
    _require_floating(out)
    if not low <= high or high - low > torch.finfo(out.dtype).max:
        raise ValueError(f"no uniform {out.dtype} numbers lie from {low} to {high}")
    source, limits = source_for("unit", out.dtype), (low, high, number_below(high, out.dtype))
    draw_into((out,), source, uniform_of, (), limits, computed=out.dtype, generator=generator)
    return out


def number_below(high: float, dtype: torch.dtype) -> float:
    """The greatest finite number of ``dtype`` that is less than ``high``."""
    limits = torch.finfo(dtype)
    # Numbers between two powers of two lie equally far apart; those below a power of two half as far as above it.
    fraction, exponent = math.frexp(high)
    exponent -= fraction == 0.5
    step = max(math.ldexp(limits.eps, exponent - 1) if high else 0.0, limits.smallest_normal * limits.eps)
    below = (math.ceil(high / step) - 1) * step
    return min(below, limits.max)


def fill_normal(
    out: torch.Tensor, mean: Operand, deviation: Operand, generator: torch.Generator | None
) -> torch.Tensor:
    """Fill ``out`` with normal numbers; ``mean`` and ``deviation`` broadcast to its shape.

    Raises:
        ValueError: a negative deviation.
    """
    _require_floating(out)
    _require_deviation(deviation)
    source = source_for("normal", out.dtype)
    draw_into((out,), source, normal_of, (mean, deviation), computed=out.dtype, generator=generator)
    return out


def _require_deviation(deviation: Operand) -> None:
    if not isinstance(deviation, torch.Tensor) and not deviation >= 0:
        raise ValueError(f"a standard deviation is not negative, as {deviation} is")


def fill_integers(out: torch.Tensor, low: int, high: int, generator: torch.Generator | None) -> torch.Tensor:
    """Fill ``out``, of any real type, with integers of [low, high).

    Raises:
        ValueError: there are none, or ``out``'s type does not hold them.
    """
    require_served(out)
    if low >= high:
        raise ValueError(f"there are no integers from {low} to {high}")
    if not out.dtype.is_floating_point:
        is_bool = out.dtype == torch.bool
        least, greatest = (0, 1) if is_bool else (torch.iinfo(out.dtype).min, torch.iinfo(out.dtype).max)
        if low < least or high - 1 > greatest:
            raise ValueError(f"integers from {low} to {high} are no {out.dtype} values")
    source = WORDS if high - low <= _FEW_INTEGERS else LONGS
    draw_into((out,), source, integer_of, (), (low, high - low), computed=torch.int64, generator=generator)
    return out


def fill_bernoulli(out: torch.Tensor, probability: Operand, generator: torch.Generator | None) -> torch.Tensor:
    """Fill ``out``, of any real type, with ones and zeros; a tensor of probabilities broadcasts to its shape.

    Raises:
        ValueError: the probability is none.
        TypeError: it is a tensor of integers.
    """
    require_served(out)
    if not isinstance(probability, torch.Tensor):
        if not 0 <= probability <= 1:
            raise ValueError(f"a probability lies from 0 to 1, not at {probability}")
    elif not probability.dtype.is_floating_point:
        raise TypeError(f"probabilities are floating-point numbers, not {probability.dtype}")
    else:
        require_served(probability)
    source = source_for("unit", torch.float32)
    draw_into((out,), source, below_of, (probability,), computed=torch.float32, generator=generator)
    return out


# ---------------------------------------------------------------- in place


def uniform_(
    self: torch.Tensor, from_: float = 0.0, to: float = 1.0, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Fill ``self`` with numbers of [from, to)."""
    return fill_uniform(self, from_, to, generator)


def normal_(
    self: torch.Tensor, mean: float = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Fill ``self`` with normal numbers."""
    return fill_normal(self, mean, std, generator)


def log_normal_(
    self: torch.Tensor, mean: float = 1.0, std: float = 2.0, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Fill ``self`` with numbers whose logarithm is normal."""
    _require_floating(self)
    if not std > 0:
        raise ValueError(f"the standard deviation of a logarithm is positive, not {std}")
    source = source_for("normal", self.dtype)
    draw_into((self,), source, log_normal_of, (), (mean, std), computed=self.dtype, generator=generator)
    return self


def exponential_(self: torch.Tensor, lambd: float = 1.0, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill ``self`` with exponential numbers of rate ``lambd``."""
    _require_floating(self)
    if not lambd > 0:
        raise ValueError(f"a rate is positive, not {lambd}")
    source = source_for("open unit", self.dtype)
    draw_into((self,), source, exponential_of, (), (lambd,), computed=self.dtype, generator=generator)
    return self


def geometric_(self: torch.Tensor, p: float, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill ``self``, of any real type but bool, with numbers of trials until a success of probability ``p``."""
    require_served(self)
    if self.dtype == torch.bool:
        raise TypeError("a number of trials is no bool")
    if not 0 < p < 1:
        raise ValueError(f"a probability of success lies between 0 and 1, not at {p}")
    computed = self.dtype if self.dtype.is_floating_point else torch.float32
    source, rate = source_for("open unit", computed), math.log1p(-p)
    draw_into((self,), source, geometric_of, (), (rate,), computed=computed, generator=generator)
    return self


def cauchy_(
    self: torch.Tensor, median: float = 0.0, sigma: float = 1.0, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    """Fill ``self`` with numbers of a Cauchy distribution."""
    _require_floating(self)
    if not sigma > 0:
        raise ValueError(f"a scale is positive, not {sigma}")
    source = source_for("open unit", self.dtype)
    draw_into((self,), source, cauchy_of, (), (median, sigma), computed=self.dtype, generator=generator)
    return self


def bernoulli_(self: torch.Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill ``self`` with ones, of probability ``p``, and zeros."""
    return fill_bernoulli(self, p, generator)


def bernoulli_tensor_(self: torch.Tensor, p: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Fill ``self`` with ones, of the probabilities ``p``, and zeros."""
    return fill_bernoulli(self, p, generator)


# ---------------------------------------------------------------- new tensors


def bernoulli(self: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Ones, with the probabilities ``self``, and zeros, in the type of ``self``."""
    require_served(self)
    return fill_bernoulli(torch.empty_like(self), self, generator)


def bernoulli_p(self: torch.Tensor, p: float, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Ones, of probability ``p``, and zeros, in the form of ``self``."""
    require_served(self)
    return fill_bernoulli(torch.empty_like(self), p, generator)


def normal_of_means(mean: torch.Tensor, std: float = 1.0, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Normal numbers, one for each mean, in the type of ``mean``."""
    require_served(mean, dtypes=FLOATS)
    return fill_normal(_row_major(mean.shape, mean), mean, std, generator)


def normal_of_deviations(mean: float, std: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Normal numbers, one for each standard deviation, in the type of ``std``."""
    require_served(std, dtypes=FLOATS)
    return fill_normal(_row_major(std.shape, std), mean, std, generator)


def normal_of_both(mean: torch.Tensor, std: torch.Tensor, *, generator: torch.Generator | None = None) -> torch.Tensor:
    """Normal numbers for means and standard deviations that broadcast, in the type of ``mean``."""
    require_served(mean, std, dtypes=FLOATS)
    shape = torch.broadcast_shapes(mean.shape, std.shape)
    return fill_normal(_row_major(shape, mean), mean, std, generator)


def _row_major(shape: torch.Size, model: torch.Tensor) -> torch.Tensor:
    return torch.empty(shape, dtype=model.dtype, device=model.device)
