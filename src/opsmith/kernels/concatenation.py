"""Concatenation along a dimension.

Every input is copied into its slice of the output: ``2 * numel * itemsize`` bytes, one launch an input.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from .indexing import contiguous_strides, dense_strides
from .launch import pick_device, require_served
from .pointwise import as_bits, map_into, same
from .promotion import promoted
from .reductions import normalized_dims


def cat(tensors: Sequence[torch.Tensor], dim: int = 0) -> torch.Tensor:
    """Join ``tensors`` along ``dim`` in their promoted type. Empty 1-d tensors fit everything, as in eager.

    Inputs of one type move as bits, so complex64 and float8 are served.

    Raises:
        ValueError: no tensors, or shapes that do not fit.
        IndexError: ``dim`` out of range.
    """
    if not tensors or any(tensor.ndim == 0 for tensor in tensors):
        raise ValueError("cat needs at least one tensor, and none without dimensions")
    shaped = [tensor for tensor in tensors if tuple(tensor.shape) != (0,)] or list(tensors)
    (axis,) = normalized_dims(dim, shaped[0].ndim)
    shape = _joined_shape(shaped, axis)
    if len({tensor.dtype for tensor in tensors}) == 1:
        sources, result = [as_bits(tensor) for tensor in shaped], tensors[0].dtype
        element = sources[0].dtype
    else:
        require_served(*tensors)
        sources, element = shaped, promoted(tensors)
        result = element
    strides = _joined_strides(tensors, shape)
    out = torch.empty_strided(shape, strides, dtype=element, device=pick_device(tensors))
    start = 0
    for source in sources:
        size = source.shape[axis]
        map_into(out.narrow(axis, start, size), same, [source], [element])
        start += size
    return out.view(result)


def _joined_shape(tensors: Sequence[torch.Tensor], axis: int) -> tuple[int, ...]:
    first = tensors[0].shape
    for tensor in tensors:
        fits = tensor.ndim == len(first) and all(
            d == axis or own == other for d, (own, other) in enumerate(zip(tensor.shape, first, strict=True))
        )
        if not fits:
            raise ValueError(f"shapes {list(first)} and {list(tensor.shape)} do not join along dimension {axis}")
    joined = list(first)
    joined[axis] = sum(tensor.shape[axis] for tensor in tensors)
    return tuple(joined)


def _joined_strides(tensors: Sequence[torch.Tensor], shape: tuple[int, ...]) -> tuple[int, ...]:
    """Channels-last strides where every input has them, else row-major."""
    for order in ((1, 3, 2, 0), (1, 4, 3, 2, 0)):
        if len(order) == len(shape) and all(_is_dense_in(tensor, order) for tensor in tensors):
            return dense_strides(shape, order)
    return contiguous_strides(shape)


def _is_dense_in(tensor: torch.Tensor, order: tuple[int, ...]) -> bool:
    return tensor.ndim == len(order) and tensor.stride() == dense_strides(tuple(tensor.shape), order)
