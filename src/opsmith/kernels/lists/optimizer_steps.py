"""Steps of optimisers over lists of tensors, in one launch for up to 32 tensors: Adam, AdamW and SGD.

See :mod:`.tensor_lists`. Adam reads a parameter, its gradient and both of its averages, and writes all but the
gradient: ``7 * numel * itemsize`` bytes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
import triton
import triton.language as tl

from ..pointwise.arithmetic import lerp_of, root_of
from ..pointwise.exponentials import expm1_of
from .tensor_lists import map_lists, require_lists

Tensors = Sequence[torch.Tensor]


@triton.jit
def adam_averages(
    parameter: tl.tensor,
    gradient: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    rate: tl.tensor,
    rest1: tl.tensor,
    beta2: tl.tensor,
    rest2: tl.tensor,
    shrinking: tl.tensor,
    decay: tl.tensor,
    sign: tl.tensor,
) -> tl.tuple:
    """The parameter after its decay, and the averages with the gradient and its square; ``rest = 1 - beta``."""
    parameter = parameter - rate * shrinking * parameter
    gradient = sign * gradient + decay * parameter
    mean = lerp_of(mean, gradient, rest1)
    return parameter, mean, beta2 * square + rest2 * gradient * gradient


@triton.jit
def adam_moved(
    parameter: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    steps: tl.tensor,
    rate: tl.tensor,
    log_beta1: tl.tensor,
    log_beta2: tl.tensor,
    eps: tl.tensor,
) -> tl.tensor:
    """``parameter - rate * mean / c1 / (sqrt(square / c2) + eps)``, ``c = 1 - beta^steps`` without cancelling."""
    correction1, correction2 = -expm1_of(steps * log_beta1), -expm1_of(steps * log_beta2)
    return parameter - rate / correction1 * mean / (root_of(square) / root_of(correction2) + eps)


@triton.jit
def adam_of(
    parameter: tl.tensor,
    gradient: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    steps: tl.tensor,
    rate: tl.tensor,
    rest1: tl.tensor,
    beta2: tl.tensor,
    rest2: tl.tensor,
    log_beta1: tl.tensor,
    log_beta2: tl.tensor,
    shrinking: tl.tensor,
    decay: tl.tensor,
    eps: tl.tensor,
    sign: tl.tensor,
) -> tl.tuple:
    """One element's step."""
    parameter, mean, square = adam_averages(
        parameter, gradient, mean, square, rate, rest1, beta2, rest2, shrinking, decay, sign
    )
    return adam_moved(parameter, mean, square, steps, rate, log_beta1, log_beta2, eps), mean, square


@triton.jit
def amsgrad_of(
    parameter: tl.tensor,
    gradient: tl.tensor,
    mean: tl.tensor,
    square: tl.tensor,
    greatest: tl.tensor,
    steps: tl.tensor,
    rate: tl.tensor,
    rest1: tl.tensor,
    beta2: tl.tensor,
    rest2: tl.tensor,
    log_beta1: tl.tensor,
    log_beta2: tl.tensor,
    shrinking: tl.tensor,
    decay: tl.tensor,
    eps: tl.tensor,
    sign: tl.tensor,
) -> tl.tuple:
    """As :func:`adam_of`, with the greatest average of squares so far."""
    parameter, mean, square = adam_averages(
        parameter, gradient, mean, square, rate, rest1, beta2, rest2, shrinking, decay, sign
    )
    greatest = tl.maximum(greatest, square)
    return adam_moved(parameter, mean, greatest, steps, rate, log_beta1, log_beta2, eps), mean, square, greatest


@triton.jit
def sgd_of(
    parameter: tl.tensor, gradient: tl.tensor, rate: tl.tensor, weight_decay: tl.tensor, sign: tl.tensor
) -> tl.tensor:
    """One element's step without momentum."""
    return parameter - rate * (sign * gradient + weight_decay * parameter)


@triton.jit
def momentum_of(
    parameter: tl.tensor,
    gradient: tl.tensor,
    velocity: tl.tensor,
    rate: tl.tensor,
    weight_decay: tl.tensor,
    sign: tl.tensor,
    momentum: tl.tensor,
    taken: tl.tensor,
    nesterov: tl.tensor,
) -> tl.tuple:
    """One element's step; ``taken`` is the gradient's part in the velocity."""
    gradient = sign * gradient + weight_decay * parameter
    velocity = momentum * velocity + taken * gradient
    direction = tl.where(nesterov != 0.0, gradient + momentum * velocity, velocity)
    return parameter - rate * direction, velocity


@triton.jit
def first_momentum_of(
    parameter: tl.tensor,
    gradient: tl.tensor,
    rate: tl.tensor,
    weight_decay: tl.tensor,
    sign: tl.tensor,
    momentum: tl.tensor,
    nesterov: tl.tensor,
) -> tl.tuple:
    """As :func:`momentum_of` in the first step: the velocity, which holds nothing yet, becomes the gradient."""
    gradient = sign * gradient + weight_decay * parameter
    direction = tl.where(nesterov != 0.0, gradient + momentum * gradient, gradient)
    return parameter - rate * direction, gradient


def _require_no_scaler(grad_scale: torch.Tensor | None, found_inf: torch.Tensor | None) -> None:
    """Decline the tensors of a gradient scaler.

    Raises:
        NotImplementedError: one is given.
    """
    if grad_scale is not None or found_inf is not None:
        raise NotImplementedError("steps with a gradient scaler are not served")


def _adam(
    lists: tuple[Tensors, Tensors, Tensors, Tensors],
    greatest: Tensors,
    state_steps: Tensors,
    lr: float,
    betas: tuple[float, float],
    decays: tuple[float, float],
    eps: float,
    *,
    amsgrad: bool,
    maximize: bool,
) -> None:
    """Write the parameters and their averages, the first, third and fourth of ``lists``.

    ``decays`` are the parts of a parameter that are taken from itself, times lr, and added to its gradient.
    """
    every = [*lists, greatest] if amsgrad else list(lists)
    require_lists(*every)
    if len(state_steps) != len(lists[0]) or any(step.numel() != 1 for step in state_steps):
        raise ValueError("there is one number of steps for each parameter")
    if any(step.device != lists[0][0].device for step in state_steps):
        raise NotImplementedError("numbers of steps on another device are not served")
    # What is near 1 is given as its distance from 1, which float32 would cut.
    averages = [1.0 - betas[0], betas[1], 1.0 - betas[1]]
    logarithms = [math.log(beta) if beta > 0 else -float("inf") for beta in betas]
    shared = [lr, *averages, *logarithms, *decays, eps, -1.0 if maximize else 1.0]
    outs = [lists[0], *every[2:]]
    map_lists(amsgrad_of if amsgrad else adam_of, outs, every, singles=[state_steps], shared=shared)


def adam(*, decoupled: bool) -> Callable[..., None]:
    """Adam, or AdamW, whose ``decoupled`` weight decay shrinks the parameters and is no part of their gradients."""

    def op(
        self: Tensors,
        grads: Tensors,
        exp_avgs: Tensors,
        exp_avg_sqs: Tensors,
        max_exp_avg_sqs: Tensors,
        state_steps: Tensors,
        *,
        lr: float,
        beta1: float,
        beta2: float,
        weight_decay: float,
        eps: float,
        amsgrad: bool,
        maximize: bool,
        grad_scale: torch.Tensor | None = None,
        found_inf: torch.Tensor | None = None,
    ) -> None:
        _require_no_scaler(grad_scale, found_inf)
        lists, betas = (self, grads, exp_avgs, exp_avg_sqs), (beta1, beta2)
        decays = (weight_decay, 0.0) if decoupled else (0.0, weight_decay)
        _adam(lists, max_exp_avg_sqs, state_steps, lr, betas, decays, eps, amsgrad=amsgrad, maximize=maximize)

    return op


fused_adam_, fused_adamw_ = adam(decoupled=False), adam(decoupled=True)


def fused_sgd_(
    self: Tensors,
    grads: Tensors,
    momentum_buffer_list: Tensors,
    *,
    weight_decay: float,
    momentum: float,
    lr: float,
    dampening: float,
    nesterov: bool,
    maximize: bool,
    is_first_step: bool,
    grad_scale: torch.Tensor | None = None,
    found_inf: torch.Tensor | None = None,
) -> None:
    """A step of stochastic gradient descent; in the first one the momentum is written only."""
    _require_no_scaler(grad_scale, found_inf)
    shared = [lr, weight_decay, -1.0 if maximize else 1.0]
    if not momentum_buffer_list:
        require_lists(self, grads)
        map_lists(sgd_of, [self], [self, grads], shared=shared)
        return
    require_lists(self, grads, momentum_buffer_list)
    outs = [self, momentum_buffer_list]
    if is_first_step:
        map_lists(first_momentum_of, outs, [self, grads], shared=[*shared, momentum, float(nesterov)])
        return
    numbers = [*shared, momentum, 1.0 - dampening, float(nesterov)]
    map_lists(momentum_of, outs, [self, grads, momentum_buffer_list], shared=numbers)
