"""Results in formats of 8 bits and fewer, counted in steps of the format.

A step is what one rounding moves a number by: 12.5 % in E4M3, 25 % in E5M2, 50 % in E2M1. Two right kernels differ by
it where what they round lies next to the middle of two numbers, which is rare. A kernel that rounds in another way, or
computes in too low a precision before, is off by a step in a large share of all places.
"""

from __future__ import annotations

import torch

from opsmith.aten.low_precision import FORMATS, dequantized, places

#: Times the numbers that a format has to a factor of two: the share of elements that may be a step off. It is what two
#: roundings to bfloat16 on the way move: one in 16 in E4M3, one in 64 in E2M1. Truncation moves half of all.
ROUNDED_BEFORE = 2.0**-7
#: More steps than any format has.
FAR = 1 << 16
#: How many may be a step off in any case.
FEW_OFF = 2


def steps_off(expected: torch.Tensor, got: torch.Tensor) -> torch.Tensor:
    """By how many steps each number differs, in int32; NaN by none from NaN, and by :data:`FAR` from numbers.

    Args:
        expected: of one of the formats; packed numbers come apart.
        got: of the same dtype and shape.
    """
    nan, got_nan = dequantized(expected).isnan(), dequantized(got).isnan()
    steps = (places(expected) - places(got)).abs().masked_fill_(nan & got_nan, 0)  # Some formats have two.
    return steps.masked_fill_(nan != got_nan, FAR)


def most_off(dtype: torch.dtype, elements: int) -> int:
    """How many of the elements may be a step off; scales of blocks have one right answer."""
    step = FORMATS[dtype].step
    return max(FEW_OFF, int(ROUNDED_BEFORE / step * elements)) if step else 0
