"""Which bytes of a storage a tensor touches: unique bytes of strided, expanded and overlapping windows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch

from opsmith.core.case import OutputTensor, TensorValue
from opsmith.core.dtypes import TENSOR_DTYPES


def item_bytes(dtype: str) -> int:
    """Bytes of one element, by the dtype's short name or torch's own."""
    found = getattr(torch, TENSOR_DTYPES.get(dtype, dtype))
    assert isinstance(found, torch.dtype)
    return found.itemsize


class Window(NamedTuple):
    """What a tensor touches of its storage.

    Attributes:
        start: its first byte.
        item: bytes of one element.
        dims: stride in elements and size of every dimension that moves, by stride and then size.
    """

    start: int
    item: int
    dims: tuple[tuple[int, int], ...]

    @classmethod
    def of(cls, tensor: TensorValue | OutputTensor) -> Window | None:
        """The window of a tensor; None if it has no elements."""
        if 0 in tensor.shape:
            return None
        item = item_bytes(tensor.dtype)
        moving = [
            (stride, size) for stride, size in zip(tensor.strides, tensor.shape, strict=True) if stride and size > 1
        ]
        return cls(tensor.offset * item, item, tuple(sorted(moving)))

    @property
    def end(self) -> int:
        """The byte after its last one."""
        return self.start + self.item * (1 + sum(stride * (size - 1) for stride, size in self.dims))

    @property
    def unique_bytes(self) -> int:
        """Bytes that it touches, each counted once.

        Exact, save for windows that overlap and have gaps of several sizes: of them it is a lower bound.
        """
        unit = math.gcd(*(stride for stride, _ in self.dims)) or 1
        count = span = 1
        for stride, size in self.dims:
            step = stride // unit
            if step >= span:
                count *= size
            elif count == span:  # Without a gap so far: shifted by less than its length it has none either.
                count += step * (size - 1)
            else:  # Each shift reaches at least one new element, its last.
                count += size - 1
            span += step * (size - 1)
        return count * self.item


def are_apart(one: Window, other: Window) -> bool:
    """Whether two windows on one storage surely have no byte in common.

    They may lie side by side in every row, as the halves of a split matrix do.
    """
    if one.end <= other.start or other.end <= one.start:
        return True
    first, second = sorted((one, other))
    distance, remainder = divmod(second.start - first.start, first.item)
    sizes, sizes_2 = dict(first.dims), dict(second.dims)
    has_twins = len(sizes) < len(first.dims) or len(sizes_2) < len(second.dims)
    if first.item != second.item or remainder or has_twins:
        return False
    apart, reach = False, []
    strides = sorted({*sizes, *sizes_2}, reverse=True)
    for stride in strides:
        digit, distance = divmod(distance, stride)
        size, size_2 = sizes.get(stride, 1), sizes_2.get(stride, 1)
        apart = apart or digit >= size
        reach.append((max(size, digit + size_2) - 1) * stride)
    # Coordinates tell elements apart only if no dimension reaches into the next one.
    is_grid = all(sum(reach[i + 1 :]) < stride for i, stride in enumerate(strides))
    return is_grid and apart and not distance


def fewest_bytes(windows: Sequence[Window]) -> int:
    """A lower bound of the bytes that windows on one storage touch together."""
    kept: list[Window] = []
    for window in sorted(windows, key=lambda w: (-w.unique_bytes, w)):
        if all(are_apart(window, other) for other in kept):
            kept.append(window)
    return sum(window.unique_bytes for window in kept)


def most_bytes(windows: Sequence[Window]) -> int:
    """An upper bound of the same; equal windows count once."""
    distinct = set(windows)
    covered = end = 0
    for window in sorted(distinct):
        covered += max(window.end - max(window.start, end), 0)
        end = max(end, window.end)
    return min(sum(window.unique_bytes for window in distinct), covered)
