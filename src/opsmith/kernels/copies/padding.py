"""Pads and rolls: the source seen through a window that is larger, mirrored or shifted."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..common.elementwise import as_bits
from ..common.indexing import normalized_dims
from ..common.launch import require_served
from .framed_copies import Dim, FrameRule, show
from .rearrangements import copied, copy_into


def constant_pad_nd(self: torch.Tensor, pad: Sequence[int], value: float = 0) -> torch.Tensor:
    """``self`` between ``pad`` elements of ``value``: two numbers a dimension, the last dimension's first.

    Negative numbers crop.

    Raises:
        ValueError: an odd number of pads or too many, or a dimension of negative size.
    """
    if len(pad) % 2 or len(pad) > 2 * self.ndim:
        raise ValueError(f"{list(pad)} must hold two pads for each of at most {self.ndim} dimensions")
    if any(number > 0 for number in pad):
        return _padded(self, pad, FrameRule.WINDOW, value)
    require_served(self, dtypes=[self.dtype])
    return _cropped(self, pad)


def reflection_pad1d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Mirrored at its ends, in one dimension."""
    return _padded(self, _checked(self, padding, 1, FrameRule.REFLECT), FrameRule.REFLECT)


def reflection_pad2d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Mirrored at its ends, in two dimensions."""
    return _padded(self, _checked(self, padding, 2, FrameRule.REFLECT), FrameRule.REFLECT)


def reflection_pad3d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Mirrored at its ends, in three dimensions."""
    return _padded(self, _checked(self, padding, 3, FrameRule.REFLECT), FrameRule.REFLECT)


def replication_pad1d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Continued by its end elements, in one dimension."""
    return _padded(self, _checked(self, padding, 1, FrameRule.CLAMP), FrameRule.CLAMP)


def replication_pad2d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Continued by its end elements, in two dimensions."""
    return _padded(self, _checked(self, padding, 2, FrameRule.CLAMP), FrameRule.CLAMP)


def replication_pad3d(self: torch.Tensor, padding: Sequence[int]) -> torch.Tensor:
    """Continued by its end elements, in three dimensions."""
    return _padded(self, _checked(self, padding, 3, FrameRule.CLAMP), FrameRule.CLAMP)


def _checked(x: torch.Tensor, pad: Sequence[int], spatial: int, rule: FrameRule) -> Sequence[int]:
    """The pads, if they fit a tensor whose last ``spatial`` dimensions are padded.

    Raises:
        ValueError: another number of pads or dimensions, empty dimensions, or a mirror image longer than its source.
    """
    if len(pad) != 2 * spatial or x.ndim not in (spatial + 1, spatial + 2):
        raise ValueError(f"pads {list(pad)} do not fit {spatial} of {x.ndim} dimensions")
    if 0 in x.shape[x.ndim - spatial - 1 :]:
        raise ValueError(f"only the batch may be empty, not {list(x.shape)}")
    if rule is FrameRule.REFLECT and any(pad[i] >= x.shape[-1 - i // 2] for i in range(len(pad))):
        raise ValueError(f"pads {list(pad)} must be smaller than the dimensions that they mirror: {list(x.shape)}")
    return pad


def _padded(self: torch.Tensor, pad: Sequence[int], rule: FrameRule, value: float = 0) -> torch.Tensor:
    require_served(self, dtypes=[self.dtype])
    # Zeros and copies are bits; another number is one of the tensor's own type.
    source = as_bits(self) if value == 0 else self
    require_served(source)
    dims, shape = [], list(self.shape)
    for d, size in enumerate(self.shape):
        before, after = (
            (pad[2 * (self.ndim - 1 - d)], pad[2 * (self.ndim - 1 - d) + 1]) if _is_padded(self, pad, d) else (0, 0)
        )
        shape[d] = size + before + after
        dims.append(Dim(shape[d], 0, self.stride(d), rule=rule, start=before, extent=size))
    if any(size < 0 for size in shape) or (rule is not FrameRule.WINDOW and 0 in shape[1:]):
        raise ValueError(f"pads {list(pad)} leave nothing of a tensor of shape {list(self.shape)}")
    out = torch.empty(shape, dtype=self.dtype, device=self.device, memory_format=_suggested_format(self))
    show(out.view(source.dtype), source, dims, value)
    return out


def _cropped(self: torch.Tensor, pad: Sequence[int]) -> torch.Tensor:
    """Without ``-pad`` elements at the ends of dimensions: a copy of a view, whose elements are all there."""
    kept = self
    for place in range(0, len(pad), 2):
        dim, before, after = self.ndim - 1 - place // 2, -pad[place], -pad[place + 1]
        size = self.shape[dim] - before - after
        if size < 0:
            raise ValueError(f"pads {list(pad)} leave nothing of a tensor of shape {list(self.shape)}")
        kept = kept.narrow(dim, before, size)
    out = torch.empty(kept.shape, dtype=self.dtype, device=self.device, memory_format=_suggested_format(self))
    copy_into(out, kept)
    return out


def _is_padded(x: torch.Tensor, pad: Sequence[int], dim: int) -> bool:
    return 2 * (x.ndim - dim) <= len(pad)


def _suggested_format(x: torch.Tensor) -> torch.memory_format:
    """Channels last where the tensor is laid out so and not contiguous as well."""
    for memory_format in (torch.channels_last, torch.channels_last_3d):
        fits = x.ndim == (4 if memory_format is torch.channels_last else 5)
        if fits and x.is_contiguous(memory_format=memory_format) and not x.is_contiguous():
            return memory_format
    return torch.contiguous_format


def roll(self: torch.Tensor, shifts: Sequence[int], dims: Sequence[int] = ()) -> torch.Tensor:
    """``self`` shifted along ``dims``, what leaves at one end entering at the other; without dims as if flat.

    Raises:
        ValueError: another number of shifts than of dimensions.
        IndexError: a dimension out of range.
    """
    if dims and self.ndim == 0:
        raise IndexError("a tensor without dimensions rolls along none")
    if len(shifts) != max(len(dims), 1):
        raise ValueError(f"{len(shifts)} shifts do not fit {len(dims)} dimensions")
    bits = as_bits(self)
    if not dims and not self.is_contiguous():
        bits = copied(bits)
    out = torch.empty(self.shape, dtype=self.dtype, device=self.device)
    source, target = (bits, out) if dims else (bits.view(-1), out.view(-1))
    total = [0] * source.ndim
    for shift, dim in zip(shifts, dims or (0,), strict=True):
        (axis,) = normalized_dims(dim, source.ndim)
        total[axis] += shift
    show(target.view(bits.dtype), source, [_rolled(source, d, shift) for d, shift in enumerate(total)])
    return out


def _rolled(source: torch.Tensor, dim: int, shift: int) -> Dim:
    size = source.shape[dim]
    shift %= max(size, 1)
    return Dim(size, 0, source.stride(dim), rule=FrameRule.ROLL if shift else FrameRule.PLAIN, start=shift, extent=size)
