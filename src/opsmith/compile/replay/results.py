"""Copies of results, which each repetition overwrites: in the layout that they have, and sharing what they share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from opsmith.aten.strides import extent
from opsmith.compile.replay.repeatable import storage_of


class Results:
    """How the results of a recording are copied.

    A plain result is cloned. Of one with padded rows or expanded dimensions, and of several in the same memory, that
    memory is copied once.

    Args:
        outputs: what the recording returned.
    """

    def __init__(self, outputs: Sequence[Tensor]) -> None:
        self._outputs = outputs
        places = [storage_of(one) for one in outputs]
        # By output: the memory that is copied for it, by its place, or None where it is cloned.
        self._places = [
            None if places.count(place) == 1 and _keeps_strides(one) else place
            for one, place in zip(outputs, places, strict=True)
        ]
        self._memory = {place: self._reached(place) for place in self._places if place is not None}

    def copied(self) -> tuple[Tensor, ...]:
        """Copies of what the recording has written, in memory of their own."""
        memory = {place: one.clone() for place, one in self._memory.items()}
        return tuple(
            one.clone() if place is None else _view(memory[place], one)
            for one, place in zip(self._outputs, self._places, strict=True)
        )

    def _reached(self, place: int) -> Tensor:
        """The bytes that the results in one storage reach to, from its beginning."""
        sharing = [one for one, other in zip(self._outputs, self._places, strict=True) if other == place]
        size = max(extent(one.shape, one.stride(), int(one.storage_offset())) * one.element_size() for one in sharing)
        whole = torch.empty(0, dtype=torch.uint8, device=sharing[0].device).set_(sharing[0].untyped_storage())
        return whole[:size]


def _keeps_strides(tensor: Tensor) -> bool:
    """Whether a clone has the same strides: not of rows that are padded, or expanded."""
    return torch.empty_like(tensor, device="meta").stride() == tensor.stride()


def _view(memory: Tensor, like: Tensor) -> Tensor:
    """The tensor that has the same place in the copy of its storage."""
    made = torch.empty(0, dtype=like.dtype, device=like.device)
    return made.set_(memory.untyped_storage(), like.storage_offset(), like.shape, like.stride())
