"""Where the elements of strided tensors lie."""

from __future__ import annotations

from collections.abc import Sequence

from opsmith.core.case import TensorValue


def overlaps(tensor: TensorValue) -> bool:
    """Whether elements share memory otherwise than along an expanded dimension."""
    reach = 0
    for stride, size in sorted((stride, size) for size, stride in zip(tensor.shape, tensor.strides, strict=True)):
        if size > 1 and stride > 0:
            if stride <= reach:
                return True
            reach += (size - 1) * stride
    return False


def extent(shape: Sequence[int], strides: Sequence[int], offset: int) -> int:
    """Elements of the smallest storage that holds a window."""
    if 0 in shape:
        return 0
    return offset + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
