"""Convolutions and transposed convolutions of one, two or three dimensions, and their gradients.

Each is one of three computations between a field and the sites of its windows (convolution_operands.py): two gathered
matrix products, and one for the weight's gradient. Where groups have one channel on either side there is nothing to
multiply matrices for, and kernels of their own read and write everything once. Images of one position are matrices
themselves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.launch import require_served
from ..common.volumes import empty_volume, prefers_channels_last
from ..reductions.reductions import sum_dim
from .convolution_operands import Sides
from .depthwise_convolution import convolve_depthwise
from .depthwise_gradients import depthwise_weight_gradient
from .depthwise_patches import convolve_patches, laid_out_as, part_of
from .filter_gradients import weight_gradient
from .implicit_gemm import convolve, shared_copy
from .single_positions import has_single_positions, positions_weight_gradient, transfer_positions
from .sliding import Sliding, sliding


def convolution(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> torch.Tensor:
    """``y[n, o, q] = bias[o] + sum of x[n, c, q * stride - padding + k * dilation] * w[o, c, k]``, or its transpose."""
    rule = sliding(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None:
        require_served(bias)
        if bias.shape != (channels,) or bias.dtype != input.dtype:
            raise ValueError(f"a bias of {channels} numbers in {input.dtype} is needed, not {list(bias.shape)}")
    spatial = input.ndim - 2
    out = _like(input, weight, (input.shape[0], channels, *rule.out_S[3 - spatial :]))
    if out.numel():
        _transfer(out, input, weight, bias, rule, to_field=transposed)
    return out


def convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,  # noqa: ARG001 - Of a bias as long as grad_output has channels.
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
    """The gradients of :func:`convolution` by input, weight and bias; None where ``output_mask`` is False."""
    rule = sliding(input, weight, stride, padding, dilation, transposed, output_padding, groups)
    require_served(grad_output)
    channels = weight.shape[1] * groups if transposed else weight.shape[0]
    expected = (input.shape[0], channels, *rule.out_S[5 - input.ndim :])
    if grad_output.shape != expected or grad_output.dtype != input.dtype:
        raise ValueError(f"a gradient of {list(expected)} in {input.dtype} is needed, not {list(grad_output.shape)}")
    is_gathered = not _is_depthwise(weight, rule) and not has_single_positions(rule)
    if output_mask[0] and output_mask[1] and is_gathered:
        grad_output = shared_copy(grad_output, weight, rule)
    if (output_mask[0] or output_mask[1]) and _is_depthwise(weight, rule):
        grad_output = laid_out_as(input, grad_output)
    grad_input = grad_weight = grad_bias = None
    if output_mask[0]:
        grad_input = _like(input, weight, tuple(input.shape))
        if grad_input.numel():
            _transfer(grad_input, grad_output, weight, None, rule, to_field=not transposed)
    if output_mask[1]:
        grad_weight = _like(input, weight, tuple(weight.shape))
        field, sites = (grad_output, input) if transposed else (input, grad_output)
        _gradient_by_weight(grad_weight, field, sites, rule)
    if output_mask[2]:
        grad_bias = sum_dim(grad_output, [0, *range(2, grad_output.ndim)])
    return grad_input, grad_weight, grad_bias


def _transfer(
    out: torch.Tensor,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rule: Sliding,
    *,
    to_field: bool,
) -> None:
    """From the sites to the field, or from the field to the sites."""
    if has_single_positions(rule):
        transfer_positions(out, x, weight, bias, to_field=to_field)
    elif not _is_depthwise(weight, rule):
        convolve(out, x, weight, bias, rule, to_field=to_field)
    elif (part_S := part_of(rule, to_field=to_field)) is not None:
        convolve_patches(out, x, weight, bias, rule, part_S, to_field=to_field)
    else:
        convolve_depthwise(out, x, weight, bias, rule, to_field=to_field)


def _gradient_by_weight(grad_weight: torch.Tensor, field: torch.Tensor, sites: torch.Tensor, rule: Sliding) -> None:
    if has_single_positions(rule):
        positions_weight_gradient(grad_weight, field, sites)
    elif not _is_depthwise(grad_weight, rule):
        weight_gradient(grad_weight, field, sites, rule)
    else:
        depthwise_weight_gradient(grad_weight, field, sites, rule)


def _is_depthwise(weight: torch.Tensor, rule: Sliding) -> bool:
    sides = Sides(rule.groups, weight.shape[0] // rule.groups, weight.shape[1])
    return sides.sites == 1 and sides.field == 1


def _like(x: torch.Tensor, weight: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """A tensor to be filled, channels-last if the input or the weight is, as eager has it."""
    channels_last = prefers_channels_last(x) or prefers_channels_last(weight)
    if x.ndim == 3 and x.is_cuda:
        # Lines are planes of height 1 to cuDNN; to the CPU's library they are row-major.
        channels_last = prefers_channels_last(x.unsqueeze(2)) or prefers_channels_last(weight.unsqueeze(2))
    return empty_volume(shape, x.dtype, x.device, channels_last=channels_last)
