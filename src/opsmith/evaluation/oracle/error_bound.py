"""What float64 says about a result, and how far eager and a candidate may be from it."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import torch

#: Float32's roundings in a sum, in units of what its terms' magnitudes add up to.
LINEAR_SLACK = 4.0
#: Likewise in a product of sums, in units of the largest of a matrix: of two levels of Strassen's, 6 (Higham, Accuracy
#: and Stability of Numerical Algorithms, section 23.2.2).
NORMWISE_SLACK = 8.0
#: How many units eager may be off before the oracle is not believed, and how many a candidate may
#: ever be. Half types have wide units (1.6 % for bfloat16), so they get few of them.
TRUST = {torch.bfloat16: 64.0, torch.float16: 256.0, torch.complex32: 256.0}
CEILING = {torch.bfloat16: 4.0, torch.float16: 16.0, torch.complex32: 16.0}
TRUST_WIDE = CEILING_WIDE = 4096.0
#: A normal error exceeds six times its RMS once in 5e8 elements. Where the result is a half type,
#: nothing but computing in that type between steps explains an error of more than one unit; twice
#: eager's is enough for that.
SLACK = {torch.bfloat16: 2.0, torch.float16: 2.0, torch.complex32: 2.0}
SLACK_WIDE = 6.0


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
        orders: gives, of an op that eager adds up in the result's type, one standard deviation of what rounding each
            addition does to an element, in ``eps`` of that type; 0 where nothing is added. It may give None.
    """

    value: torch.Tensor
    slack: torch.Tensor | None
    rounding: Callable[[torch.dtype], torch.Tensor] | None = None
    orders: Callable[[], torch.Tensor | None] | None = None
