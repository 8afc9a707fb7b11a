"""What stands at a place of the sorted order: kthvalue, median, nanmedian, and the mode.

The rows are sorted, see :mod:`.sorting`; another launch picks one element of each. NaN is sorted behind everything, so
that bisection tells how many elements are none. The mode is the longest run of equal elements.

Suffixes: ``_R`` rows, ``_T`` elements of a tile.
"""

from __future__ import annotations

import enum
from typing import NamedTuple

import torch
import triton
import triton.language as tl

from ..common.indexing import normalized_dims
from ..common.launch import INTERPRETED, INTERPRETED_TILE, launch, loop_bound, pdl_prologue, require_served
from ..copies.rearrangements import copied, fill, is_dense
from ..reductions.extrema import is_nan
from .sorting import sort_rows


class Pick(enum.IntEnum):
    """Which element of a sorted row is taken."""

    #: The one at a given place.
    PLACE = 0
    #: The middle one, or the first NaN.
    MEDIAN = 1
    #: The middle one of those that are not NaN.
    NANMEDIAN = 2


_PLACE, _MEDIAN = tl.constexpr(int(Pick.PLACE)), tl.constexpr(int(Pick.MEDIAN))

# ---------------------------------------------------------------- the kernels


@triton.jit
def pick_kernel(
    value_ptr: tl.tensor,
    index_ptr: tl.tensor,
    sorted_ptr: tl.tensor,
    order_ptr: tl.tensor,
    rows: tl.tensor,
    length: tl.tensor,
    place: tl.tensor,
    steps: tl.tensor,
    PICK: tl.constexpr,
    BLOCK: tl.constexpr,
) -> None:
    """One element of each sorted row, and where it was."""
    pdl_prologue()
    r = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = r < rows
    row_R = r * length
    at_R = tl.zeros([BLOCK], tl.int64) + place
    if PICK != _PLACE:
        # Between low and high lies the first NaN.
        low_R = tl.zeros([BLOCK], tl.int64)
        high_R = low_R + length
        for _ in range(steps):
            middle_R = (low_R + high_R) // 2
            asked = inside & (middle_R < high_R)
            none_R = is_nan(tl.load(sorted_ptr + row_R + middle_R, mask=asked, other=0))
            low_R = tl.where(asked & (none_R == 0), middle_R + 1, low_R)
            high_R = tl.where(asked & none_R, middle_R, high_R)
        if PICK == _MEDIAN:
            at_R = tl.where(low_R < length, low_R, at_R)
        else:
            at_R = tl.maximum((low_R - 1) // 2, 0)
    tl.store(value_ptr + r, tl.load(sorted_ptr + row_R + at_R, mask=inside), mask=inside)
    tl.store(index_ptr + r, tl.load(order_ptr + row_R + at_R, mask=inside), mask=inside)


@triton.jit
def later(x: tl.tensor, y: tl.tensor) -> tl.tensor:
    """The greater of two positions."""
    return tl.maximum(x, y)


@triton.jit
def longest_run_kernel(
    value_ptr: tl.tensor,
    index_ptr: tl.tensor,
    sorted_ptr: tl.tensor,
    order_ptr: tl.tensor,
    length: tl.tensor,
    steps: tl.tensor,
    BLOCK: tl.constexpr,
) -> None:
    """The value of the longest run of a sorted row, the first of several, and where its last element was.

    An element's key is its number within its run, above, and its distance from the end of the row.
    """
    pdl_prologue()
    row = tl.program_id(0).to(tl.int64) * length
    begin = tl.full([], 0, tl.int64)
    best_T = tl.zeros([BLOCK], tl.int64)
    for step in range(steps):
        t = step * BLOCK + tl.arange(0, BLOCK).to(tl.int64)
        x_T = tl.load(sorted_ptr + row + t, mask=t < length, other=0)
        before_T = tl.load(sorted_ptr + row + t - 1, mask=(t < length) & (t > 0), other=0)
        begin_T = tl.associative_scan(tl.where(x_T != before_T, t, begin), 0, later)
        key_T = ((t - begin_T + 1) << 32) | (length - 1 - t)
        best_T = tl.maximum(best_T, tl.where(t < length, key_T, 0))
        begin = tl.max(begin_T, axis=0)
    at = length - 1 - (tl.max(best_T, axis=0) & 0xFFFFFFFF)
    tl.store(value_ptr + tl.program_id(0), tl.load(sorted_ptr + row + at))
    tl.store(index_ptr + tl.program_id(0), tl.load(order_ptr + row + at))


# ---------------------------------------------------------------- the host side


class Sorted(NamedTuple):
    """Sorted rows, ``[*kept dimensions, elements]``, where their elements were, and the results to be written."""

    values: torch.Tensor
    order: torch.Tensor
    value: torch.Tensor
    where: torch.Tensor


def _sorted_rows(x: torch.Tensor, axis: int, keepdim: bool, keep: int | None = None) -> Sorted:
    """Sort ``x`` along ``axis``, the first ``keep`` elements of it, for results of one element a row."""
    kept = [size for d, size in enumerate(x.shape) if d != axis]
    shape = [1 if d == axis else size for d, size in enumerate(x.shape)] if keepdim else kept
    value = torch.empty(shape, dtype=x.dtype, device=x.device)
    index = torch.empty(shape, dtype=torch.int64, device=x.device)
    matrix = x if x.ndim else x.view(1)
    length = matrix.shape[axis] if keep is None else keep
    values = torch.empty([*kept, length], dtype=x.dtype, device=x.device)
    order = torch.empty([*kept, length], dtype=torch.int64, device=x.device)
    if values.numel():
        sort_rows(values.movedim(-1, axis), order.movedim(-1, axis), matrix, axis, descending=False)
    return Sorted(values, order, value, index)


def _pick(rows: Sorted, pick: Pick, place: int) -> tuple[torch.Tensor, torch.Tensor]:
    count = rows.value.numel()
    if count:
        length = rows.values.shape[-1]
        block = min(triton.next_power_of_2(count), INTERPRETED_TILE if INTERPRETED else 128)
        steps = loop_bound(length.bit_length() + 1)
        floating = rows.values.dtype.is_floating_point
        arguments = (rows.value, rows.where, rows.values, rows.order, count, length, place, steps)
        chosen = int(pick) if floating else int(Pick.PLACE)
        grid = (triton.cdiv(count, block),)
        launch(pick_kernel, grid, rows.value.device, *arguments, PICK=chosen, BLOCK=block)
    return rows.value, rows.where


def _axis(x: torch.Tensor, dim: int, *, bools: bool = False) -> int:
    """The dimension ``dim``.

    Raises:
        TypeError: a bool tensor.
        IndexError: an empty dimension.
    """
    require_served(x)
    if x.dtype == torch.bool and not bools:
        raise TypeError("not defined for bool")
    (axis,) = normalized_dims(dim, x.ndim)
    if x.ndim and not x.shape[axis]:
        raise IndexError(f"there is no element along dimension {axis} of {list(x.shape)}")
    return axis


def _flat(x: torch.Tensor) -> torch.Tensor:
    """All elements in some order."""
    return x.as_strided((x.numel(),), (1,)) if is_dense(x) else copied(x).view(-1)


# ---------------------------------------------------------------- the ops


def kthvalue(self: torch.Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The ``k``-th smallest element along ``dim``, counted from 1, and where it was. NaN is the greatest.

    Raises:
        ValueError: fewer than ``k`` elements.
    """
    axis = _axis(self, dim)
    if not 1 <= k <= (self.shape[axis] if self.ndim else 1):
        raise ValueError(f"there is no {k}-th element along dimension {axis} of {list(self.shape)}")
    return _pick(_sorted_rows(self, axis, keepdim, k), Pick.PLACE, k - 1)


def median_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The middle element along ``dim``, the lower one of two, and where it was; NaN where there is one."""
    rows = _sorted_rows(self, _axis(self, dim), keepdim)
    return _pick(rows, Pick.MEDIAN, (rows.values.shape[-1] - 1) // 2)


def nanmedian_dim(self: torch.Tensor, dim: int, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """As :func:`median_dim`, of what is not NaN."""
    rows = _sorted_rows(self, _axis(self, dim), keepdim)
    return _pick(rows, Pick.NANMEDIAN, (rows.values.shape[-1] - 1) // 2)


def median(self: torch.Tensor) -> torch.Tensor:
    """The middle one of all elements, the lower one of two; NaN where there is one, and of nothing."""
    return _of_all(self, Pick.MEDIAN)


def nanmedian(self: torch.Tensor) -> torch.Tensor:
    """As :func:`median`, of what is not NaN."""
    return _of_all(self, Pick.NANMEDIAN)


def _of_all(x: torch.Tensor, pick: Pick) -> torch.Tensor:
    require_served(x)
    if not x.numel() and x.dtype.is_floating_point:
        out = torch.empty((), dtype=x.dtype, device=x.device)
        fill(out, float("nan"))
        return out
    flat = _flat(x)
    rows = _sorted_rows(flat, _axis(flat, 0), False)
    return _pick(rows, pick, (x.numel() - 1) // 2)[0]


def mode(self: torch.Tensor, dim: int = -1, keepdim: bool = False) -> tuple[torch.Tensor, torch.Tensor]:
    """The most frequent element along ``dim``, the smallest of several, and where its last one was."""
    rows = _sorted_rows(self, _axis(self, dim, bools=True), keepdim)
    count = rows.value.numel()
    if count:
        length = rows.values.shape[-1]
        block = min(triton.next_power_of_2(length), INTERPRETED_TILE if INTERPRETED else 1024)
        arguments = (rows.value, rows.where, rows.values, rows.order, length, loop_bound(triton.cdiv(length, block)))
        launch(longest_run_kernel, (count,), self.device, *arguments, BLOCK=block)
    return rows.value, rows.where
