"""Layer normalization (Ba, Kiros and Hinton, 2016): the trailing dimensions are normalized, for each of the leading.

``y = (x - mean) * rstd * weight + bias``. A row is a position of the leading dimensions, its columns are the trailing
ones, along which weight and bias run. The kernels are those of :mod:`standardization`, which draws their tiles.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.elementwise import FLOATS
from ..common.launch import require_served
from .standardization import along_dims, standardize, statistics_dtype


def layer_norm(
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Normalize over the trailing ``normalized_shape``.

    Returns:
        The normalized tensor, and the mean and reciprocal standard deviation of every row.

    Raises:
        ValueError: shapes that do not fit each other.
        TypeError: parameters of another type than the input's (or float32 for a half type).
    """
    require_served(input, weight, bias, dtypes=FLOATS)
    lead = leading_dims(input, normalized_shape, weight, bias)
    statistics = statistics_dtype(input, (weight, bias), wide_on_device=True)
    columns = range(lead, input.ndim)
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    rows = (*input.shape[:lead], *[1] * len(columns))
    mean, rstd = (torch.empty(rows, dtype=statistics, device=input.device) for _ in range(2))
    if mean.numel():
        parameters = along_dims(weight, input, columns), along_dims(bias, input, columns)
        standardize(input, columns, parameters, (out, mean, rstd), eps)
    return out, mean, rstd


def leading_dims(
    x: torch.Tensor,
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
) -> int:
    """The number of dimensions before those of ``normalized_shape``.

    Raises:
        ValueError: it does not fit the input and its parameters.
    """
    shape, tail = tuple(x.shape), tuple(normalized_shape)
    if not tail or shape[-len(tail) :] != tail or any(p is not None and tuple(p.shape) != tail for p in (weight, bias)):
        raise ValueError(f"normalized_shape={list(tail)} does not fit an input of {list(shape)} and its parameters")
    return len(shape) - len(tail)
