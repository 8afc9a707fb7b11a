"""Plain references of pointwise ops: the formula, in double where rounding would show."""

import math

import torch


def _up(x):
    return x.to(torch.float64)


def _as(result, x):
    return result.to(x.dtype if x.is_floating_point() else torch.get_default_dtype())


def _joined(result, *given):
    tensors = [each for each in given if isinstance(each, torch.Tensor)]
    if not tensors:
        return result.to(torch.get_default_dtype())
    dtype = tensors[0].dtype
    for each in tensors[1:]:
        dtype = torch.promote_types(dtype, each.dtype)
    return result.to(dtype if dtype.is_floating_point or dtype.is_complex else torch.get_default_dtype())


def _wide(x):
    if not isinstance(x, torch.Tensor):
        return torch.tensor(x, dtype=torch.float64)
    return x.to(torch.complex128 if x.is_complex() else torch.float64)


def abs__default_kernel_impl(x):
    if x.is_complex():
        return torch.hypot(x.real, x.imag)
    return torch.where(x <= 0, 0 - x, x)


def neg__default_kernel_impl(x):
    return x * -1


def sign__default_kernel_impl(x):
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


def sgn__default_kernel_impl(x):
    if x.is_complex():
        return torch.where(x == 0, torch.zeros_like(x), x / torch.abs(x))
    return (x > 0).to(x.dtype) - (x < 0).to(x.dtype)


def relu__default_kernel_impl(x):
    return torch.where(x <= 0, torch.zeros_like(x), x)


def hardtanh__default_kernel_impl(x, min_val=-1, max_val=1):
    low = torch.where(x < min_val, torch.full_like(x, min_val), x)
    return torch.where(low > max_val, torch.full_like(x, max_val), low)


def leaky_relu__default_kernel_impl(x, negative_slope=0.01):
    return torch.where(x > 0, x, x * negative_slope)


def elu__default_kernel_impl(x, alpha=1, scale=1, input_scale=1):
    y = _up(x)
    return _as(torch.where(y > 0, y * scale, torch.expm1(y * input_scale) * (alpha * scale)), x)


def gelu__default_kernel_impl(x, *, approximate="none"):
    y = _up(x)
    if approximate == "tanh":
        inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        return _as(0.5 * y * (1 + torch.tanh(inner)), x)
    return _as(0.5 * y * (1 + torch.erf(y * 0.7071067811865476)), x)


def silu__default_kernel_impl(x):
    y = _up(x)
    return _as(y / (1 + torch.exp(-y)), x)


def mish__default_kernel_impl(x):
    y = _up(x)
    return _as(y * torch.tanh(torch.log1p(torch.exp(y))), x)


def sigmoid__default_kernel_impl(x):
    return _as(1 / (1 + torch.exp(-_up(x))), x)


def hardsigmoid__default_kernel_impl(x):
    return _as(torch.clamp(_up(x) + 3, 0, 6) / 6, x)


def hardswish__default_kernel_impl(x):
    y = _up(x)
    return _as(y * torch.clamp(y + 3, 0, 6) / 6, x)


def hardshrink__default_kernel_impl(x, lambd=0.5):
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(x), x)


def softshrink__default_kernel_impl(x, lambd=0.5):
    return torch.where(x > lambd, x - lambd, torch.where(x < -lambd, x + lambd, x * 0))


def threshold__default_kernel_impl(x, threshold, value):
    return torch.where(x <= threshold, torch.full_like(x, value), x)


def softplus__default_kernel_impl(x, beta=1, threshold=20):
    scaled = _up(x) * beta
    return torch.where(scaled > threshold, x, _as(torch.log1p(torch.exp(scaled)) / beta, x))


def exp__default_kernel_impl(x):
    return _as(torch.exp2(_up(x) * 1.4426950408889634), x)


def exp2__default_kernel_impl(x):
    return _as(torch.exp(_up(x) * 0.6931471805599453), x)


def expm1__default_kernel_impl(x):
    half = _up(x) / 2
    return _as(torch.where(half < -20, -1.0, 2 * torch.sinh(half) * torch.exp(half)), x)


def log__default_kernel_impl(x):
    return _as(torch.log2(_up(x)) * 0.6931471805599453, x)


def log2__default_kernel_impl(x):
    return _as(torch.log(_up(x)) / 0.6931471805599453, x)


def log10__default_kernel_impl(x):
    return _as(torch.log(_up(x)) / 2.302585092994046, x)


def log1p__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.where(torch.abs(y) < 0.5, 2 * torch.atanh(y / (y + 2)), torch.log(1 + y)), x)


def sqrt__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.where(y < 0, float("nan"), torch.where(y == 0, y, torch.pow(y, 0.5))), x)


def rsqrt__default_kernel_impl(x):
    return _as(1 / torch.sqrt(_up(x)), x)


def reciprocal__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.ones_like(y) / y, x)


def square__default_kernel_impl(x):
    return x * x


def sin__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.polar(torch.ones_like(y), y).imag, x)


def cos__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.polar(torch.ones_like(y), y).real, x)


def tan__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.sin(y) / torch.cos(y), x)


def sinh__default_kernel_impl(x):
    y = _up(x)
    return _as((torch.expm1(y) - torch.expm1(-y)) / 2, x)


def cosh__default_kernel_impl(x):
    y = _up(x)
    return _as((torch.exp(y) + torch.exp(-y)) / 2, x)


def tanh__default_kernel_impl(x):
    y = _up(x)
    grown = torch.expm1(2 * y)
    return _as(torch.where(y < 1, grown / (grown + 2), 1 - 2 / (grown + 2)), x)


def asinh__default_kernel_impl(x):
    y = _up(x)
    size = torch.abs(y)
    square = size * size
    root = torch.sqrt(square + 1)
    return _as(
        torch.copysign(torch.where(size < 1, torch.log1p(size + square / (1 + root)), torch.log(size + root)), y), x
    )


def acosh__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.where(y < 1, torch.nan, torch.log(y + torch.sqrt(y * y - 1))), x)


def atanh__default_kernel_impl(x):
    y = _up(x)
    return _as(0.5 * (torch.log1p(y) - torch.log1p(-y)), x)


def asin__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.atan2(y, torch.sqrt((1 - y) * (1 + y))), x)


def acos__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.atan2(torch.sqrt((1 - y) * (1 + y)), y), x)


def atan__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.atan2(y, torch.ones_like(y)), x)


def erf__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.where(torch.abs(y) < 1e-3, 1.1283791670955126 * (y - y * y * y / 3), 1 - torch.erfc(y)), x)


def erfc__default_kernel_impl(x):
    y = _up(x)
    return _as(torch.where(y > 0.5, torch.special.erfcx(y) * torch.exp(-y * y), 1 - torch.erf(y)), x)


def sinc__default_kernel_impl(x):
    y = _up(x) * math.pi
    return _as(torch.where(y == 0, 1.0, torch.sin(y) / y), x)


def logit__default_kernel_impl(x, eps=None):
    y = _up(x)
    if eps is not None:
        y = torch.clamp(y, eps, 1 - eps)
    return _as(torch.log(y / (1 - y)), x)


def nan_to_num__default_kernel_impl(x, nan=None, posinf=None, neginf=None):
    info = torch.finfo(x.dtype)
    y = torch.where(x != x, torch.full_like(x, 0.0 if nan is None else nan), x)
    y = torch.where(y == float("inf"), torch.full_like(x, info.max if posinf is None else posinf), y)
    return torch.where(x == -float("inf"), torch.full_like(x, info.min if neginf is None else neginf), y)


def isnan__default_kernel_impl(x):
    return x != x


def isinf__default_kernel_impl(x):
    return torch.abs(x) == float("inf")


def isposinf__default_kernel_impl(x):
    return x == float("inf")


def isneginf__default_kernel_impl(x):
    return x == -float("inf")


def signbit__default_kernel_impl(x):
    return torch.copysign(torch.ones_like(x), x) < 0


def floor__default_kernel_impl(x):
    whole = torch.trunc(x)
    return torch.where(whole > x, whole - 1, whole)


def ceil__default_kernel_impl(x):
    whole = torch.trunc(x)
    return torch.where(whole < x, whole + 1, whole)


def trunc__default_kernel_impl(x):
    return torch.where(x < 0, torch.ceil(x), torch.floor(x))


def frac__default_kernel_impl(x):
    return x - torch.trunc(x)


def round__default_kernel_impl(x):
    low = torch.floor(x)
    over = x - low
    up = (over > 0.5) | ((over == 0.5) & (torch.remainder(low, 2) == 1))
    return torch.copysign(torch.where(up, low + 1, low), x)


def deg2rad__default_kernel_impl(x):
    return _as(_up(x) * math.pi / 180, x)


def rad2deg__default_kernel_impl(x):
    return _as(_up(x) * 180 / math.pi, x)


def logical_not__default_kernel_impl(x):
    return x == 0


def add__Tensor_kernel_impl(x, y, *, alpha=1):
    return torch.sub(x, y, alpha=-alpha)


def sub__Tensor_kernel_impl(x, y, *, alpha=1):
    return torch.add(x, y, alpha=-alpha)


def div__Tensor_kernel_impl(x, y):
    return _joined(_wide(x) * torch.reciprocal(_wide(y)), x, y)


def remainder__Tensor_kernel_impl(x, y):
    rest = torch.fmod(x, y)
    return torch.where((rest != 0) & ((rest < 0) != (y < 0)), rest + y, rest)


def fmod__Tensor_kernel_impl(x, y):
    rest = torch.remainder(torch.abs(_wide(x)), torch.abs(_wide(y)))
    return torch.copysign(rest, _wide(x)).to(torch.result_type(x, y))


def maximum__default_kernel_impl(x, y):
    return torch.where((x >= y) | (x != x), x, y)


def minimum__default_kernel_impl(x, y):
    return torch.where((x <= y) | (x != x), x, y)


def fmax__default_kernel_impl(x, y):
    return torch.where((x >= y) | (y != y), x, y)


def fmin__default_kernel_impl(x, y):
    return torch.where((x <= y) | (y != y), x, y)


def eq__Tensor_kernel_impl(x, y):
    return (x <= y) & (x >= y)


def ne__Tensor_kernel_impl(x, y):
    return ~(x == y)


def lt__Tensor_kernel_impl(x, y):
    return y > x


def le__Tensor_kernel_impl(x, y):
    return (x < y) | (x == y)


def gt__Tensor_kernel_impl(x, y):
    return y < x


def ge__Tensor_kernel_impl(x, y):
    return (y < x) | (x == y)


def logical_and__default_kernel_impl(x, y):
    return (x != 0) & (y != 0)


def logical_or__default_kernel_impl(x, y):
    return (x != 0) | (y != 0)


def logical_xor__default_kernel_impl(x, y):
    return (x != 0) != (y != 0)


def hypot__default_kernel_impl(x, y):
    infinite = torch.isinf(x) | torch.isinf(y)
    length = torch.sqrt(_wide(x) * _wide(x) + _wide(y) * _wide(y))
    return _joined(torch.where(infinite, float("inf"), length), x, y)


def atan2__default_kernel_impl(x, y):
    a, b = torch.broadcast_tensors(_wide(x), _wide(y))
    return _joined(torch.angle(torch.complex(b.contiguous(), a.contiguous())), x, y)


def logaddexp__default_kernel_impl(x, y):
    a, b = _wide(x), _wide(y)
    top = torch.maximum(a, b)
    return _joined(torch.where(a == b, a + 0.6931471805599453, top + torch.log1p(torch.exp(-torch.abs(a - b)))), x, y)


def logaddexp2__default_kernel_impl(x, y):
    a, b = _wide(x), _wide(y)
    top = torch.maximum(a, b)
    return _joined(torch.where(a == b, a + 1, top + torch.log2(1 + torch.exp2(-torch.abs(a - b)))), x, y)


def copysign__Tensor_kernel_impl(x, y):
    size = torch.abs(x)
    return _joined(torch.where(torch.signbit(y), -size, size), x, y)


def heaviside__default_kernel_impl(x, values):
    return torch.where(x == 0, values, (x > 0).to(x.dtype))


def xlogy__Tensor_kernel_impl(x, y):
    a, b = _wide(x), _wide(y)
    return _joined(torch.where(b != b, b, torch.where(a == 0, 0.0, a * torch.log(b))), x, y)


def special_xlog1py__default_kernel_impl(x, y):
    a, b = _wide(x), _wide(y)
    return _joined(torch.where(b != b, b, torch.where(a == 0, 0.0, a * torch.log1p(b))), x, y)


def special_entr__default_kernel_impl(x):
    y = _up(x)
    inner = torch.where(y > 0, -y * torch.log(y), torch.where(y == 0, 0.0, -float("inf")))
    return _as(torch.where(y != y, y, inner), x)


def lerp__Scalar_kernel_impl(x, y, weight):
    a, b = _up(x), _up(y)
    return _as(a + weight * (b - a) if abs(weight) < 0.5 else b - (b - a) * (1 - weight), x)


def lerp__Tensor_kernel_impl(x, y, weight):
    a, b, w = _up(x), _up(y), _up(weight)
    return _as(torch.where(torch.abs(w) < 0.5, a + w * (b - a), b - (b - a) * (1 - w)), x)


def addcmul__default_kernel_impl(x, a, b, *, value=1):
    return _joined(_wide(x) + value * _wide(a) * _wide(b), x, a, b)


def addcdiv__default_kernel_impl(x, a, b, *, value=1):
    return _joined(_wide(x) + value * (_wide(a) / _wide(b)), x, a, b)


def clamp__default_kernel_impl(x, min=None, max=None):
    y = x.clone()
    if min is not None:
        y = torch.where(y < min, torch.full_like(y, min), y)
    if max is not None:
        y = torch.where(y > max, torch.full_like(y, max), y)
    return y


def clamp_min__default_kernel_impl(x, min):
    return torch.where(x < min, torch.full_like(x, min), x)


def clamp_max__default_kernel_impl(x, max):
    return torch.where(x > max, torch.full_like(x, max), x)


def threshold_backward__default_kernel_impl(grad, x, threshold):
    return torch.where(x <= threshold, torch.zeros_like(grad), grad)


def sigmoid_backward__default_kernel_impl(grad, y):
    return _as(_up(grad) * (1 - _up(y)) * _up(y), grad)


def tanh_backward__default_kernel_impl(grad, y):
    return _as(_up(grad) * (1 - _up(y) * _up(y)), grad)


def silu_backward__default_kernel_impl(grad, x):
    y = _up(x)
    s = torch.sigmoid(y)
    return _as(_up(grad) * s * (1 + y * (1 - s)), x)


def gelu_backward__default_kernel_impl(grad, x, *, approximate="none"):
    y = _up(x)
    if approximate == "tanh":
        inner = 0.7978845608028654 * (y + 0.044715 * y * y * y)
        slope = 0.7978845608028654 * (1 + 3 * 0.044715 * y * y)
        t = torch.tanh(inner)
        return _as(_up(grad) * (0.5 * (1 + t) + 0.5 * y * (1 - t * t) * slope), x)
    cdf = 0.5 * (1 + torch.erf(y * 0.7071067811865476))
    return _as(_up(grad) * (cdf + y * torch.exp(-0.5 * y * y) * 0.3989422804014327), x)


def hardtanh_backward__default_kernel_impl(grad, x, min_val, max_val):
    return torch.where((x <= min_val) | (x >= max_val), torch.zeros_like(grad), grad)


def leaky_relu_backward__default_kernel_impl(grad, x, negative_slope, self_is_result):
    return torch.where(x > 0, grad, grad * negative_slope)


def elu_backward__default_kernel_impl(grad, alpha, scale, input_scale, is_result, x):
    y, g = _up(x), _up(grad)
    if is_result:
        return _as(torch.where(y <= 0, g * input_scale * (y + alpha * scale), g * scale), grad)
    return _as(torch.where(y <= 0, g * input_scale * alpha * scale * torch.exp(y * input_scale), g * scale), grad)


def softplus_backward__default_kernel_impl(grad, x, beta, threshold):
    scaled = _up(x) * beta
    return torch.where(scaled > threshold, grad, _as(_up(grad) / (1 + torch.exp(-scaled)), grad))


def hardshrink_backward__default_kernel_impl(grad, x, lambd):
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)


def softshrink_backward__default_kernel_impl(grad, x, lambd):
    return torch.where((x >= -lambd) & (x <= lambd), torch.zeros_like(grad), grad)


def hardsigmoid_backward__default_kernel_impl(grad, x):
    return _as(torch.where((x > -3) & (x < 3), _up(grad) / 6, 0.0), grad)


def _prelu_kernel__default_kernel_impl(x, weight):
    return torch.where(x > 0, x, weight * x)


def glu__default_kernel_impl(x, dim=-1):
    half = x.shape[dim] // 2
    a, b = x.narrow(dim, 0, half), x.narrow(dim, half, half)
    return _as(_up(a) / (1 + torch.exp(-_up(b))), x)
