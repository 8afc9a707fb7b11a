"""RMS normalization: ``y = x / sqrt(mean(x^2) + eps) * weight`` over the trailing dimensions.

The kernels are those of :mod:`standardization`, with 0 for the mean.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.elementwise import FLOATS
from ..common.launch import compute_dtype, require_served
from .layer_norm import leading_dims
from .standardization import along_dims, standardize


def rms_norm(
    input: torch.Tensor,  # noqa: A002
    normalized_shape: Sequence[int],
    weight: torch.Tensor | None,
    eps: float | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Normalize over the trailing ``normalized_shape``; without ``eps`` by that of the type computed in.

    Returns:
        The normalized tensor, and the reciprocal root mean square of every row.

    Raises:
        ValueError: shapes that do not fit each other.
    """
    require_served(input, weight, dtypes=FLOATS)
    lead = leading_dims(input, normalized_shape, weight, None)
    if weight is not None and weight.dtype != input.dtype:
        raise NotImplementedError("a weight of another type than the input's is not served")
    wide = compute_dtype(input.dtype)
    columns = range(lead, input.ndim)
    out = torch.empty(input.shape, dtype=input.dtype, device=input.device)
    rstd = torch.empty((*input.shape[:lead], *[1] * len(columns)), dtype=wide, device=input.device)
    if rstd.numel():
        smallest = torch.finfo(wide).eps if eps is None else eps
        parameters = along_dims(weight, input, columns), None
        standardize(input, columns, parameters, (out, None, rstd), smallest, centre=False)
    return out, rstd
