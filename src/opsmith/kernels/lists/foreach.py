"""The ``_foreach_`` ops: an elementwise op for each tensor of a list, see :mod:`.tensor_lists`.

An in-place op writes where it has read: each element is one program's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import same
from ..common.type_rules import form_for
from ..pointwise.arithmetic import (
    addcdiv_of,
    addcmul_of,
    lerp_of,
    power_of,
    quotient_of,
    quotient_roughly,
    reciprocal_of,
    reciprocal_root_of,
    root_of,
    sub_of,
)
from ..pointwise.basic import add_of, exp_of, maximum_of, minimum_of, mul_of
from ..pointwise.exponentials import expm1_of, log1p_of, log2_of, log10_of, log_of, sigmoid_of
from ..pointwise.rounding import ceil_of, floor_of, frac_of, round_of, trunc_of
from ..pointwise.signs import absolute_of, negative_of, sign_of
from ..pointwise.trigonometry import acos_of, asin_of, atan_of, cos_of, cosh_of, sin_of, sinh_of, tan_of, tanh_of
from ..reductions.reductions import plus
from ..special.special_functions import erf_of
from .tensor_lists import empty_lists_like, map_lists, require_lists

Tensors = Sequence[torch.Tensor]
Returning = Callable[..., list[torch.Tensor]]
InPlace = Callable[..., None]


@triton.jit
def minus(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``x - y``."""
    return x - y


@triton.jit
def power_reversed_of(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """``y^x``."""
    return power_of(y, x)


def _write(
    function: Any,
    outs: Tensors,
    lists: Sequence[Tensors],
    *,
    singles: Sequence[Tensors] = (),
    numbers: Sequence[Sequence[float]] = (),
    shared: Sequence[float] = (),
) -> None:
    """:func:`.map_lists` with one result, if what is given is served."""
    refused = (complex, bool) if function is minus else complex  # Eager refuses to subtract a bool.
    if any(isinstance(value, refused) for values in (*numbers, shared) for value in values):
        raise NotImplementedError("complex numbers, and bools that are subtracted, are not served")
    if any(len(values) != len(outs) for values in numbers):
        raise ValueError(f"there are not as many numbers as tensors, {len(outs)}")
    map_lists(function, [outs], lists, singles=singles, numbers=numbers, shared=shared)


def _unary(function: Any) -> tuple[Returning, InPlace]:
    """An op of each tensor."""

    def op(self: Tensors) -> list[torch.Tensor]:
        require_lists(self)
        outs = empty_lists_like(self)
        _write(function, outs, [self])
        return outs

    def op_(self: Tensors) -> None:
        require_lists(self)
        _write(function, self, [self])

    return op, op_


def _with_scalar(function: Any, half_function: Any = None) -> tuple[Returning, InPlace]:
    """An op of each tensor and one number."""

    def op(self: Tensors, scalar: float) -> list[torch.Tensor]:
        require_lists(self)
        outs = empty_lists_like(self)
        _write(form_for(self[0].dtype, function, half_function), outs, [self], shared=[scalar])
        return outs

    def op_(self: Tensors, scalar: float) -> None:
        require_lists(self)
        _write(form_for(self[0].dtype, function, half_function), self, [self], shared=[scalar])

    return op, op_


def _with_scalars(function: Any, half_function: Any = None) -> tuple[Returning, InPlace]:
    """An op of each tensor and a number of its own."""

    def op(self: Tensors, scalars: Sequence[float]) -> list[torch.Tensor]:
        require_lists(self)
        outs = empty_lists_like(self)
        _write(form_for(self[0].dtype, function, half_function), outs, [self], numbers=[scalars])
        return outs

    def op_(self: Tensors, scalars: Sequence[float]) -> None:
        require_lists(self)
        _write(form_for(self[0].dtype, function, half_function), self, [self], numbers=[scalars])

    return op, op_


def _with_list(function: Any, half_function: Any = None) -> tuple[Returning, InPlace]:
    """An op of the tensors of two lists."""

    def op(self: Tensors, other: Tensors) -> list[torch.Tensor]:
        require_lists(self, other)
        outs = empty_lists_like(self)
        _write(form_for(self[0].dtype, function, half_function), outs, [self, other])
        return outs

    def op_(self: Tensors, other: Tensors) -> None:
        require_lists(self, other)
        _write(form_for(self[0].dtype, function, half_function), self, [self, other])

    return op, op_


def _with_multiples(function: Any) -> tuple[Returning, InPlace]:
    """An op of the tensors of two lists, of which the second is multiplied by a number."""

    def op(self: Tensors, other: Tensors, *, alpha: float = 1) -> list[torch.Tensor]:
        require_lists(self, other)
        outs = empty_lists_like(self)
        _write(function, outs, [self, other], shared=[alpha])
        return outs

    def op_(self: Tensors, other: Tensors, *, alpha: float = 1) -> None:
        require_lists(self, other)
        _write(function, self, [self, other], shared=[alpha])

    return op, op_


def _with_tensor(function: Any, half_function: Any = None) -> tuple[Returning, InPlace]:
    """An op of each tensor and one element."""

    def op(self: Tensors, other: torch.Tensor) -> list[torch.Tensor]:
        require_lists(self)
        _require_element(other, self)
        outs = empty_lists_like(self)
        _write(form_for(self[0].dtype, function, half_function), outs, [self], singles=[[other] * len(self)])
        return outs

    def op_(self: Tensors, other: torch.Tensor) -> None:
        require_lists(self)
        _require_element(other, self)
        _write(form_for(self[0].dtype, function, half_function), self, [self], singles=[[other] * len(self)])

    return op, op_


def _require_element(other: torch.Tensor, tensors: Tensors) -> None:
    """Refuse what eager refuses, and decline what does not lie with the tensors.

    Raises:
        ValueError: not one element.
        NotImplementedError: of another type, or on another device.
    """
    if other.ndim or other.numel() != 1:
        raise ValueError(f"one element is wanted, not shape {list(other.shape)}")
    if other.dtype != tensors[0].dtype or other.device != tensors[0].device:
        raise NotImplementedError(f"an element of {other.dtype} on {other.device} is not served")


def _fused_product(function: Any) -> tuple[Returning, InPlace, Returning, InPlace]:
    """``self + value * (tensor1 op tensor2)``, with one number or one for each tensor."""

    def op(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: float = 1) -> list[torch.Tensor]:
        require_lists(self, tensor1, tensor2)
        outs = empty_lists_like(self)
        _write(function, outs, [self, tensor1, tensor2], shared=[value])
        return outs

    def op_(self: Tensors, tensor1: Tensors, tensor2: Tensors, value: float = 1) -> None:
        require_lists(self, tensor1, tensor2)
        _write(function, self, [self, tensor1, tensor2], shared=[value])

    def each(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Sequence[float]) -> list[torch.Tensor]:
        require_lists(self, tensor1, tensor2)
        outs = empty_lists_like(self)
        _write(function, outs, [self, tensor1, tensor2], numbers=[scalars])
        return outs

    def each_(self: Tensors, tensor1: Tensors, tensor2: Tensors, scalars: Sequence[float]) -> None:
        require_lists(self, tensor1, tensor2)
        _write(function, self, [self, tensor1, tensor2], numbers=[scalars])

    return op, op_, each, each_


# ---------------------------------------------------------------- the ops

absolute, absolute_ = _unary(absolute_of)
acos, acos_ = _unary(acos_of)
asin, asin_ = _unary(asin_of)
atan, atan_ = _unary(atan_of)
ceil, ceil_ = _unary(ceil_of)
cos, cos_ = _unary(cos_of)
cosh, cosh_ = _unary(cosh_of)
erf, erf_ = _unary(erf_of)
exp, exp_ = _unary(exp_of)
expm1, expm1_ = _unary(expm1_of)
floor, floor_ = _unary(floor_of)
frac, frac_ = _unary(frac_of)
log, log_ = _unary(log_of)
log10, log10_ = _unary(log10_of)
log1p, log1p_ = _unary(log1p_of)
log2, log2_ = _unary(log2_of)
neg, neg_ = _unary(negative_of)
reciprocal, reciprocal_ = _unary(reciprocal_of)
round_to_even, round_to_even_ = _unary(round_of)
rsqrt, rsqrt_ = _unary(reciprocal_root_of)
sigmoid, sigmoid_ = _unary(sigmoid_of)
sign, sign_ = _unary(sign_of)
sin, sin_ = _unary(sin_of)
sinh, sinh_ = _unary(sinh_of)
sqrt, sqrt_ = _unary(root_of)
tan, tan_ = _unary(tan_of)
tanh, tanh_ = _unary(tanh_of)
trunc, trunc_ = _unary(trunc_of)
add_scalar, add_scalar_ = _with_scalar(plus)
add_scalars, add_scalars_ = _with_scalars(plus)
add_list, add_list_ = _with_multiples(add_of)
sub_scalar, sub_scalar_ = _with_scalar(minus)
sub_scalars, sub_scalars_ = _with_scalars(minus)
sub_list, sub_list_ = _with_multiples(sub_of)
mul_scalar, mul_scalar_ = _with_scalar(mul_of)
mul_scalars, mul_scalars_ = _with_scalars(mul_of)
mul_list, mul_list_ = _with_list(mul_of)
mul_tensor, mul_tensor_ = _with_tensor(mul_of)
div_scalar, div_scalar_ = _with_scalar(quotient_of, quotient_roughly)
div_scalars, div_scalars_ = _with_scalars(quotient_of, quotient_roughly)
div_list, div_list_ = _with_list(quotient_of, quotient_roughly)
div_tensor, div_tensor_ = _with_tensor(quotient_of, quotient_roughly)
maximum_scalar, maximum_scalar_ = _with_scalar(maximum_of)
maximum_scalars, maximum_scalars_ = _with_scalars(maximum_of)
maximum_list, maximum_list_ = _with_list(maximum_of)
minimum_scalar, minimum_scalar_ = _with_scalar(minimum_of)
minimum_scalars, minimum_scalars_ = _with_scalars(minimum_of)
minimum_list, minimum_list_ = _with_list(minimum_of)
addcmul, addcmul_, addcmul_scalars, addcmul_scalars_ = _fused_product(addcmul_of)
addcdiv, addcdiv_, addcdiv_scalars, addcdiv_scalars_ = _fused_product(addcdiv_of)


def pow_scalar(self: Tensors, exponent: float) -> list[torch.Tensor]:
    """Each tensor to one power."""
    return _with_scalar(power_of)[0](self, exponent)


def pow_scalar_(self: Tensors, exponent: float) -> None:
    """As :func:`pow_scalar`, in place."""
    _with_scalar(power_of)[1](self, exponent)


def pow_reversed(self: float, exponent: Tensors) -> list[torch.Tensor]:
    """One number to the power of each tensor."""
    return _with_scalar(power_reversed_of)[0](exponent, self)


def lerp_scalar(self: Tensors, tensors1: Tensors, weight: float) -> list[torch.Tensor]:
    """``self + weight * (tensors1 - self)``."""
    require_lists(self, tensors1)
    outs = empty_lists_like(self)
    _write(lerp_of, outs, [self, tensors1], shared=[weight])
    return outs


def lerp_scalar_(self: Tensors, tensors1: Tensors, weight: float) -> None:
    """As :func:`lerp_scalar`, in place."""
    require_lists(self, tensors1)
    _write(lerp_of, self, [self, tensors1], shared=[weight])


def lerp_list(self: Tensors, tensors1: Tensors, weights: Tensors) -> list[torch.Tensor]:
    """As :func:`lerp_scalar`, with a tensor of weights for each."""
    require_lists(self, tensors1, weights)
    outs = empty_lists_like(self)
    _write(lerp_of, outs, [self, tensors1, weights])
    return outs


def lerp_list_(self: Tensors, tensors1: Tensors, weights: Tensors) -> None:
    """As :func:`lerp_list`, in place."""
    require_lists(self, tensors1, weights)
    _write(lerp_of, self, [self, tensors1, weights])


def copy_(self: Tensors, src: Tensors, non_blocking: bool = False) -> None:  # noqa: ARG001 - Says how to wait.
    """Copy each tensor of ``src``."""
    require_lists(self, src)
    _write(same, self, [src])


def zero_(self: Tensors) -> None:
    """Write zeros."""
    require_lists(self)
    _write(same, self, [], shared=[0.0])
