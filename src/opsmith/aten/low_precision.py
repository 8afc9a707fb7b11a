"""Number formats of 8 bits and fewer: what their bits mean, and by how much one rounding moves a number.

OCP 8-bit Floating Point Specification 1.0 (E4M3, E5M2), OCP Microscaling Formats 1.0 (E8M0, E2M1), and the variants of
AMD's MI300 without negative zero (``fnuz``). Torch computes in none of them: they are converted, and compared, in
float32, which holds all their numbers.
"""

from __future__ import annotations

from typing import NamedTuple

import torch


class Format(NamedTuple):
    """A number format.

    Attributes:
        step: from a number to its neighbour, relative to it, at most; 0 for powers of two, which nothing is rounded to.
        least: the distance of the numbers next to zero.
        largest: the largest number.
    """

    step: float
    least: float
    largest: float


#: Two numbers of four bits a byte, the first one in the lower half.
PACKED = torch.float4_e2m1fn_x2
#: Powers of two: the scales of blocks.
SCALES = torch.float8_e8m0fnu

FORMATS = {
    torch.float8_e4m3fn: Format(2.0**-3, 2.0**-9, 448.0),
    torch.float8_e5m2: Format(2.0**-2, 2.0**-16, 57344.0),
    torch.float8_e4m3fnuz: Format(2.0**-3, 2.0**-10, 240.0),
    torch.float8_e5m2fnuz: Format(2.0**-2, 2.0**-17, 57344.0),
    SCALES: Format(0.0, 0.0, 2.0**127),
    PACKED: Format(2.0**-1, 0.5, 6.0),
}
#: The magnitudes of E2M1 by their three bits.
_E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)


def is_low(value: object) -> bool:
    """Whether a value is a tensor of one of the formats."""
    return isinstance(value, torch.Tensor) and value.dtype in FORMATS


def dequantized(tensor: torch.Tensor) -> torch.Tensor:
    """The numbers of a tensor of one of the formats in float32.

    Args:
        tensor: of any shape; of packed numbers the last dimension comes back twice as long.
    """
    if tensor.dtype is not PACKED:
        return tensor.float()
    codes = tensor.contiguous().view(torch.uint8)
    both = torch.stack([codes & 0xF, codes >> 4], dim=-1).flatten(-2) if codes.dim() else codes
    table = torch.tensor([*_E2M1, *[-each for each in _E2M1]], device=tensor.device)
    return table[both.long()]


def places(tensor: torch.Tensor) -> torch.Tensor:
    """Where each number stands among all of its format, zeros at 0, in int32; neighbours are 1 apart.

    Args:
        tensor: of any shape; of packed numbers the last dimension comes back twice as long.
    """
    codes = tensor.contiguous().view(torch.uint8)
    bits = 8
    if tensor.dtype is PACKED:
        codes, bits = torch.stack([codes & 0xF, codes >> 4], dim=-1).flatten(-2), 4
    if tensor.dtype is SCALES:
        return codes.int()
    sign = 1 << bits - 1
    magnitude = (codes & sign - 1).int()
    return torch.where(codes >= sign, -magnitude, magnitude)


def quantized(values: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """Numbers rounded to the nearest of a format that is not packed, those out of its range to its largest.

    Args:
        values: of any float dtype and shape.
        dtype: one of :data:`FORMATS`.
    """
    largest = FORMATS[dtype].largest
    return values.float().clamp(-largest, largest).to(dtype)


def readable(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of one of the formats as :func:`dequantized` gives it, any other as it is."""
    return dequantized(tensor) if tensor.dtype in FORMATS else tensor


def same_values(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether two tensors of one dtype have the same shape and elements; of the formats, the same bits."""
    if one.dtype not in FORMATS or one.dtype != other.dtype:
        return torch.equal(one, other)
    return torch.equal(one.contiguous().view(torch.uint8), other.contiguous().view(torch.uint8))
