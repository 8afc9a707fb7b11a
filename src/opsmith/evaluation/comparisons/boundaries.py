"""Writes outside a tensor: the bytes of its storage that lie around and between its elements, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from opsmith.calls.live import item_bytes, tensor_from_bytes
from opsmith.calls.transfer import Content
from opsmith.core.case import TensorValue


def overwritten(windows: Sequence[TensorValue], before: Content, after: Content, eager: Content | None) -> str | None:
    """What was overwritten outside of some tensors' elements, as in ``1 element behind its last element``; or None.

    Compares on the device where the content lies; only counts come to the host.

    Args:
        windows: the tensors that look at the storage; at least one.
        before: the storage before the call.
        after: the storage after it, of as many bytes.
        eager: the same after eager's call, or None where that changed nothing: what eager writes may be written.
    """
    left = _flat(after)
    was = _flat(before).to(left.device)
    foreign = left != was
    if eager is not None:
        foreign &= left != _flat(eager).to(left.device)
    for window in windows:
        _elements(foreign, window).fill_(False)
    if not bool(foreign.any()):
        return None
    return _place(foreign.nonzero().flatten(), windows[0])


def _flat(content: Content) -> torch.Tensor:
    return tensor_from_bytes(content, "u8", (len(content),)) if isinstance(content, bytes) else content


def _elements(of_bytes: torch.Tensor, window: TensorValue) -> torch.Tensor:
    """One number for each byte of a tensor's elements, out of one for each byte of its storage."""
    size = item_bytes(window.dtype)
    if 0 in window.shape:
        return of_bytes[:0]
    return of_bytes.as_strided((*window.shape, size), (*[s * size for s in window.strides], 1), window.offset * size)


def _place(places: torch.Tensor, window: TensorValue) -> str:
    """Where some bytes of a storage lie, seen from a tensor."""
    size = item_bytes(window.dtype)
    last = window.offset + sum((n - 1) * stride for n, stride in zip(window.shape, window.strides, strict=True))
    elements = places.div(size, rounding_mode="floor").unique()
    parts = {
        "in front of its first element": elements < window.offset,
        "between its elements": (elements >= window.offset) & (elements <= last),
        "behind its last element": elements > last,
    }
    counts = {where: int(part.sum()) for where, part in parts.items()}
    told = [f"{count} element{'s' if count > 1 else ''} {where}" for where, count in counts.items() if count]
    return " and ".join(told)
