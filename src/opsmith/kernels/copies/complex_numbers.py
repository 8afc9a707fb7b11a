"""Complex tensors made of real ones, and conjugated: both work on the pairs of numbers that ``view_as_real`` shows.

``2 * numel * itemsize`` bytes, where an element holds two numbers.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import empty_result, map_into_several
from ..common.launch import require_served
from .rearrangements import copy_into

#: The complex type of two numbers.
_COMPLEX = {
    torch.float16: torch.complex32,
    torch.float32: torch.complex64,
    torch.float64: torch.complex128,
}


@triton.jit
def pair_of(real: tl.tensor, imag: tl.tensor) -> tuple[tl.tensor, tl.tensor]:
    """Both numbers as they are."""
    return real, imag


def complex_(real: torch.Tensor, imag: torch.Tensor) -> torch.Tensor:
    """``real + imag i``, which broadcast.

    Raises:
        TypeError: two types, or a type that no complex type is made of.
        RuntimeError: shapes that do not broadcast.
    """
    require_served(real, imag)
    if real.dtype != imag.dtype or real.dtype not in _COMPLEX:
        raise TypeError(f"no complex number is made of {real.dtype} and {imag.dtype}")
    out = empty_result([real, imag], _COMPLEX[real.dtype])
    if out.numel():
        map_into_several(torch.view_as_real(out).unbind(-1), pair_of, [real, imag], [real.dtype] * 2)
    return out


def conj_physical(self: torch.Tensor) -> torch.Tensor:
    """The conjugates in memory of their own, laid out as ``self``; of real numbers, ``self``."""
    if not self.is_complex():
        return self
    out = torch.empty_like(self)
    copy_into(out, self.conj())
    return out
