"""Group normalization: every group of an image's channels is a row.

The input is seen as ``(N, group, C / group, HxW)`` and standardized over the last two by the kernels of
:mod:`standardization`; weight and bias run along the channels.
"""

from __future__ import annotations

import torch

from ..common.elementwise import FLOATS
from ..common.launch import require_served
from .standardization import channels_kept, standardize, statistics_dtype


def group_norm(
    input: torch.Tensor,  # noqa: A002
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize every group of channels of every image.

    Returns:
        The normalized tensor, and mean and reciprocal deviation of shape ``(N, group)``.

    Raises:
        ValueError: sizes that do not fit each other.
        TypeError: parameters of another type than the input's (or float32 for a half type).
    """
    require_served(input, weight, bias, dtypes=FLOATS)
    require_fits(input, (weight, bias), (N, C, HxW), group)
    statistics = statistics_dtype(input, (weight, bias), wide_on_device=False)
    out = torch.empty_strided(input.shape, output_strides(input), dtype=input.dtype, device=input.device)
    mean, rstd = (torch.empty((N, group), dtype=statistics, device=input.device) for _ in range(2))
    if mean.numel():
        x, y = grouped(input, group), grouped(out, group)
        parameters = channels_along(weight, x), channels_along(bias, x)
        standardize(x, range(2, x.ndim), parameters, (y, mean, rstd), eps)
    return out, mean, rstd


def grouped(x: torch.Tensor, group: int) -> torch.Tensor:
    """``x`` as ``(N, group, C / group, ...)``."""
    N, C = x.shape[:2]
    channel = x.stride(1)
    shape = (N, group, C // group, *x.shape[2:])
    return x.as_strided(shape, (x.stride(0), channel * (C // group), channel, *x.stride()[2:]))


def channels_along(parameter: torch.Tensor | None, x: torch.Tensor) -> torch.Tensor | None:
    """A vector over channels, expanded to the shape of a grouped ``x``."""
    if parameter is None:
        return None
    step = parameter.stride(0)
    return parameter.as_strided(x.shape, (0, step * x.shape[2], step, *[0] * (x.ndim - 3)))


def output_strides(x: torch.Tensor) -> tuple[int, ...]:
    """Row-major on a device; on a CPU as the input suggests."""
    return torch.empty(x.shape, device="meta").stride() if x.is_cuda else channels_kept(x)


def require_fits(
    x: torch.Tensor, parameters: tuple[torch.Tensor | None, ...], sizes: tuple[int, int, int], group: int
) -> None:
    """Check what eager checks.

    Raises:
        ValueError: sizes that do not fit each other.
    """
    N, C, HxW = sizes
    if group <= 0 or C % group or x.ndim < 2 or x.shape[:2] != (N, C) or x.numel() != N * C * HxW:
        raise ValueError(f"N={N}, C={C}, HxW={HxW} and group={group} do not fit an input of {list(x.shape)}")
    if any(p is not None and tuple(p.shape) != (C,) for p in parameters):
        raise ValueError(f"weight and bias must be vectors of {C} channels")
