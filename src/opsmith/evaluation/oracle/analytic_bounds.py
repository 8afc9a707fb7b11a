"""Error bounds in closed form: what roundings explain of some ops' results, from the formula of each."""

from __future__ import annotations

import math

import torch

from opsmith.evaluation.criteria.judged_call import JudgedCall
from opsmith.evaluation.oracle.error_bound import LINEAR_SLACK, half_a_step

#: A single accumulator in float32 of more terms is less accurate than it need be.
LONGEST_SUM = 4096
#: One standard deviation of a rounding, in ``eps`` of a number whose logarithm may be anything: 1/12 of the square of a
#: last digit, and the mean of 1/m^2 for mantissas m from 1 to 2.
ROUNDING = (3 / 8 / math.log(2) / 12) ** 0.5
#: Standard deviations of the walk that the roundings of a product make: an element is as far off as this once in 5e8.
PRODUCT_SLACK = 6.0
#: What the weights of a cubic slope, and of the cubics across it, add up to in magnitude.
_STEEPEST = 4


def terms_of(summed: torch.Tensor, sums: torch.Tensor) -> int:
    """How many terms each of the sums has; 1 where there are none."""
    return max(summed.numel() // max(sums.numel(), 1), 1)


def rounding_of_sum(total: torch.Tensor, squares: torch.Tensor, count: int, eps: float) -> torch.Tensor:
    """One standard deviation of what is rounded while ``count`` terms are added one by one.

    Each of the partial sums is rounded by up to half of a last digit either way, which is between a half and all of
    ``eps``. They grow with the number of terms, to ``total``, and around that as a random walk. More than
    ``LONGEST_SUM`` terms have several accumulators.

    Args:
        total: the sum, or the mean.
        squares: the sum of the terms' squares; for a mean that over the square of ``count``.
        count: 1 or more.
        eps: of the accumulator.
    """
    longest = min(count, LONGEST_SUM)
    places = total.abs().square() * longest**2 / count / 3 + squares * longest / 2
    rounding: torch.Tensor = places.sqrt() * (eps * ROUNDING)
    return rounding


def product_slack(call: JudgedCall, stem: str, value: torch.Tensor, eps: float) -> torch.Tensor:
    """What rounding after each factor explains of a product (``prod``, ``cumprod``), as a random walk."""
    share: torch.Tensor = PRODUCT_SLACK * ROUNDING * eps * _factors(call, stem, value).sqrt()
    return share * value.abs().nan_to_num(0.0, 0.0, 0.0)


def _factors(call: JudgedCall, stem: str, value: torch.Tensor) -> torch.Tensor:
    """How many factors each element of a product has."""
    arguments = call.bound()
    if stem == "prod" or not value.dim():
        return torch.tensor(terms_of(arguments["self"], value), dtype=torch.float64, device=value.device)
    dim: int = arguments["dim"]
    along = [-1 if d == dim % value.dim() else 1 for d in range(value.dim())]
    return torch.arange(1, value.shape[dim] + 1, dtype=torch.float64, device=value.device).view(along)


def layer_norm_slack(call: JudgedCall, rstd: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """By how much a rounding of the variance moves a layer norm or its ``rstd``: far, if eps is its opposite."""
    rstd, shift = rstd.to(value.device), call.bound()
    variance = rstd.square().reciprocal() - shift["eps"]
    share = LINEAR_SLACK * torch.finfo(torch.float32).eps * (variance * rstd.square()).abs().nan_to_num(0.0, 0.0, 0.0)
    bias = shift["bias"]
    size = (
        value.abs() if bias is None or value.shape == rstd.shape else value.abs() + bias.double().to(value.device).abs()
    )
    slack: torch.Tensor = share * size
    return slack.nan_to_num(0.0, 0.0, 0.0)


def sampling_slopes(call: JudgedCall) -> torch.Tensor:
    """Of each coordinate the largest slope that the image has room for, summed over the channels.

    Far outside of an image all pixels that are weighed are one, and the weights of a slope add up to 0.
    """
    gradient, image, grid = (arg.double().cpu() for arg in call.args[:3])
    largest = image.abs().flatten(2).amax(2) if image.numel() else image.flatten(2).sum(2)
    steep = (gradient.abs().flatten(2) * largest[..., None]).sum(1).view(grid.shape[:-1])
    pixels = _STEEPEST * torch.tensor(image.shape[:1:-1], dtype=torch.float64) / 2
    slopes: torch.Tensor = steep[..., None] * pixels
    return slopes.nan_to_num(0.0, 0.0, 0.0)


def small_products(call: JudgedCall, stem: str, value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """By how much half a step of ``dtype`` next to 0 moves a loss's gradient.

    It is taken by one over the number of elements, by that times a difference, and by that times the gradient.
    """
    given = call.bound()
    gradient, x, target = (given[name].double().to(value.device) for name in ("grad_output", "self", "target"))
    factor = (target if stem == "soft_margin_loss_backward" else x - target).abs()
    steps = (gradient.abs() * (factor + 1) + 1) / given.get("beta", 1.0)
    moved: torch.Tensor = (half_a_step(dtype) * steps).nan_to_num(0.0, 0.0, 0.0)
    return moved.expand(value.shape)
