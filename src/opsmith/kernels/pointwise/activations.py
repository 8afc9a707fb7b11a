"""Activations of neural networks.

Their gradients are in :mod:`.activation_gradients`; relu and gelu in :mod:`.basic`.
Traffic as there. Half types are bound by instructions rather than by memory as soon as a function has more than some
thirty of them, so those that are made of exponentials have a second, shorter form.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_elements, map_into, map_into_several
from ..common.indexing import normalized_dims
from ..common.launch import require_served
from ..common.type_rules import form_for, only_floating, refuse_bool
from .basic import clamp_of, exp_of, minimum_of
from .exponentials import expm1_of, log1p_of

# ---------------------------------------------------------------- made of exponentials


@triton.jit
def silu_of(x: tl.tensor) -> tl.tensor:
    """``x / (1 + e^-x)``."""
    return x / (1.0 + exp_of(-x))


@triton.jit
def silu_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`silu_of`, for half types."""
    return x / (1.0 + tl.exp(-x))


@triton.jit
def mish_of(x: tl.tensor) -> tl.tensor:
    """``x tanh(ln(1 + e^x)) = x (e^2 + 2e) / (e^2 + 2e + 2)`` with ``e = e^x``; beyond 20 that is x."""
    e = exp_of(minimum_of(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@triton.jit
def mish_roughly(x: tl.tensor) -> tl.tensor:
    """As :func:`mish_of`, for half types."""
    e = tl.exp(minimum_of(x, 20.0))
    n = e * (e + 2.0)
    return x * (n / (n + 2.0))


@triton.jit
def softplus_of(x: tl.tensor, beta: tl.tensor, threshold: tl.tensor) -> tl.tensor:
    """``ln(1 + e^(beta x)) / beta``, and x where ``beta x`` exceeds the threshold."""
    u = x * beta
    return tl.where(u > threshold, x, log1p_of(exp_of(u)) / beta)


@triton.jit
def elu_of(x: tl.tensor, alpha: tl.tensor, scale: tl.tensor, input_scale: tl.tensor) -> tl.tensor:
    """``scale x`` above zero, else ``scale alpha (e^(input_scale x) - 1)``."""
    return tl.where(x <= 0.0, expm1_of(x * input_scale) * (alpha * scale), x * scale)


@triton.jit
def elu_roughly(x: tl.tensor, alpha: tl.tensor, scale: tl.tensor, input_scale: tl.tensor) -> tl.tensor:
    """As :func:`elu_of`, for half types: near 0, where ``e^u - 1`` cancels, its series, which errs by 3e-5 at most."""
    u = x * input_scale
    near = u * (1.0 + u * (0.5 + u * (0.16666667 + u * 0.041666668)))
    below = tl.where(tl.abs(u) < 0.25, near, tl.exp(u) - 1.0)
    return tl.where(x <= 0.0, below * (alpha * scale), x * scale)


@triton.jit
def log_sigmoid_of(x: tl.tensor) -> tl.tensor:
    """``ln(1 / (1 + e^-x)) = min(x, 0) - ln(1 + e^-|x|)``."""
    return minimum_of(x, 0.0) - log1p_of(exp_of(-tl.abs(x)))


@triton.jit
def log_sigmoid_and_buffer_of(x: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """As :func:`log_sigmoid_of`, and ``e^-|x|``."""
    e = exp_of(-tl.abs(x))
    return minimum_of(x, 0.0) - log1p_of(e), e


@triton.jit
def glu_of(x: tl.tensor, gate: tl.tensor) -> tl.tensor:
    """``x / (1 + e^-gate)``."""
    return x / (1.0 + exp_of(-gate))


# ---------------------------------------------------------------- in pieces


@triton.jit
def threshold_of(x: tl.tensor, limit: tl.tensor, value: tl.tensor) -> tl.tensor:
    """X above the limit, else ``value``; NaN stays."""
    return tl.where(x <= limit, value, x)


@triton.jit
def leaky_relu_of(x: tl.tensor, slope: tl.tensor) -> tl.tensor:
    """X above zero, else ``slope x``."""
    return tl.where(x > 0.0, x, x * slope)


@triton.jit
def hardswish_of(x: tl.tensor) -> tl.tensor:
    """``x min(max(x + 3, 0), 6) / 6``."""
    return x * clamp_of(x + 3.0, 0.0, 6.0) * 0.16666666666666666


@triton.jit
def hardsigmoid_of(x: tl.tensor) -> tl.tensor:
    """``min(max(x + 3, 0), 6) / 6``."""
    return clamp_of(x + 3.0, 0.0, 6.0) * 0.16666666666666666


@triton.jit
def hardshrink_of(x: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """0 for ``|x| <= limit``, else x."""
    return tl.where((x >= -limit) & (x <= limit), 0.0, x)


@triton.jit
def softshrink_of(x: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """X moved towards zero by the limit, which it does not pass; NaN stays."""
    return tl.where(x > limit, x - limit, tl.where(x < -limit, x + limit, x * 0.0))


# ---------------------------------------------------------------- the ops

silu = only_floating(silu_of, silu_roughly)
mish = only_floating(mish_of, mish_roughly)
hardswish = only_floating(hardswish_of)
hardsigmoid = only_floating(hardsigmoid_of)


def _with_numbers(function: object, self: torch.Tensor, *numbers: float, rounds_numbers: bool = False) -> torch.Tensor:
    """Apply ``function`` with numbers to a floating point tensor."""
    require_served(self)
    if not self.dtype.is_floating_point:
        raise TypeError(f"not defined for {self.dtype}")
    return map_elements(function, [self], [self.dtype], self.dtype, parameters=numbers, rounds_numbers=rounds_numbers)


def softplus(self: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    """``ln(1 + e^(beta * self)) / beta``, linear beyond the threshold."""
    return _with_numbers(softplus_of, self, beta, threshold)


def elu(self: torch.Tensor, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> torch.Tensor:
    """``scale * self`` above zero, else ``scale * alpha * (e^(input_scale * self) - 1)``."""
    return _with_numbers(form_for(self.dtype, elu_of, elu_roughly), self, alpha, scale, input_scale)


def celu(self: torch.Tensor, alpha: float = 1.0) -> torch.Tensor:
    """``self`` above zero, else ``alpha (e^(self / alpha) - 1)``."""
    if alpha == 0:
        raise ZeroDivisionError("celu needs an alpha other than 0")
    return _with_numbers(form_for(self.dtype, elu_of, elu_roughly), self, alpha, 1.0, 1.0 / alpha)


def leaky_relu(self: torch.Tensor, negative_slope: float = 0.01) -> torch.Tensor:
    """``self`` above zero, else ``negative_slope * self``."""
    return _with_numbers(leaky_relu_of, self, negative_slope)


def hardshrink(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    """0 within ``lambd`` of zero, else ``self``."""
    return _with_numbers(hardshrink_of, self, lambd, rounds_numbers=True)


def softshrink(self: torch.Tensor, lambd: float = 0.5) -> torch.Tensor:
    """``self`` moved towards zero by ``lambd``, at most to zero; eager rounds ``lambd`` to a half type on a device."""
    if lambd < 0:
        raise ValueError(f"lambd has to be 0 or more, not {lambd}")
    return _with_numbers(softshrink_of, self, lambd, rounds_numbers=self.is_cuda)


def threshold(self: torch.Tensor, threshold: float, value: float) -> torch.Tensor:
    """``self`` above the threshold, which eager rounds to a half type on a device, else ``value``."""
    require_served(self)
    refuse_bool("threshold", self.dtype)
    numbers = [threshold, value]
    return map_elements(threshold_of, [self], [self.dtype], self.dtype, numbers, rounds_numbers=self.is_cuda)


def hardtanh(self: torch.Tensor, min_val: float = -1, max_val: float = 1) -> torch.Tensor:
    """``self`` limited to [min_val, max_val]."""
    require_served(self)
    refuse_bool("hardtanh", self.dtype)
    if min_val > max_val:
        raise ValueError(f"min_val {min_val} exceeds max_val {max_val}")
    return map_elements(clamp_of, [self], [self.dtype], self.dtype, parameters=[min_val, max_val])


def log_sigmoid_forward(self: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """``ln sigmoid(self)``, and what eager keeps for the backward pass: ``e^-|self|`` on a CPU, nothing on a device."""
    require_served(self, dtypes=FLOATS)
    if self.is_cuda:
        output = map_elements(log_sigmoid_of, [self], [self.dtype], self.dtype)
        return output, torch.empty(0, dtype=self.dtype, device=self.device)
    output, buffer = (torch.empty(self.shape, dtype=self.dtype, device=self.device) for _ in range(2))
    map_into_several((output, buffer), log_sigmoid_and_buffer_of, [self], [self.dtype])
    return output, buffer


def glu(self: torch.Tensor, dim: int = -1) -> torch.Tensor:
    """The first half of ``self`` along ``dim`` times the sigmoid of the second."""
    require_served(self, dtypes=FLOATS)
    first, second = halves(self, dim)
    out = torch.empty(first.shape, dtype=self.dtype, device=self.device)
    map_into(out, glu_of, [first, second], [self.dtype] * 2)
    return out


def halves(x: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Views of both halves along a dimension.

    Raises:
        IndexError: ``dim`` out of range.
        ValueError: an odd size, or no dimension.
    """
    (axis,) = normalized_dims(dim, x.ndim)
    if x.ndim == 0 or x.shape[axis] % 2:
        raise ValueError("glu needs a dimension of even size")
    half = x.shape[axis] // 2
    return x.narrow(axis, 0, half), x.narrow(axis, half, half)


def prelu(self: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """``self`` above zero, else ``weight * self``; the weight broadcasts."""
    require_served(self, weight, dtypes=FLOATS)
    return map_elements(leaky_relu_of, [self, weight], [self.dtype] * 2, self.dtype)
