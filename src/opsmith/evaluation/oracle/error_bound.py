"""What float64 says about a result, see :mod:`.oracle`."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

#: Float32's roundings in a sum, in units of what its terms' magnitudes add up to.
LINEAR_SLACK = 4.0


def half_a_step(dtype: torch.dtype) -> float:
    """By how much rounding moves a number next to 0, where a type's numbers are evenly spaced: no result is nearer."""
    info = torch.finfo(dtype)
    return float(info.tiny * info.eps / 2)


class Opinion(NamedTuple):
    """What float64 says about one result; both tensors lie on the CPU.

    Attributes:
        value: the result in float64 or complex128.
        slack: absolute error that the condition of the problem explains, or None.
        rounding: gives the absolute error that roundings to a dtype on the way to the result explain, or is None.
    """

    value: torch.Tensor
    slack: torch.Tensor | None
    rounding: Callable[[torch.dtype], torch.Tensor] | None = None
