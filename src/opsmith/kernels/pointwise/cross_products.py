"""The cross product of vectors of three elements: an elementwise op on the six slices of its operands.

``3 * itemsize`` bytes read of each operand and written for each vector, see :mod:`.elementwise`.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_into_several, served_promotion
from ..common.indexing import normalized_dims


@triton.jit
def cross_of(
    x0: tl.tensor, x1: tl.tensor, x2: tl.tensor, y0: tl.tensor, y1: tl.tensor, y2: tl.tensor
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:
    """``x cross y``."""
    return x1 * y2 - x2 * y1, x2 * y0 - x0 * y2, x0 * y1 - x1 * y0


def linalg_cross(self: torch.Tensor, other: torch.Tensor, *, dim: int = -1) -> torch.Tensor:
    """``self cross other`` of the vectors along ``dim``; the other dimensions broadcast.

    Raises:
        ValueError: different numbers of dimensions, or vectors that have not three elements.
        IndexError: ``dim`` out of range.
        RuntimeError: shapes that do not broadcast.
    """
    result = served_promotion([self, other])
    if self.ndim != other.ndim:
        raise ValueError(f"{self.ndim} and {other.ndim} dimensions: a cross product needs as many of both")
    (axis,) = normalized_dims(dim, self.ndim)
    if not self.ndim or self.shape[axis] != 3 or other.shape[axis] != 3:
        raise ValueError(f"a cross product is of 3 elements along dimension {dim}")
    out = torch.empty(torch.broadcast_shapes(self.shape, other.shape), dtype=result, device=self.device)
    operands = [*self.unbind(axis), *other.unbind(axis)]
    map_into_several(out.unbind(axis), cross_of, operands, [result] * 6)
    return out
