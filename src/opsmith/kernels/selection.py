"""Replacement by a mask: masked_fill; where is in :mod:`.pointwise`.

Traffic: ``numel * (2 * itemsize + 1)`` bytes.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from .launch import require_served
from .pointwise import Operand, map_into, require_holds


@triton.jit
def replaced_of(x: tl.tensor, mask: tl.tensor, value: tl.tensor) -> tl.tensor:
    """``value`` where the mask holds, else x."""
    return tl.where(mask != 0, value, x)


def masked_fill_scalar(self: torch.Tensor, mask: torch.Tensor, value: float) -> torch.Tensor:
    """``self`` with ``value`` where ``mask`` holds, contiguous.

    Raises:
        OverflowError: the type of ``self`` does not hold the value.
    """
    if isinstance(value, complex) and not self.is_complex():
        raise OverflowError(f"{value!r} is no {self.dtype} value")
    number = bool(value) if self.dtype == torch.bool else value
    if self.dtype != torch.bool:
        require_holds(self.dtype, number)
    return _filled_where(self, mask, number)


def masked_fill_tensor(self: torch.Tensor, mask: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """As :func:`masked_fill_scalar`, with the one element of a tensor."""
    if value.ndim:
        raise ValueError(f"masked_fill takes a value without dimensions, not one with {value.ndim}")
    if value.device != self.device:
        return masked_fill_scalar(self, mask, value.item())  # Only a CPU tensor: eager refuses any other.
    require_served(value)
    return _filled_where(self, mask, value)


def _filled_where(self: torch.Tensor, mask: torch.Tensor, value: Operand) -> torch.Tensor:
    if mask.dtype != torch.bool:
        raise TypeError(f"the mask must be a bool tensor, not {mask.dtype}")
    require_served(self, mask)
    shape = torch.broadcast_shapes(self.shape, mask.shape)
    out = torch.empty(shape, dtype=self.dtype, device=self.device)
    map_into(out, replaced_of, [self, mask, value], [self.dtype, torch.bool, self.dtype])
    return out
