"""Memory that changes after a call has returned: whoever wrote it then was late, on this rank or on another."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from opsmith.calls.digests import digest_memory


class KeptMemory:
    """What some tensors held at one moment.

    Args:
        tensors: whose elements are looked at; those of each storage that is shared count once for each tensor.
    """

    def __init__(self, tensors: Iterable[torch.Tensor]) -> None:
        self._tensors = [tensor.detach() for tensor in tensors if tensor.numel() and tensor.layout is torch.strided]
        self._digests = self._now()

    def has_changed(self) -> bool:
        """Whether any of them holds something else by now."""
        return not all(map(torch.equal, self._digests, self._now()))

    def _now(self) -> list[torch.Tensor]:
        return [
            digest_memory(tensor.resolve_conj().contiguous().view(-1).view(torch.uint8)) for tensor in self._tensors
        ]
