"""Tensors that hold another one at some of their places: slices, selections and diagonals written back.

The backward passes have zeros everywhere else, the ``*_scatter`` ops another tensor's elements. Where the
places are a window of the result, one launch writes it; an arbitrary view takes a copy and a second one into it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.elementwise import as_bits
from ..common.indexing import normalized_dims
from ..common.launch import require_served
from .framed_copies import Dim, FrameRule, show
from .rearrangements import copy_into, fill


def slice_backward(
    grad_output: torch.Tensor, input_sizes: Sequence[int], dim: int, start: int, end: int, step: int
) -> torch.Tensor:
    """Zeros of ``input_sizes`` with ``grad_output`` in a slice."""
    out = _empty(grad_output, input_sizes)
    (axis,) = normalized_dims(dim, out.ndim)
    _show_slice(out, grad_output, axis, start, end, step)
    return out


def select_backward(grad_output: torch.Tensor, input_sizes: Sequence[int], dim: int, index: int) -> torch.Tensor:
    """Zeros of ``input_sizes`` with ``grad_output`` at one index of a dimension."""
    out = _empty(grad_output, input_sizes)
    (axis,) = normalized_dims(dim, out.ndim)
    at = _index(index, out.shape[axis])
    _show_slice(out, grad_output.unsqueeze(axis), axis, at, at + 1, 1)
    return out


def slice_scatter(
    self: torch.Tensor, src: torch.Tensor, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1
) -> torch.Tensor:
    """``self`` with ``src`` in a slice, in the layout of ``self``.

    Raises:
        ValueError: ``src`` has another shape than the slice, or the step is not positive.
        NotImplementedError: two types.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    out = _like(self, src)
    _show_slice(out, src, axis, start, end, step, self)
    return out


def select_scatter(self: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> torch.Tensor:
    """``self`` with ``src`` at one index of a dimension, in the layout of ``self``.

    Raises:
        ValueError: ``src`` has another shape than the selection.
        IndexError: the dimension or the index is out of range.
        NotImplementedError: two types.
    """
    (axis,) = normalized_dims(dim, self.ndim)
    at = _index(index, self.shape[axis])
    if tuple(src.shape) != (*self.shape[:axis], *self.shape[axis + 1 :]):
        raise ValueError(f"a source of shape {list(src.shape)} does not fit dimension {dim} of {list(self.shape)}")
    out = _like(self, src)
    _show_slice(out, src.unsqueeze(axis), axis, at, at + 1, 1, self)
    return out


def diagonal_backward(
    grad_output: torch.Tensor, input_sizes: Sequence[int], offset: int, dim1: int, dim2: int
) -> torch.Tensor:
    """Zeros of ``input_sizes`` with ``grad_output`` on a diagonal."""
    return _on_diagonal(grad_output, _empty(grad_output, input_sizes), offset, dim1, dim2)


def diag_embed(self: torch.Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> torch.Tensor:
    """Square matrices of zeros with the last dimension of ``self`` on a diagonal.

    Raises:
        ValueError: twice the same dimension.
        IndexError: a dimension out of range.
    """
    first, second = sorted(normalized_dims([dim1, dim2], self.ndim + 1))
    side = self.shape[-1] + abs(offset)
    shape = list(self.shape[:-1])
    shape.insert(first, side)
    shape.insert(second, side)
    return _on_diagonal(self, _empty(self, shape), offset, dim1, dim2)


def diagonal_scatter(
    self: torch.Tensor, src: torch.Tensor, offset: int = 0, dim1: int = 0, dim2: int = 1
) -> torch.Tensor:
    """``self`` with ``src`` on a diagonal, in the layout of ``self``."""
    out = _like(self, src)
    return _written(out, out.diagonal(offset, dim1, dim2), self, src)


def as_strided_scatter(
    self: torch.Tensor,
    src: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    storage_offset: int | None = None,
) -> torch.Tensor:
    """``self`` with ``src`` in the places that ``as_strided`` shows, in the layout of ``self``.

    Raises:
        ValueError: ``src`` has another shape than the places.
        NotImplementedError: two types, or places before the beginning of ``self``.
    """
    out = _like(self, src)
    start = 0 if storage_offset is None else storage_offset - self.storage_offset()
    if start < 0 or out.stride() != self.stride():
        raise NotImplementedError("places outside of self are not served")
    return _written(out, out.as_strided(size, stride, start), self, src)


# ---------------------------------------------------------------- what they share


def _empty(like: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
    require_served(like, dtypes=[like.dtype])
    return torch.empty(list(shape), dtype=like.dtype, device=like.device)


def _like(self: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """An empty tensor with the strides of ``self``, gaps included; contiguous where elements share memory."""
    require_served(self, src, dtypes=[self.dtype])
    if self.device != src.device:
        raise NotImplementedError("a source on another device is not served")
    shares = any(size > 1 and stride == 0 for size, stride in zip(self.shape, self.stride(), strict=True))
    if shares:
        return torch.empty(self.shape, dtype=self.dtype, device=self.device)
    return torch.empty_strided(self.shape, self.stride(), dtype=self.dtype, device=self.device)


def _index(index: int, size: int) -> int:
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of range for a dimension of size {size}")
    return index % size


def _show_slice(
    out: torch.Tensor,
    source: torch.Tensor,
    axis: int,
    start: int | None,
    end: int | None,
    step: int,
    other: torch.Tensor | None = None,
) -> None:
    """Write ``source`` to a slice of ``out``, and ``other`` or zeros around it."""
    if step < 1:
        raise ValueError(f"the step of a slice must be positive, not {step}")
    first, last, _ = slice(start, end, 1).indices(out.shape[axis])
    length = max(-(-(last - first) // step), 0)
    if tuple(source.shape) != (*out.shape[:axis], length, *out.shape[axis + 1 :]):
        raise ValueError(f"a source of shape {list(source.shape)} does not fit that slice of {list(out.shape)}")
    bits = as_bits(source)
    dims = [Dim(size, 0, stride) for size, stride in zip(out.shape, source.stride(), strict=True)]
    rule = FrameRule.WINDOW if step == 1 else FrameRule.STEPS
    dims[axis] = dims[axis]._replace(rule=rule, start=first, extent=length, step=step)
    show(out.view(bits.dtype), bits, dims, 0 if other is None else as_bits(other))


def _on_diagonal(source: torch.Tensor, out: torch.Tensor, offset: int, dim1: int, dim2: int) -> torch.Tensor:
    """Write ``source`` to a diagonal of the contiguous ``out``, and zeros around it.

    Two neighbouring dimensions are one, of which the diagonal is every ``size + 1``-th element.
    """
    diagonal = out.diagonal(offset, dim1, dim2)
    if diagonal.shape != source.shape:
        raise ValueError(f"{list(source.shape)} does not fit a diagonal of shape {list(diagonal.shape)}")
    first, second = sorted(normalized_dims([dim1, dim2], out.ndim))
    bits = as_bits(source)
    if second != first + 1 or out.numel() == 0 or source.numel() == 0:
        fill(out.view(bits.dtype), 0)
        copy_into(diagonal, source)
        return out
    wide = out.view(bits.dtype).flatten(first, second)
    step = out.shape[second] + 1
    start = diagonal.storage_offset() // out.stride(second)
    others = [d for d in range(wide.ndim) if d != first]
    dims = [Dim(0, 0, 0)] * wide.ndim
    for d, own in zip(others, range(source.ndim - 1), strict=True):
        dims[d] = Dim(wide.shape[d], 0, source.stride(own))
    dims[first] = Dim(
        wide.shape[first], 0, source.stride(-1), rule=FrameRule.STEPS, start=start, extent=source.shape[-1], step=step
    )
    show(wide, bits, dims)
    return out


def _written(out: torch.Tensor, place: torch.Tensor, self: torch.Tensor, src: torch.Tensor) -> torch.Tensor:
    """``out`` with the elements of ``self``, and those of ``src`` in ``place``, a view of it."""
    if place.shape != src.shape:
        raise ValueError(f"a source of shape {list(src.shape)} does not fit places of shape {list(place.shape)}")
    copy_into(out, self)
    copy_into(place, src)
    return out
