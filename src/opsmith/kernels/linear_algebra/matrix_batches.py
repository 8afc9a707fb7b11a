"""Batches of small dense matrices, of which a program takes one: where they lie, and what is served.

A program holds a matrix, or some of its columns, in registers and works on all of its elements at every step; a step is
a few passes over the tile and one or two reductions. That beats a library where matrices are small and many. A
matrix that is too large for the registers is declined.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
import triton

from ..common.indexing import Geometry, Ints, expanded_strides, merge_dims
from ..common.launch import read_count, require_served
from ..pointwise.comparisons import eq
from ..pointwise.complex_parts import PART
from ..reductions.reductions import all_default

SERVED = (torch.float32, torch.float64)
COMPLEX = tuple(PART)
#: Rows and columns of a matrix that a program holds whole.
MOST = 128
#: Elements of such a tile.
MOST_ELEMENTS = MOST * MOST


class Core(NamedTuple):
    """One operand: the strides of its batch in the common batch, and of its last dimensions."""

    batch: Ints
    strides: Ints


class Batch(NamedTuple):
    """The matrices that programs number, the last dimension of the batch fastest."""

    matrices: int
    shape_D: Ints
    operands: tuple[Core, ...]

    @classmethod
    def of(cls, shape: Ints, *operands: tuple[torch.Tensor, int]) -> Batch:
        """Lay out a batch of ``shape``; each operand comes with its number of dimensions behind the batch.

        Raises:
            RuntimeError: an operand that does not broadcast to the batch.
        """
        strides = []
        for tensor, core in operands:
            lead = tensor.ndim - core
            strides.append(expanded_strides((tuple(tensor.shape[:lead]), tensor.stride()[:lead]), shape))
        geometry: Geometry = merge_dims(shape, strides, range(len(shape) - 1, -1, -1))
        cores = tuple(
            Core(batch, tensor.stride()[tensor.ndim - core :])
            for (tensor, core), batch in zip(operands, geometry.strides_ID, strict=True)
        )
        return cls(geometry.numel() if 0 not in shape else 0, geometry.shape_D, cores)

    def layouts(self) -> tuple[Ints, ...]:
        """For each operand the strides of the batch, then those of its last dimensions."""
        return tuple(entry for operand in self.operands for entry in operand)


def require_matrices(*tensors: torch.Tensor, square: bool = False, complex_too: bool = False) -> None:
    """Check the arguments of a function of batches of matrices, which are real unless ``complex_too``.

    Raises:
        NotImplementedError: a type that is not served.
        ValueError: no matrices, or none that are square.
        TypeError: several types.
    """
    require_served(*tensors, dtypes=SERVED + COMPLEX if complex_too else SERVED)
    for tensor in tensors:
        if tensor.ndim < 2 or (square and tensor.shape[-1] != tensor.shape[-2]):
            raise ValueError(f"a tensor of shape {list(tensor.shape)} holds no {'square ' if square else ''}matrices")
        if tensor.dtype != tensors[0].dtype:
            raise TypeError(f"the matrices are of {tensors[0].dtype} and {tensor.dtype}")


def require_small(*sides: int) -> None:
    """Decline a matrix that a program does not hold.

    Raises:
        NotImplementedError: a side of more than :data:`MOST`.
    """
    if max(sides) > MOST:
        raise NotImplementedError(f"matrices of more than {MOST} rows or columns are not served")


def empty_columns(shape: Sequence[int], like: torch.Tensor) -> torch.Tensor:
    """An unwritten tensor whose matrices are column-major, as eager lays out what its solvers return."""
    *batch, rows, columns = shape
    return torch.empty((*batch, columns, rows), dtype=like.dtype, device=like.device).mT


def block_of(side: int) -> int:
    """A power of two that holds a side."""
    return int(triton.next_power_of_2(max(side, 1)))


def warps_for(elements: int) -> int:
    """16 elements of a tile a thread."""
    return min(max(elements // 512, 1), 32)


def check_info(info: torch.Tensor, what: str) -> None:
    """Wait for the outcome of each matrix.

    Raises:
        torch.linalg.LinAlgError: one of them is not 0.
    """
    if info.numel() and not read_count(all_default(eq(info, 0)).view(1)):
        raise torch.linalg.LinAlgError(what)  # type: ignore[attr-defined] # Not in __all__.
