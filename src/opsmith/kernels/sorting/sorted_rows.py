"""What every way to sort shares: the elements of a row as packed numbers, the results, and the record of a sort.

Suffixes: ``_R`` one entry per row, ``_T`` per element of a tile.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import Geometry, index_type, offset_of
from ..common.ordering import packed, sort_key

#: A packed element behind all others.
LAST = tl.constexpr(0x7FFFFFFFFFFFFFFF)

# ---------------------------------------------------------------- in a kernel


@triton.jit
def read_packed(
    packed_ptr: tl.tensor,
    x_ptr: tl.tensor,
    order_ptr: tl.tensor,
    row_T: tl.tensor,
    position_T: tl.tensor,
    inside_T: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    x_stride: tl.tensor,
    count: tl.tensor,
    length: tl.tensor,
    PACKED: tl.constexpr,
    ORDERED: tl.constexpr,
    HALF: tl.constexpr,
    DESCENDING: tl.constexpr,
    INDEX: tl.constexpr,
) -> tl.tensor:
    """Elements of rows, each as a number that holds its key and its position; what is not inside is the greatest.

    PACKED: the rows are ``length`` packed elements of an earlier pass; else they are the ``count`` of ``x``, in the
    order of an earlier sort if ORDERED.
    """
    if PACKED:
        packed_T = tl.load(packed_ptr + row_T * length + position_T, mask=inside_T, other=LAST)
    else:
        place_T = position_T
        if ORDERED:
            place_T = tl.load(order_ptr + row_T * count + position_T, mask=inside_T, other=0).to(INDEX)
        x_T = tl.load(x_ptr + offset_of(row_T, shape_R, x_strides_R) + place_T * x_stride, mask=inside_T, other=0)
        packed_T = tl.where(inside_T, packed(sort_key(x_T, HALF, DESCENDING), position_T), LAST)
    return packed_T


@triton.jit
def write_sorted(
    values_ptr: tl.tensor,
    indices_ptr: tl.tensor,
    x_ptr: tl.tensor,
    order_ptr: tl.tensor,
    x_T: tl.tensor,
    row_T: tl.tensor,
    n_T: tl.tensor,
    shape_R: tl.tuple,
    x_strides_R: tl.tuple,
    out_strides_R: tl.tuple,
    x_stride: tl.tensor,
    out_stride: tl.tensor,
    count: tl.tensor,
    inside_T: tl.tensor,
    ORDERED: tl.constexpr,
    VALUES: tl.constexpr,
    INDEX: tl.constexpr,
) -> None:
    """Write element ``n`` of the sorted row: its index, and its value or nothing."""
    position_T = (x_T & 0x7FFFFFFF).to(INDEX)
    if ORDERED:
        position_T = tl.load(order_ptr + row_T * count + position_T, mask=inside_T, other=0).to(INDEX)
    out_T = offset_of(row_T, shape_R, out_strides_R) + n_T * out_stride
    tl.store(indices_ptr + out_T, position_T.to(indices_ptr.dtype.element_ty), mask=inside_T)
    if VALUES:
        value_T = tl.load(x_ptr + offset_of(row_T, shape_R, x_strides_R) + position_T * x_stride, mask=inside_T)
        tl.store(values_ptr + out_T, value_T, mask=inside_T)


# ---------------------------------------------------------------- the host side


class Sorting(NamedTuple):
    """One sort: what the kernels of all its passes take.

    Attributes:
        values: for the results, or None.
        indices: for the results.
        x: what is sorted.
        order: the order of an earlier sort, a row of positions for each row, or None.
        geometry: of the dimensions that number the rows; strides of ``x``, then of the results.
        axis: the dimension of the rows' elements.
        keep: how many elements of a sorted row are wanted.
        half: of the key.
        descending: the greatest first.
    """

    values: torch.Tensor | None
    indices: torch.Tensor
    x: torch.Tensor
    order: torch.Tensor | None
    geometry: Geometry
    axis: int
    keep: int
    half: int
    descending: bool

    def length(self) -> int:
        """Elements of a row."""
        return self.x.shape[self.axis]

    def rows(self) -> int:
        """The number of rows."""
        return self.x.numel() // self.length()

    def offset_type(self) -> tl.dtype:
        """The type of offsets."""
        along = Geometry((self.length(),), ((self.x.stride(self.axis),), (self.indices.stride(self.axis),)))
        return index_type(self.geometry, along)

    def outputs(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Values and indices; where no values are wanted, anything stands in for them."""
        return (self.indices if self.values is None else self.values), self.indices

    def strides(self) -> tuple[object, ...]:
        """Shape and strides of the rows, and the strides within."""
        rows = (self.geometry.shape_D, *self.geometry.strides_ID)
        return (*rows, self.x.stride(self.axis), self.indices.stride(self.axis))

    @property
    def across(self) -> bool:
        """Whether rows, not elements of a row, are neighbours in memory."""
        return self.rows() > 1 and 0 < self.geometry.strides_ID[0][0] < self.x.stride(self.axis)

    def empty_packed(self, elements: int) -> torch.Tensor:
        """Room for so many packed elements of each row."""
        return torch.empty(self.rows() * elements, dtype=torch.int64, device=self.x.device)
