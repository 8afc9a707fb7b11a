"""Elementwise losses, whole or reduced to their mean or sum, and their gradients.

Whole: as in :mod:`.elementwise`. Reduced: ``2 * numel * itemsize`` bytes read by one pass that adds up as it goes, and
one number for each of its programs, which a second pass adds up; nothing of the size of the input is written.
Gradients: three tensors of the input's size, and one number or a fourth tensor.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..common.elementwise import (
    FLOATS,
    Operand,
    map_elements,
    prepare_call,
    served_promotion,
    tile_offsets,
    tile_values,
)
from ..common.indexing import converted, number, output_layout
from ..common.launch import (
    compute_dtype,
    compute_type,
    launch,
    layout_of,
    loop_bound,
    multiprocessors,
    number_bits,
    pdl_prologue,
    pick_device,
    require_served,
)
from ..pointwise.basic import exp_of, maximum_of, minimum_of
from ..pointwise.exponentials import log1p_of, log_of
from ..reductions.reductions import sum_default


class Reduction(enum.IntEnum):
    """Torch's numbers for the reductions of a loss."""

    NONE = 0
    MEAN = 1
    SUM = 2


# ---------------------------------------------------------------- functions of values


@triton.jit
def squared_error_of(x: tl.tensor, target: tl.tensor) -> tl.tensor:
    """``(x - target)^2``."""
    return (x - target) * (x - target)


@triton.jit
def smooth_l1_of(x: tl.tensor, target: tl.tensor, beta: tl.tensor) -> tl.tensor:
    """``d^2 / (2 beta)`` where ``d = |x - target|`` is below beta, else ``d - beta / 2``."""
    d = tl.abs(x - target)
    return tl.where(d < beta, 0.5 * d * d / beta, d - 0.5 * beta)


@triton.jit
def huber_of(x: tl.tensor, target: tl.tensor, delta: tl.tensor) -> tl.tensor:
    """``d^2 / 2`` where ``d = |x - target|`` is at most delta, else ``delta (d - delta / 2)``."""
    d = tl.abs(x - target)
    return tl.where(d <= delta, 0.5 * d * d, delta * (d - 0.5 * delta))


@triton.jit
def soft_margin_of(x: tl.tensor, target: tl.tensor) -> tl.tensor:
    """``ln(1 + e^(-target x))``."""
    return log1p_of(exp_of(-target * x))


@triton.jit
def cross_entropy_of(x: tl.tensor, target: tl.tensor, weight: tl.tensor) -> tl.tensor:
    """``-weight (target ln x + (1 - target) ln(1 - x))``, each logarithm at least -100."""
    log_x = maximum_of(log_of(x), -100.0)
    log_rest = maximum_of(log1p_of(-x), -100.0)
    return ((target - 1.0) * log_rest - target * log_x) * weight


@triton.jit
def logit_cross_entropy_of(x: tl.tensor, target: tl.tensor, weight: tl.tensor, positive: tl.tensor) -> tl.tensor:
    """The cross entropy of ``1 / (1 + e^-x)``: ``(1 - target) x + (1 + (positive - 1) target) ln(1 + e^-x)``."""
    log_one_plus = log1p_of(exp_of(-tl.abs(x))) - minimum_of(x, 0.0)
    factor = 1.0 + (positive - 1.0) * target
    return ((1.0 - target) * x + factor * log_one_plus) * weight


@triton.jit
def squared_error_gradient_of(grad: tl.tensor, x: tl.tensor, target: tl.tensor, norm: tl.tensor) -> tl.tensor:
    """``2 norm (x - target) grad``."""
    return 2.0 * norm * (x - target) * grad


@triton.jit
def smooth_l1_gradient_of(
    grad: tl.tensor, x: tl.tensor, target: tl.tensor, norm: tl.tensor, beta: tl.tensor
) -> tl.tensor:
    """``norm grad`` times ``(x - target) / beta``, limited to [-1, 1]."""
    d = x - target
    inside = norm * d * grad / beta
    return tl.where(d <= -beta, -norm * grad, tl.where(d >= beta, norm * grad, inside))


@triton.jit
def huber_gradient_of(grad: tl.tensor, x: tl.tensor, target: tl.tensor, norm: tl.tensor, delta: tl.tensor) -> tl.tensor:
    """``norm grad`` times ``x - target``, limited to [-delta, delta]."""
    d = x - target
    edge = norm * grad * delta
    return tl.where(d <= -delta, -edge, tl.where(d >= delta, edge, norm * d * grad))


@triton.jit
def soft_margin_gradient_of(grad: tl.tensor, x: tl.tensor, target: tl.tensor, norm: tl.tensor) -> tl.tensor:
    """``-target norm grad z / (1 + z)`` with ``z = e^(-target x)``."""
    z = exp_of(-target * x)
    return -norm * target * (z / (z + 1.0)) * grad


@triton.jit
def cross_entropy_gradient_of(
    grad: tl.tensor, x: tl.tensor, target: tl.tensor, weight: tl.tensor, norm: tl.tensor
) -> tl.tensor:
    """``grad weight norm (x - target) / (x (1 - x))``, the denominator at least 1e-12."""
    return grad * weight * norm * (x - target) / maximum_of((1.0 - x) * x, 1e-12)


# ---------------------------------------------------------------- reduced to a number


@triton.jit
def map_sum_kernel(
    partial_ptr: tl.tensor,
    operands_I: tl.tuple,
    shape_R: tl.tuple,
    shape_C: tl.tuple,
    row_strides_LD: tl.tuple,
    column_strides_LD: tl.tuple,
    R: tl.tensor,
    C: tl.tensor,
    scale_bits: tl.tensor,
    steps: tl.tensor,
    function: tl.constexpr,
    READ_I: tl.constexpr,
    COMPUTE_I: tl.constexpr,
    LAYOUT_I: tl.constexpr,
    DENSE_L: tl.constexpr,
    RAGGED: tl.constexpr,
    UNIT: tl.constexpr,
    ACCUMULATE: tl.constexpr,
    INDEX: tl.constexpr,
    BLOCK_R: tl.constexpr,
    BLOCK_C: tl.constexpr,
) -> None:
    """``partial[p] = scale * sum of function(operands)`` over the tiles p, p + programs, p + 2 programs, ..."""
    pdl_prologue()
    sum_RC = tl.zeros([BLOCK_R, BLOCK_C], ACCUMULATE)
    for step in range(steps):
        tile = tl.program_id(0) + step * tl.num_programs(0)
        inside, whole, offsets_L = tile_offsets(
            tile, shape_R, shape_C, row_strides_LD, column_strides_LD, R, C, DENSE_L, UNIT, INDEX, BLOCK_R, BLOCK_C
        )
        values = tile_values(operands_I, offsets_L, inside, whole, READ_I, COMPUTE_I, LAYOUT_I, DENSE_L, RAGGED, 0)
        sum_RC += tl.where(inside, function(*values), 0.0)
    total = tl.sum(tl.sum(sum_RC, axis=1), axis=0) * number(scale_bits, ACCUMULATE)
    tl.store(partial_ptr + tl.program_id(0) + tl.arange(0, 1), converted(total, partial_ptr.dtype.element_ty))


def _mapped_sum(
    function: Any,
    operands: Sequence[Operand],
    result: torch.dtype,
    parameters: Sequence[float],
    scale: float,
) -> torch.Tensor:
    """``scale`` times the sum of ``function`` over the broadcast operands, which are computed in ``result``'s type."""
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    layout = output_layout(tuple(map(layout_of, tensors)))
    call = prepare_call(layout, [], operands, [result] * len(operands), parameters, result)
    # Four programs a multiprocessor keep enough reads in flight; fewer tiles than that are one program's work.
    programs = 1 if call.programs() <= 8 else min(call.programs(), 4 * multiprocessors(pick_device(operands)))
    dtype = result if programs == 1 else compute_dtype(result)
    partial = torch.empty(() if programs == 1 else (programs,), dtype=dtype, device=pick_device(operands))
    accumulate = compute_type(result)
    launch(
        map_sum_kernel,
        (programs,),
        partial.device,
        partial,
        call.arguments_I,
        *call.geometry(),
        number_bits(scale, accumulate),
        loop_bound(triton.cdiv(call.programs(), programs)),
        function=function,
        LAYOUT_I=call.tiles.layout_T[1:],
        ACCUMULATE=accumulate,
        num_warps=call.tiles.warps,
        **call.constants(),
    )
    return partial if programs == 1 else sum_default(partial, dtype=result)


def _loss(function: Any, operands: Sequence[Operand], reduction: int, parameters: Sequence[float] = ()) -> torch.Tensor:
    """A loss in the promoted type of its operands, reduced as asked."""
    result = served_promotion(operands)
    if not result.is_floating_point:
        raise TypeError(f"a loss of {result} is not defined")
    if reduction == Reduction.NONE:
        return map_elements(function, operands, [result] * len(operands), result, parameters)
    tensors = [operand for operand in operands if isinstance(operand, torch.Tensor)]
    numel = torch.broadcast_shapes(*(tensor.shape for tensor in tensors)).numel()
    scale = 1.0
    if reduction == Reduction.MEAN:
        scale = 1.0 / numel if numel else float("nan")
    return _mapped_sum(function, operands, result, parameters, scale)


# ---------------------------------------------------------------- the ops


def mse_loss(self: torch.Tensor, target: torch.Tensor, reduction: int = Reduction.MEAN) -> torch.Tensor:
    """``(self - target)^2``."""
    return _loss(squared_error_of, [self, target], reduction)


def smooth_l1_loss(
    self: torch.Tensor, target: torch.Tensor, reduction: int = Reduction.MEAN, beta: float = 1.0
) -> torch.Tensor:
    """``|self - target|`` with a parabola of width beta at its corner.

    Raises:
        ValueError: ``beta`` is negative.
    """
    if beta < 0:
        raise ValueError(f"beta has to be 0 or more, not {beta}")
    return _loss(smooth_l1_of, [self, target], reduction, [beta])


def huber_loss(
    self: torch.Tensor, target: torch.Tensor, reduction: int = Reduction.MEAN, delta: float = 1.0
) -> torch.Tensor:
    """A parabola that goes on as a line beyond delta.

    Raises:
        ValueError: ``delta`` is not positive.
    """
    if delta <= 0:
        raise ValueError(f"delta has to be positive, not {delta}")
    return _loss(huber_of, [self, target], reduction, [delta])


def soft_margin_loss(self: torch.Tensor, target: torch.Tensor, reduction: int = Reduction.MEAN) -> torch.Tensor:
    """``ln(1 + e^(-target * self))``."""
    return _loss(soft_margin_of, [self, target], reduction)


def binary_cross_entropy(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> torch.Tensor:
    """``-weight (target ln self + (1 - target) ln(1 - self))``."""
    _require_equal_shapes(self, target)
    return _loss(cross_entropy_of, [self, target, 1.0 if weight is None else weight], reduction)


def binary_cross_entropy_with_logits(
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    pos_weight: torch.Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> torch.Tensor:
    """The binary cross entropy of the sigmoid of ``self``; the positive term counts ``pos_weight`` times."""
    _require_equal_shapes(self, target)
    factors = [1.0 if factor is None else factor for factor in (weight, pos_weight)]
    return _loss(logit_cross_entropy_of, [self, target, *factors], reduction)


def _require_equal_shapes(self: torch.Tensor, target: torch.Tensor) -> None:
    if self.shape != target.shape:
        raise ValueError(f"the target has shape {list(target.shape)} and the input {list(self.shape)}")


# ---------------------------------------------------------------- their gradients


def _loss_gradient(
    function: Any, operands: Sequence[Operand], of: torch.Tensor, reduction: int, *numbers: float
) -> torch.Tensor:
    """Apply ``function`` to the operands and the factor that the reduction puts on each element."""
    require_served(*(operand for operand in operands if isinstance(operand, torch.Tensor)))
    result = of.dtype
    if result not in FLOATS:
        raise TypeError(f"a loss of {result} is not defined")
    norm = 1.0 / max(of.numel(), 1) if reduction == Reduction.MEAN else 1.0
    return map_elements(function, operands, [result] * len(operands), result, parameters=[norm, *numbers])


def mse_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    """The gradient of :func:`mse_loss`."""
    return _loss_gradient(squared_error_gradient_of, [grad_output, self, target], self, reduction)


def smooth_l1_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int, beta: float
) -> torch.Tensor:
    """The gradient of :func:`smooth_l1_loss`."""
    return _loss_gradient(smooth_l1_gradient_of, [grad_output, self, target], self, reduction, beta)


def huber_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int, delta: float
) -> torch.Tensor:
    """The gradient of :func:`huber_loss`."""
    return _loss_gradient(huber_gradient_of, [grad_output, self, target], self, reduction, delta)


def soft_margin_loss_backward(
    grad_output: torch.Tensor, self: torch.Tensor, target: torch.Tensor, reduction: int
) -> torch.Tensor:
    """The gradient of :func:`soft_margin_loss`."""
    return _loss_gradient(soft_margin_gradient_of, [grad_output, self, target], self, reduction)


def binary_cross_entropy_backward(
    grad_output: torch.Tensor,
    self: torch.Tensor,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    reduction: int = Reduction.MEAN,
) -> torch.Tensor:
    """The gradient of :func:`binary_cross_entropy`."""
    operands: list[Operand] = [grad_output, self, target, 1.0 if weight is None else weight]
    return _loss_gradient(cross_entropy_gradient_of, operands, self, reduction)
