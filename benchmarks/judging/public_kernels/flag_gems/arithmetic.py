"""Arithmetic, selection and checks, after FlagGems' ``ops/{reciprocal,rsqrt,clamp,where,addcmul,...}.py``."""

import torch
import triton
import triton.language as tl

from .pointwise_dynamic import pointwise

INFINITY = float("inf")


@triton.jit
def reciprocal_fn(x, a, b, c):
    return 1.0 / x


def reciprocal(self):
    return pointwise(reciprocal_fn, self)


@triton.jit
def rsqrt_fn(x, a, b, c):
    return tl.rsqrt(x)


def rsqrt(self):
    return pointwise(rsqrt_fn, self)


@triton.jit
def clamp_fn(x, low, high, c):
    raised = tl.where(x < low, low, x)
    return tl.where(raised > high, high, raised)


def clamp(self, min=None, max=None):
    """Where ``min`` is above ``max`` everything is ``max``; NaN stays."""
    if any(isinstance(bound, float) and bound != bound for bound in (min, max)):
        raise NotImplementedError("a bound that is no number")
    return pointwise(clamp_fn, self, scalars=(-INFINITY if min is None else min, INFINITY if max is None else max))


@triton.jit
def maximum_fn(x, y, a, b, c):
    return tl.where((x > y) | (x != x), x, y)


def _one_type(*tensors):
    if len({each.dtype for each in tensors}) > 1:
        raise NotImplementedError("tensors of one dtype only")


def maximum(self, other):
    _one_type(self, other)
    return pointwise(maximum_fn, self, other)


@triton.jit
def minimum_fn(x, y, a, b, c):
    return tl.where((x < y) | (x != x), x, y)


def minimum(self, other):
    _one_type(self, other)
    return pointwise(minimum_fn, self, other)


@triton.jit
def addcmul_fn(x, a, b, value, second, third):
    return x + value * a * b


def addcmul(self, tensor1, tensor2, *, value=1):
    _one_type(self, tensor1, tensor2)
    return pointwise(addcmul_fn, self, tensor1, tensor2, scalars=(value,))


@triton.jit
def addcdiv_fn(x, a, b, value, second, third):
    return x + value * a / b


def addcdiv(self, tensor1, tensor2, *, value=1):
    _one_type(self, tensor1, tensor2)
    return pointwise(addcdiv_fn, self, tensor1, tensor2, scalars=(value,))


@triton.jit
def lerp_fn(x, y, w, first, second, third):
    return tl.where(tl.abs(w) < 0.5, x + w * (y - x), y - (y - x) * (1.0 - w))


def lerp(self, end, weight):
    _one_type(self, end, weight)
    return pointwise(lerp_fn, self, end, weight)


@triton.jit
def nan_to_num_fn(x, nan, above, below):
    x = tl.where(x != x, nan, x)
    return tl.where(x == float("inf"), above, tl.where(x == float("-inf"), below, x))


def nan_to_num(self, nan=None, posinf=None, neginf=None):
    limits = torch.finfo(self.dtype)
    numbers = (
        0.0 if nan is None else nan,
        limits.max if posinf is None else posinf,
        limits.min if neginf is None else neginf,
    )
    return pointwise(nan_to_num_fn, self, scalars=numbers)


@triton.jit
def isnan_fn(x, a, b, c):
    return x != x


def isnan(self):
    return pointwise(isnan_fn, self, dtype=torch.bool)


@triton.jit
def isinf_fn(x, a, b, c):
    return tl.abs(x) == float("inf")


def isinf(self):
    return pointwise(isinf_fn, self, dtype=torch.bool)


@triton.jit
def masked_fill_fn(x, mask, value, b, c):
    return tl.where(mask != 0, value, x)


def masked_fill(self, mask, value):
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    return pointwise(masked_fill_fn, self.expand(shape), mask, scalars=(value,))


@triton.jit
def where_fn(condition, x, y, first, second, third):
    return tl.where(condition != 0, x, y)


def where(condition, self, other):
    _one_type(self, other)
    return pointwise(where_fn, condition, self, other, dtype=self.dtype)
