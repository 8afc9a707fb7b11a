"""Copies of results, which each repetition overwrites: in the layout that they have, and sharing what they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opsmith.aten.strides import extent


class Results:
    """How the results of a recording are copied.

    A plain result is cloned. Of one with padded rows or expanded dimensions, and of several in the same memory, that
    memory is copied once.

    Args:
        outputs: what the recording returned.
    """

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._places = [_owner(one) for one in outputs]
        shared = {place for place in self._places if self._places.count(place) > 1}
        self._is_plain = [
            place not in shared and _keeps_strides(one) for one, place in zip(outputs, self._places, strict=True)
        ]

    def copied(self, outputs: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """Copies of what the recording has written, in memory of their own."""
        memory: dict[int, Tensor] = {}
        copies = []
        for one, place, is_plain in zip(outputs, self._places, self._is_plain, strict=True):
            if is_plain:
                copies.append(one.clone())
                continue
            if place not in memory:
                memory[place] = self._memory(outputs, place).clone()
            copies.append(_view(memory[place], one))
        return tuple(copies)

    def _memory(self, outputs: Sequence[Tensor], place: int) -> Tensor:
        """The bytes that the results in one storage reach to, from its beginning."""
        sharing = [one for one, other in zip(outputs, self._places, strict=True) if other == place]
        size = max(extent(one.shape, one.stride(), int(one.storage_offset())) * one.element_size() for one in sharing)
        whole = torch.empty(0, dtype=torch.uint8, device=sharing[0].device).set_(sharing[0].untyped_storage())
        return whole[:size]


def _owner(tensor: Tensor) -> int:
    return int(tensor.untyped_storage()._cdata)


def _keeps_strides(tensor: Tensor) -> bool:
    """Whether a clone has the same strides: not of rows that are padded, or expanded."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _view(memory: Tensor, like: Tensor) -> Tensor:
    """The tensor that has the same place in the copy of its storage."""
    made = torch.empty(0, dtype=like.dtype, device=like.device)
    return made.set_(memory.untyped_storage(), like.storage_offset(), like.shape, like.stride())
