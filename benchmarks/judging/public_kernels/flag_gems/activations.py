"""Activations and their gradients, after FlagGems' ``ops/{relu,sigmoid,tanh,silu,gelu,elu,softplus,...}.py``.

Each is a function of float32 numbers that :mod:`.pointwise_dynamic` launches. Where FlagGems calls libdevice (tanh),
the formula stands here, so that the interpreter runs it as well.
"""

import triton
import triton.language as tl

from .pointwise_dynamic import pointwise


@triton.jit
def expm1_of(x):
    """``exp(x) - 1`` without cancellation next to zero."""
    u = tl.exp(x)
    lost = (u - 1.0) * (x / tl.log(u))
    return tl.where(u == 1.0, x, tl.where((tl.abs(x) < 1.0) & (u != 1.0), lost, u - 1.0))


@triton.jit
def tanh_of(x):
    m = expm1_of(-2.0 * tl.abs(x))
    t = -m / (2.0 + m)
    return tl.where(x < 0, -t, t)


@triton.jit
def relu_fn(x, a, b, c):
    return tl.where(x <= 0, 0.0, x)


def relu(self):
    """NaN goes through: it is not below zero."""
    return pointwise(relu_fn, self)


@triton.jit
def sigmoid_fn(x, a, b, c):
    return 1.0 / (1.0 + tl.exp(-x))


def sigmoid(self):
    return pointwise(sigmoid_fn, self)


@triton.jit
def sigmoid_backward_fn(dy, y, a, b, c):
    return dy * (1.0 - y) * y


def sigmoid_backward(grad_output, output):
    return pointwise(sigmoid_backward_fn, grad_output, output)


@triton.jit
def tanh_fn(x, a, b, c):
    return tanh_of(x)


def tanh(self):
    return pointwise(tanh_fn, self)


@triton.jit
def tanh_backward_fn(dy, y, a, b, c):
    return dy * (1.0 - y * y)


def tanh_backward(grad_output, output):
    return pointwise(tanh_backward_fn, grad_output, output)


@triton.jit
def silu_fn(x, a, b, c):
    return x / (1.0 + tl.exp(-x))


def silu(self):
    return pointwise(silu_fn, self)


@triton.jit
def silu_backward_fn(dy, x, a, b, c):
    s = 1.0 / (1.0 + tl.exp(-x))
    return dy * s * (1.0 + x * (1.0 - s))


def silu_backward(grad_output, self):
    return pointwise(silu_backward_fn, grad_output, self)


@triton.jit
def gelu_none_fn(x, a, b, c):
    return 0.5 * x * (1.0 + tl.erf(x * 0.7071067811865476))


@triton.jit
def gelu_tanh_fn(x, a, b, c):
    return 0.5 * x * (1.0 + tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x)))


def gelu(self, *, approximate="none"):
    return pointwise(gelu_tanh_fn if approximate == "tanh" else gelu_none_fn, self)


@triton.jit
def gelu_backward_none_fn(dy, x, a, b, c):
    cdf = 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    pdf = 0.3989422804014327 * tl.exp(-0.5 * x * x)
    return dy * (cdf + x * pdf)


@triton.jit
def gelu_backward_tanh_fn(dy, x, a, b, c):
    t = tanh_of(0.7978845608028654 * (x + 0.044715 * x * x * x))
    slope = 0.7978845608028654 * (1.0 + 0.134145 * x * x)
    return dy * (0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * slope)


def gelu_backward(grad_output, self, *, approximate="none"):
    function = gelu_backward_tanh_fn if approximate == "tanh" else gelu_backward_none_fn
    return pointwise(function, grad_output, self)


@triton.jit
def elu_fn(x, negative, positive, inner):
    return tl.where(x > 0, x * positive, negative * expm1_of(x * inner))


def elu(self, alpha=1.0, scale=1.0, input_scale=1.0):
    return pointwise(elu_fn, self, scalars=(alpha * scale, scale, input_scale))


@triton.jit
def softplus_fn(x, beta, threshold, c):
    z = x * beta
    e = tl.exp(z)
    u = 1.0 + e
    # log(u) loses what u has rounded of e; the factor gives it back.
    log1p = tl.where(u == 1.0, e, tl.log(u) * (e / (u - 1.0)))
    return tl.where(z > threshold, x, log1p / beta)


def softplus(self, beta=1, threshold=20):
    return pointwise(softplus_fn, self, scalars=(beta, threshold))


@triton.jit
def leaky_relu_fn(x, slope, b, c):
    return tl.where(x > 0, x, x * slope)


def leaky_relu(self, negative_slope=0.01):
    return pointwise(leaky_relu_fn, self, scalars=(negative_slope,))


@triton.jit
def threshold_fn(x, limit, value, c):
    return tl.where(x <= limit, value, x)


def threshold(self, threshold, value):
    return pointwise(threshold_fn, self, scalars=(threshold, value))


@triton.jit
def threshold_backward_fn(dy, x, limit, b, c):
    return tl.where(x <= limit, 0.0, dy)


def threshold_backward(grad_output, self, threshold):
    return pointwise(threshold_backward_fn, grad_output, self, scalars=(threshold,))
