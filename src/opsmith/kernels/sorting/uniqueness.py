"""Unique elements or slices: in order, see :mod:`.sorting`, equal ones are neighbours.

Neighbours are compared, which marks where a group of equal ones begins; the marks are counted as in :mod:`.masking`,
and one pass writes for each element the number of its group and for each group where it begins. The host waits for the
number of groups, which is the size of the result. Beside the sort, ``(2 * itemsize + 1 + 16) * numel`` bytes.
"""

from __future__ import annotations

import math

import torch
import triton
import triton.language as tl

from ..common.elementwise import map_into
from ..common.indexing import normalized_dims
from ..common.launch import launch, pdl_prologue, read_count, require_served
from ..copies.rearrangements import copied, fill
from ..indexing.gathering import index_select
from ..indexing.masking import BLOCK, first_places, row_major
from ..pointwise.arithmetic import sub
from ..pointwise.comparisons import ne, ne_of
from ..reductions.reductions import any_dim
from .sorting import sort_rows

#: Elements of a slice that slices are sorted by: each takes a sort.
MOST_SORTED = 128


@triton.jit
def group_kernel(
    begins_ptr: tl.tensor,
    sources_ptr: tl.tensor,
    inverse_ptr: tl.tensor,
    marks_ptr: tl.tensor,
    order_ptr: tl.tensor,
    firsts_ptr: tl.tensor,
    n: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """Number the groups: where each begins, which element that is, and for each element its group's number."""
    pdl_prologue()
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    mark = tl.load(marks_ptr + i, mask=i < n, other=0) != 0
    group = tl.load(firsts_ptr + tl.program_id(0)) + tl.cumsum(mark.to(tl.int32), axis=0) - 1
    source = i
    if order_ptr is not None:
        source = tl.load(order_ptr + i, mask=i < n, other=0)
    tl.store(begins_ptr + group, i, mask=mark)
    tl.store(sources_ptr + group, source, mask=mark)
    tl.store(inverse_ptr + source, group, mask=i < n)


def _grouped(marks: torch.Tensor, order: torch.Tensor | None) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Which element each group begins with, each element's group, and the groups' sizes.

    Args:
        marks: whether an element begins a group; the first one does.
        order: which element comes at each place, or None if they are where they were.
    """
    n = marks.numel()
    firsts = first_places(marks, row_major((n,), (1,)))
    count = read_count(firsts)
    begins = torch.empty(count + 1, dtype=torch.int64, device=marks.device)
    sources = torch.empty(count, dtype=torch.int64, device=marks.device)
    inverse = torch.empty(n, dtype=torch.int64, device=marks.device)
    fill(begins.narrow(0, count, 1), n)
    arguments = (begins, sources, inverse, marks, order, firsts, n)
    launch(group_kernel, (triton.cdiv(n, BLOCK),), marks.device, *arguments, BLOCK=BLOCK)
    return sources, inverse, sub(begins.narrow(0, 1, count), begins.narrow(0, 0, count))


def _marks(x: torch.Tensor) -> torch.Tensor:
    """Whether each slice of ``x`` along its first dimension differs from the one before."""
    n = x.shape[0]
    marks = torch.empty(n, dtype=torch.bool, device=x.device)
    fill(marks.narrow(0, 0, 1), 1)
    if n > 1:
        pairs = [x.narrow(0, 1, n - 1), x.narrow(0, 0, n - 1)]
        rest = marks.narrow(0, 1, n - 1)
        if x.ndim == 1:
            map_into(rest, ne_of, pairs, [x.dtype] * 2)
        else:
            map_into(rest, ne_of, [any_dim(ne(*pairs), 1), False], [torch.bool] * 2)
    return marks


def _none(x: torch.Tensor) -> torch.Tensor:
    """What stands for results that were not asked for."""
    return torch.empty(0, dtype=torch.int64, device=x.device)


def _flat(x: torch.Tensor) -> torch.Tensor:
    return (x if x.is_contiguous() else copied(x)).view(-1)


# ---------------------------------------------------------------- elements


def _unique_elements(
    self: torch.Tensor, return_inverse: bool, return_counts: bool, *, is_sorted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_served(self)
    x = _flat(self)
    if not x.numel():
        inverse = torch.empty(self.shape, dtype=torch.int64, device=self.device) if return_inverse else _none(self)
        return torch.empty(0, dtype=self.dtype, device=self.device), inverse, _none(self)
    order, in_order = None, x
    if is_sorted:
        in_order = torch.empty_like(x)
        order = torch.empty(x.numel(), dtype=torch.int64, device=x.device)
        sort_rows(in_order, order, x, 0, descending=False)
    sources, inverse, counts = _grouped(_marks(in_order), order)
    out = index_select(x, 0, sources)
    return out, inverse.view(self.shape) if return_inverse else _none(self), counts if return_counts else _none(self)


def unique2(
    self: torch.Tensor,
    sorted: bool = True,  # noqa: A002, ARG001 - They always are.
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The different elements in order, of each element its number among them, and how many are equal.

    A NaN is equal to nothing. What is not asked for is empty.
    """
    return _unique_elements(self, return_inverse, return_counts, is_sorted=True)


def unique(
    self: torch.Tensor,
    sorted: bool = True,  # noqa: A002, ARG001 - They always are.
    return_inverse: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two results of :func:`unique2`."""
    return _unique_elements(self, return_inverse, False, is_sorted=True)[:2]


# ---------------------------------------------------------------- slices


def _slices(self: torch.Tensor, dim: int) -> tuple[torch.Tensor, int]:
    """The slices along ``dim`` as rows, and the dimension."""
    if not self.ndim:
        raise IndexError(f"dimension {dim} of a tensor that has none")
    (axis,) = normalized_dims(dim, self.ndim)
    rest = [size for d, size in enumerate(self.shape) if d != axis]
    if 0 in rest and self.shape[axis]:
        raise ValueError("slices without elements are not told apart")
    first = self.movedim(axis, 0)
    first = first if first.is_contiguous() else copied(first)
    return first.view(self.shape[axis], math.prod(rest)), axis


def _unique_slices(
    self: torch.Tensor, dim: int, return_inverse: bool, return_counts: bool, *, is_sorted: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    require_served(self)
    rows, axis = _slices(self, dim)
    if not rows.shape[0]:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device), _none(self), _none(self)
    order, in_order = None, rows
    if is_sorted:
        order = _lexicographic_order(rows)
        in_order = index_select(rows, 0, order)
    sources, inverse, counts = _grouped(_marks(in_order), order)
    out = index_select(rows, 0, sources).view(-1, *(self.shape[d] for d in range(self.ndim) if d != axis))
    # Eager returns all three on a CPU.
    everything = not self.is_cuda
    wanted = (
        (inverse if return_inverse or everything else _none(self)),
        (counts if return_counts or everything else _none(self)),
    )
    return out.movedim(0, axis), *wanted


def _lexicographic_order(rows: torch.Tensor) -> torch.Tensor:
    """The order of rows: sorted by their last elements first, since a sort leaves equal ones in their order."""
    count, length = rows.shape
    if length > MOST_SORTED:
        raise NotImplementedError(f"slices of more than {MOST_SORTED} elements are not sorted")
    order = None
    for column in range(length - 1, -1, -1):
        keys = rows.select(1, column)
        keys = keys if order is None else index_select(keys, 0, order)
        places = torch.empty(count, dtype=torch.int64, device=rows.device)
        sort_rows(None, places, keys, 0, descending=False)
        order = places if order is None else index_select(order, 0, places)
    assert order is not None
    return order


def unique_consecutive(
    self: torch.Tensor, return_inverse: bool = False, return_counts: bool = False, dim: int | None = None
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """As :func:`unique2` or :func:`unique_dim`, but only neighbours count as equal, and nothing is sorted."""
    if dim is None or (dim == 0 and self.ndim == 1):
        return _unique_elements(self, return_inverse, return_counts, is_sorted=False)
    return _unique_slices(self, dim, return_inverse, return_counts, is_sorted=False)


def unique_dim(
    self: torch.Tensor,
    dim: int,
    sorted: bool = True,  # noqa: A002, ARG001 - They always are.
    return_inverse: bool = False,
    return_counts: bool = False,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The different slices along ``dim`` in lexicographic order, of each its number, and how many are equal.

    Raises:
        IndexError: ``dim`` out of range, or a tensor without dimensions.
        ValueError: slices without elements.
        NotImplementedError: slices of more than :data:`MOST_SORTED` elements.
    """
    return _unique_slices(self, dim, return_inverse, return_counts, is_sorted=True)
