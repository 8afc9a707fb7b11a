"""New memory that nobody has written, and tensors that are given more of it.

Sizes and strides are worked out here, memory comes from torch's allocator. Traffic: none.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.launch import require_plain_memory
from .strided_views import View, anywhere, row_major, without_gaps
from .views import become, seen

#: Of images and of volumes the channels may be the fastest dimension.
_CHANNELS_LAST = {torch.channels_last: 4, torch.channels_last_3d: 5}


def allocated(
    view: View,
    dtype: torch.dtype | None,
    layout: torch.layout | None,
    device: torch.device | None,
    pin_memory: bool | None,
) -> torch.Tensor:
    """New memory under a view; torch's default type and device where None is given.

    Raises:
        NotImplementedError: a layout or a kind of memory that is not served.
    """
    require_plain_memory(layout, pin_memory)
    handle = torch.empty(0, dtype=dtype, device=device)
    memory = torch.UntypedStorage(view.end * handle.itemsize, device=handle.device)
    return handle.set_(memory, *view)


def in_format(sizes: Sequence[int], memory_format: torch.memory_format | None) -> View:
    """Elements without gaps, in row-major order or with the channels last.

    Raises:
        RuntimeError: a format for another number of dimensions, or one that needs a tensor to follow.
    """
    if memory_format in (None, torch.contiguous_format):
        return row_major(sizes)
    if _CHANNELS_LAST.get(memory_format) != len(sizes):
        raise RuntimeError(f"{len(sizes)} dimensions do not lie in {memory_format}")
    return without_gaps(sizes, channels_last_order(len(sizes)))


def channels_last_order(ndim: int) -> list[int]:
    """The channels, then the places of an image from the last dimension on, then the batch."""
    return [1, *range(ndim - 1, 1, -1), 0]


def empty(
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Of a shape, in a format."""
    return allocated(in_format(size, memory_format), dtype, layout, device, pin_memory)


def empty_strided(
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Of a shape at any strides."""
    return allocated(anywhere(size, stride, 0), dtype, layout, device, pin_memory)


def empty_permuted(
    size: Sequence[int],
    physical_layout: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """Without gaps, the dimensions in the order ``physical_layout``, the slowest first.

    Raises:
        RuntimeError: that names not each dimension once.
    """
    if sorted(physical_layout) != list(range(len(size))):
        raise RuntimeError(f"{list(physical_layout)} does not name each of {len(size)} dimensions once")
    return allocated(without_gaps(size, reversed(physical_layout)), dtype, layout, device, pin_memory)


# ---------------------------------------------------------------- after the model of another tensor


def empty_like(
    self: torch.Tensor,
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
    memory_format: torch.memory_format | None = None,
) -> torch.Tensor:
    """Laid out as ``self``, or in a format."""
    model = seen(self)
    follows = memory_format in (None, torch.preserve_format)
    view = packed(model) if follows else in_format(model.sizes, memory_format)
    return allocated(view, dtype or self.dtype, layout, device or self.device, pin_memory)


def packed(view: View) -> View:
    """New memory for such elements: the same strides where they leave no gaps, else the same order without any.

    A dimension that is repeated has no place in the order of strides; it stays among its neighbours (the order of
    ``at::infer_dense_strides``).
    """
    if is_without_gaps(view):
        return View(0, view.sizes, view.strides)
    order = list(reversed(range(len(view.sizes))))
    for start in range(1, len(order)):
        at = start
        for before in reversed(range(start)):
            comes_later = _comes_later(view, order[before], order[at])
            if comes_later:
                order[before], order[at] = order[at], order[before]
                at = before
            elif comes_later is False:
                break
    return without_gaps(view.sizes, order)


def is_without_gaps(view: View) -> bool:
    """Whether the elements fill a piece of memory, each once."""
    step = 1
    for stride, size in sorted(
        (stride, size) for size, stride in zip(view.sizes, view.strides, strict=True) if size != 1
    ):
        if stride != step:
            return False
        step *= size
    return True


def _comes_later(view: View, one: int, other: int) -> bool | None:
    """Whether a dimension is slower than another; None where their strides do not tell."""
    if not view.strides[one] or not view.strides[other]:
        return None
    if view.strides[one] == view.strides[other]:
        return True if view.sizes[one] > view.sizes[other] else None
    return view.strides[one] > view.strides[other]


def new_empty(
    self: torch.Tensor,
    size: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """With the dtype and on the device of ``self``."""
    return allocated(row_major(size), dtype or self.dtype, layout, device or self.device, pin_memory)


def new_empty_strided(
    self: torch.Tensor,
    size: Sequence[int],
    stride: Sequence[int],
    *,
    dtype: torch.dtype | None = None,
    layout: torch.layout | None = None,
    device: torch.device | None = None,
    pin_memory: bool | None = None,
) -> torch.Tensor:
    """As :func:`new_empty`, at any strides."""
    return allocated(anywhere(size, stride, 0), dtype or self.dtype, layout, device or self.device, pin_memory)


# ---------------------------------------------------------------- another size in place


def resize_(
    self: torch.Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """Give a tensor other sizes, and its storage the memory that they need."""
    view = in_format(size, memory_format)
    if memory_format is None and view.sizes == tuple(self.shape):
        return self
    return _grown(self, view)


def resize_as_(
    self: torch.Tensor, the_template: torch.Tensor, *, memory_format: torch.memory_format | None = None
) -> torch.Tensor:
    """Give a tensor the sizes of another one, and in a format if one is named."""
    if memory_format is torch.preserve_format:
        model = seen(the_template)
        ordered = _has_channels_last(model)
        view = without_gaps(model.sizes, channels_last_order(len(model.sizes))) if ordered else row_major(model.sizes)
        return _grown(self, view)
    return resize_(self, the_template.shape, memory_format=memory_format)


def _has_channels_last(view: View) -> bool:
    """Whether the strides of images or volumes grow from the channels by the places to the batch."""
    if len(view.sizes) not in _CHANNELS_LAST.values() or not view.strides[1] or not view.elements:
        return False
    least = 0
    for dim in channels_last_order(len(view.sizes)):
        # Where a batch of one channel has the channel's stride both orders fit, and row-major counts.
        if view.strides[dim] < least or (dim == 0 and least == view.strides[1]):
            return False
        least = view.strides[dim] * max(view.sizes[dim], 1)
    return True


def _grown(tensor: torch.Tensor, view: View) -> torch.Tensor:
    view = view._replace(offset=seen(tensor).offset)
    storage = tensor.untyped_storage()
    if storage.nbytes() < view.end * tensor.itemsize:
        storage.resize_(view.end * tensor.itemsize)
    return become(tensor, view)
