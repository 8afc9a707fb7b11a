"""Dropout and the randomized leaky ReLU: values times a random factor, which is a result as well.

Traffic: dropout reads ``numel * itemsize`` bytes and writes as many and the mask, a byte an element; the leaky ReLU
writes its slopes in the type of the input.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_elements, map_into, map_several
from ..common.launch import require_served
from ..pointwise.activation_gradients import product_of_three
from ..pointwise.activations import leaky_relu, leaky_relu_of
from .distributions import number_below, uniform_of
from .philox import WORDS, draw_into, source_for


@triton.jit
def dropped_of(word: tl.tensor, x: tl.tensor, kept: tl.tensor, scale: tl.tensor) -> tl.tuple:
    """``x mask scale`` and the mask, which is set with the probability ``kept``; NaN where infinity is dropped.

    Of 32 random bits the upper 24 are compared with ``2^24 kept``, as numbers would be, without a conversion.
    """
    mask = (word >> 8) < tl.ceil(kept * 16777216.0).to(tl.uint32)
    return x * tl.where(mask, scale, 0.0), mask


@triton.jit
def kept_of(x: tl.tensor) -> tl.tuple:
    """``x`` and a mask that is set."""
    return x, tl.full(x.shape, 1, tl.int1)


@triton.jit
def rrelu_of(unit: tl.tensor, x: tl.tensor, low: tl.tensor, high: tl.tensor, last: tl.tensor) -> tl.tuple:
    """``x`` times a slope of [low, high) where it is not positive, and the factor that it met."""
    factor = tl.where(x <= 0.0, uniform_of(unit, low, high, last), 1.0)
    return x * factor, factor


def native_dropout(
    input: torch.Tensor,  # noqa: A002
    p: float,
    train: bool | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """``input * mask / (1 - p)`` and the mask, False with probability ``p``; not in training ``input`` and True.

    Raises:
        ValueError: ``p`` is no probability.
    """
    require_served(input, dtypes=FLOATS)
    dtype = input.dtype
    if train is False:
        return map_several(kept_of, [input], [dtype], [dtype, torch.bool])  # type: ignore[return-value]
    if not 0 <= p <= 1:
        raise ValueError(f"a probability lies from 0 to 1, not at {p}")
    out, mask = torch.empty_like(input), torch.empty_like(input, dtype=torch.bool)
    scale = 0.0 if p == 1 else 1 / (1 - p)
    draw_into((out, mask), WORDS, dropped_of, (input,), (1 - p, scale), computed=dtype, generator=None)
    return out, mask


def masked_scale(self: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``self * mask * scale``."""
    require_served(self, mask)
    return map_elements(product_of_three, [self, mask], [self.dtype] * 2, self.dtype, parameters=[scale])


def rrelu_with_noise(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """``self`` times a slope of [lower, upper) where it is not positive; not in training, times their mean.

    In training ``noise`` receives the slopes, and 1 where ``self`` is positive.

    Raises:
        ValueError: ``lower`` above ``upper``, or a ``noise`` that has another form than ``self``.
    """
    require_served(self, noise, dtypes=FLOATS)
    _require_slopes(self, noise, lower, upper)
    if not training:
        return leaky_relu(self, (lower + upper) / 2)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    _draw_slopes(out, self, noise, lower, upper, generator)
    return out


def rrelu_with_noise_(
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float = 0.125,
    upper: float = 1 / 3,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> torch.Tensor:
    """As :func:`rrelu_with_noise`, in place."""
    require_served(self, noise, dtypes=FLOATS)
    _require_slopes(self, noise, lower, upper)
    if training:
        _draw_slopes(self, self, noise, lower, upper, generator)
    else:
        map_into(self, leaky_relu_of, [self], [self.dtype], [(lower + upper) / 2])
    return self


def _require_slopes(self: torch.Tensor, noise: torch.Tensor, lower: float, upper: float) -> None:
    if lower > upper:
        raise ValueError(f"no slopes lie from {lower} to {upper}")
    if noise.shape != self.shape or noise.dtype != self.dtype:
        raise ValueError("the noise needs the shape and the dtype of the input")


def _draw_slopes(
    out: torch.Tensor,
    x: torch.Tensor,
    noise: torch.Tensor,
    lower: float,
    upper: float,
    generator: torch.Generator | None,
) -> None:
    source, limits = source_for("unit", x.dtype), (lower, upper, number_below(upper, x.dtype))
    draw_into((out, noise), source, rrelu_of, (x,), limits, computed=x.dtype, generator=generator)
