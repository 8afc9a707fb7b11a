"""Gradients of activations: ``grad_output`` times the derivative at the input, or at what the forward pass kept of it.

Where the input is NaN the forms are those of ATen's CUDA code: its CPU code has other ones, and one for the elements
that fill its vectors and one for the rest.

Traffic: ``3 * numel * itemsize`` bytes, two tensors read and one written; where two gradients are wanted, one pass
writes both.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import FLOATS, map_elements, map_into_several, map_several
from ..common.launch import require_served
from ..common.type_rules import form_for, refuse_bool
from .activations import halves
from .arithmetic import quotient_of
from .basic import exp_of, minimum_of, mul_of, normal_tail_roughly

# ---------------------------------------------------------------- from the result


@triton.jit
def sigmoid_gradient_of(grad: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``grad y (1 - y)``."""
    return grad * (1.0 - y) * y


@triton.jit
def tanh_gradient_of(grad: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``grad (1 - y^2)``."""
    return grad * (1.0 - y * y)


# ---------------------------------------------------------------- made of exponentials


@triton.jit
def silu_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad s (1 + x (1 - s))`` with ``s = 1 / (1 + e^-x)``."""
    s = 1.0 / (1.0 + exp_of(-x))
    return grad * s * (1.0 + x * (1.0 - s))


@triton.jit
def silu_gradient_roughly(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """As :func:`silu_gradient_of`, for half types."""
    s = 1.0 / (1.0 + tl.exp(-x))
    return grad * s * (1.0 + x * (1.0 - s))


@triton.jit
def gelu_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad (P(X <= x) + x p(x))`` for the standard normal distribution."""
    below = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    density = 0.3989422804014327 * exp_of(-0.5 * x * x)
    return grad * (below + x * density)


@triton.jit
def gelu_gradient_roughly(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """As :func:`gelu_gradient_of`, for half types: both terms have the factor ``e^(-x^2/2)``."""
    left = (normal_tail_roughly(x) - 0.3989422804014327 * tl.abs(x)) * tl.exp2(x * x * -0.7213475204444817)
    return grad * tl.where(x < 0.0, left, 1.0 - left)


@triton.jit
def gelu_tanh_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad d/dx (x s(2u)) = grad (s + 2 x u' s (1 - s))`` with the logistic function s.

    ``u = sqrt(2/pi) (x + 0.044715 x^3)``.
    """
    u = 0.7978845608028654 * (x + 0.044715 * x * x * x)
    slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
    s = 1.0 / (1.0 + exp_of(-2.0 * u))
    return grad * (s + 2.0 * x * slope * s * (1.0 - s))


@triton.jit
def gelu_tanh_gradient_roughly(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """As :func:`gelu_tanh_gradient_of`, for half types: ``s`` is the square of a reciprocal root."""
    square = x * x
    root = tl.rsqrt(1.0 + tl.exp2(x * (-2.302208198 - 0.10294323965 * square)))
    s = root * root
    return grad * (s + x * (1.5957691216 + 0.2140644488 * square) * (s * (1.0 - s)))


@triton.jit
def mish_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad (t + x s (1 - t^2))`` with ``t = tanh(ln(1 + e^x))`` and ``s = e^x / (1 + e^x)``.

    ``1 - t^2 = 4 (n + 1) / (n + 2)^2`` with ``n = e^2x + 2 e^x``, which does not cancel.
    """
    e = exp_of(minimum_of(x, 20.0))
    n = e * (e + 2.0)
    t = n / (n + 2.0)
    rest = tl.where(x > 20.0, 0.0, 4.0 * (n + 1.0) / ((n + 2.0) * (n + 2.0)))
    return grad * (t + x * (e / (1.0 + e)) * rest)


@triton.jit
def softplus_gradient_of(grad: tl.tensor, x: tl.tensor, beta: tl.tensor, threshold: tl.tensor) -> tl.tensor:
    """``grad / (1 + e^(-beta x))``, and ``grad`` where ``beta x`` exceeds the threshold."""
    u = x * beta
    return tl.where(u > threshold, grad, grad / (1.0 + exp_of(-u)))


@triton.jit
def log_sigmoid_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad / (1 + e^x)``."""
    return grad / (1.0 + exp_of(x))


@triton.jit
def elu_gradient_of(grad: tl.tensor, x: tl.tensor, alpha: tl.tensor, scale: tl.tensor, inner: tl.tensor) -> tl.tensor:
    """``grad scale`` above zero, else ``grad inner scale alpha e^(inner x)``."""
    return tl.where(x <= 0.0, grad * inner * (alpha * scale) * exp_of(x * inner), grad * scale)


@triton.jit
def elu_gradient_roughly(
    grad: tl.tensor, x: tl.tensor, alpha: tl.tensor, scale: tl.tensor, inner: tl.tensor
) -> tl.tensor:
    """As :func:`elu_gradient_of`, for half types."""
    return tl.where(x <= 0.0, grad * inner * (alpha * scale) * tl.exp(x * inner), grad * scale)


@triton.jit
def elu_gradient_of_result(
    grad: tl.tensor, y: tl.tensor, alpha: tl.tensor, scale: tl.tensor, inner: tl.tensor
) -> tl.tensor:
    """As :func:`elu_gradient_of`, from the result y, which is ``scale alpha (e^(inner x) - 1)`` below zero."""
    return tl.where(y <= 0.0, grad * inner * (y + alpha * scale), grad * scale)


@triton.jit
def glu_gradients_of(grad: tl.tensor, x: tl.tensor, gate: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """``grad s`` and ``grad x s (1 - s)`` with ``s = 1 / (1 + e^-gate)``."""
    s = 1.0 / (1.0 + exp_of(-gate))
    return grad * s, grad * x * s * (1.0 - s)


# ---------------------------------------------------------------- in pieces


@triton.jit
def threshold_gradient_of(grad: tl.tensor, x: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """``grad`` where x exceeds the limit or is NaN, else 0."""
    return tl.where(x <= limit, tl.zeros_like(grad), grad)


@triton.jit
def leaky_relu_gradient_of(grad: tl.tensor, x: tl.tensor, slope: tl.tensor) -> tl.tensor:
    """``grad`` above zero, else ``slope grad``."""
    return tl.where(x > 0.0, grad, grad * slope)


@triton.jit
def hardtanh_gradient_of(grad: tl.tensor, x: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """``grad`` between the limits, 0 at and beyond them."""
    return tl.where((x <= low) | (x >= high), 0.0, grad)


@triton.jit
def hardswish_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """0 up to -3, ``grad`` from 3 on, ``grad (x/3 + 1/2)`` between."""
    inside = grad * (x * 0.3333333333333333 + 0.5)
    return tl.where(x <= -3.0, 0.0, tl.where(x < 3.0, inside, grad))


@triton.jit
def hardsigmoid_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad / 6`` between -3 and 3, else 0."""
    return tl.where((x > -3.0) & (x < 3.0), grad * 0.16666666666666666, 0.0)


@triton.jit
def shrink_gradient_of(grad: tl.tensor, x: tl.tensor, limit: tl.tensor) -> tl.tensor:
    """0 for ``|x| <= limit``, else ``grad``."""
    return tl.where((x >= -limit) & (x <= limit), 0.0, grad)


@triton.jit
def prelu_gradients_of(grad: tl.tensor, x: tl.tensor, weight: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Of the input, ``grad`` above zero and else ``weight grad``; of the weight, 0 above zero and else ``x grad``."""
    above = x > 0.0
    return tl.where(above, grad, weight * grad), tl.where(above, 0.0, x * grad)


@triton.jit
def logit_gradient_of(grad: tl.tensor, x: tl.tensor) -> tl.tensor:
    """``grad / (x (1 - x))`` on [0, 1], NaN outside."""
    inside = (x >= 0.0) & (x <= 1.0)
    return tl.where(inside, quotient_of(grad, x * (1.0 - x)), float("nan"))


@triton.jit
def clamped_logit_gradient_of(grad: tl.tensor, x: tl.tensor, low: tl.tensor, high: tl.tensor) -> tl.tensor:
    """``grad / (x (1 - x))`` within the limits, 0 outside."""
    inside = (x >= low) & (x <= high)
    return tl.where(inside, quotient_of(grad, x * (1.0 - x)), 0.0)


@triton.jit
def product_of_three(x: tl.tensor, y: tl.tensor, z: tl.tensor) -> tl.tensor:
    """``x y z``."""
    return x * y * z


# ---------------------------------------------------------------- the ops


def _gradient(
    function: Any, grad: torch.Tensor, x: torch.Tensor, *numbers: float, rounds_numbers: bool = False
) -> torch.Tensor:
    """Apply ``function`` to the gradient and what it is taken at, in their one floating point type."""
    require_served(grad, x, dtypes=FLOATS)
    if grad.dtype != x.dtype:
        raise NotImplementedError(f"a gradient of {grad.dtype} at {x.dtype} is not served")
    return map_elements(function, [grad, x], [x.dtype] * 2, x.dtype, parameters=numbers, rounds_numbers=rounds_numbers)


def sigmoid_backward(grad_output: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """``grad_output * output * (1 - output)``."""
    return _gradient(sigmoid_gradient_of, grad_output, output)


def tanh_backward(grad_output: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """``grad_output * (1 - output^2)``."""
    return _gradient(tanh_gradient_of, grad_output, output)


def silu_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """The gradient of ``self * sigmoid(self)``."""
    return _gradient(form_for(self.dtype, silu_gradient_of, silu_gradient_roughly), grad_output, self)


def gelu_backward(grad_output: torch.Tensor, self: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
    """The gradient of gelu or of its tanh approximation."""
    if approximate not in ("none", "tanh"):
        raise ValueError(f"approximate must be 'none' or 'tanh', not {approximate!r}")
    if approximate == "none":
        function = form_for(self.dtype, gelu_gradient_of, gelu_gradient_roughly)
    else:
        function = form_for(self.dtype, gelu_tanh_gradient_of, gelu_tanh_gradient_roughly)
    return _gradient(function, grad_output, self)


def mish_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """The gradient of ``self * tanh(softplus(self))``."""
    return _gradient(mish_gradient_of, grad_output, self)


def softplus_backward(grad_output: torch.Tensor, self: torch.Tensor, beta: float, threshold: float) -> torch.Tensor:
    """The gradient of softplus."""
    return _gradient(softplus_gradient_of, grad_output, self, beta, threshold)


def log_sigmoid_backward(grad_output: torch.Tensor, self: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """The gradient of ``ln sigmoid(self)``; computing it from ``self`` is cheaper than reading the buffer."""
    require_served(buffer)
    return _gradient(log_sigmoid_gradient_of, grad_output, self)


def elu_backward(
    grad_output: torch.Tensor,
    alpha: float,
    scale: float,
    input_scale: float,
    is_result: bool,
    self_or_result: torch.Tensor,
) -> torch.Tensor:
    """The gradient of elu, from its input or its result."""
    if is_result and alpha < 0:
        raise ValueError("the input of elu does not follow from the result with a negative alpha")
    of_input = form_for(self_or_result.dtype, elu_gradient_of, elu_gradient_roughly)
    function = elu_gradient_of_result if is_result else of_input
    return _gradient(function, grad_output, self_or_result, alpha, scale, input_scale)


def threshold_backward(grad_output: torch.Tensor, self: torch.Tensor, threshold: float) -> torch.Tensor:
    """``grad_output`` where ``self`` exceeds the threshold, which eager rounds to a half type on a device, else 0."""
    require_served(grad_output, self)
    refuse_bool("threshold_backward", self.dtype)
    result = self.dtype if self.dtype == grad_output.dtype else torch.promote_types(grad_output.dtype, self.dtype)
    operands = [grad_output, self]
    return map_elements(threshold_gradient_of, operands, [result] * 2, result, [threshold], rounds_numbers=self.is_cuda)


def leaky_relu_backward(
    grad_output: torch.Tensor, self: torch.Tensor, negative_slope: float, self_is_result: bool
) -> torch.Tensor:
    """``grad_output`` where ``self`` is positive, else ``negative_slope * grad_output``."""
    if self_is_result and negative_slope < 0:
        raise ValueError("the sign of the input does not follow from the result with a negative slope")
    return _gradient(leaky_relu_gradient_of, grad_output, self, negative_slope)


def hardtanh_backward(grad_output: torch.Tensor, self: torch.Tensor, min_val: float, max_val: float) -> torch.Tensor:
    """``grad_output`` between the limits, else 0."""
    return _gradient(hardtanh_gradient_of, grad_output, self, min_val, max_val)


def hardswish_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """The gradient of hardswish."""
    return _gradient(hardswish_gradient_of, grad_output, self)


def hardsigmoid_backward(grad_output: torch.Tensor, self: torch.Tensor) -> torch.Tensor:
    """The gradient of hardsigmoid."""
    return _gradient(hardsigmoid_gradient_of, grad_output, self)


def hardshrink_backward(grad_out: torch.Tensor, self: torch.Tensor, lambd: float) -> torch.Tensor:
    """``grad_out`` further than ``lambd`` from zero, else 0."""
    return _gradient(shrink_gradient_of, grad_out, self, lambd, rounds_numbers=True)


def softshrink_backward(grad_output: torch.Tensor, self: torch.Tensor, lambd: float) -> torch.Tensor:
    """``grad_output`` further than ``lambd`` from zero, else 0."""
    return _gradient(shrink_gradient_of, grad_output, self, lambd, rounds_numbers=True)


def logit_backward(grad_output: torch.Tensor, self: torch.Tensor, eps: float | None = None) -> torch.Tensor:
    """``grad_output / (self (1 - self))``; where eps is given, 0 outside of [eps, 1 - eps]."""
    if eps is None:
        return _gradient(logit_gradient_of, grad_output, self)
    return _gradient(clamped_logit_gradient_of, grad_output, self, eps, 1.0 - eps)


def glu_backward(grad_output: torch.Tensor, self: torch.Tensor, dim: int) -> torch.Tensor:
    """The gradients of both halves, written into the halves of one tensor."""
    require_served(grad_output, self, dtypes=FLOATS)
    first, second = halves(self, dim)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    map_into_several(halves(out, dim), glu_gradients_of, [grad_output, first, second], [self.dtype] * 3)
    return out


def prelu_backward(
    grad_output: torch.Tensor, self: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Gradients of the input, and of the weight before it is summed over what it was broadcast along."""
    require_served(grad_output, self, weight, dtypes=FLOATS)
    grads = map_several(prelu_gradients_of, [grad_output, self, weight], [self.dtype] * 3, [self.dtype, weight.dtype])
    return grads[0], grads[1]


def rrelu_with_noise_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    noise: torch.Tensor,
    lower: float,
    upper: float,
    training: bool,
    self_is_result: bool,
) -> torch.Tensor:
    """``grad_output * noise`` in training, where the slopes were drawn; else a leaky relu with the mean slope."""
    if training and upper - lower > 1e-6:
        return _gradient(mul_of, grad_output, noise)
    return leaky_relu_backward(grad_output, self, (lower + upper) / 2, self_is_result)


def native_dropout_backward(grad_output: torch.Tensor, mask: torch.Tensor, scale: float) -> torch.Tensor:
    """``grad_output * mask * scale``."""
    require_served(grad_output, mask)
    result = grad_output.dtype
    return map_elements(product_of_three, [grad_output, mask], [result] * 2, result, parameters=[scale])
