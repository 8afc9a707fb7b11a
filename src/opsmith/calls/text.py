"""A call in one line that can be typed in: its arguments, and their values where these are few."""

from __future__ import annotations

import torch

from opsmith.calls.live import rebuild
from opsmith.core.call_text import describe
from opsmith.core.case import CallRecord

#: A tensor with more elements is described by its form alone.
MAX_SHOWN_ELEMENTS = 8


def describe_with_values(record: CallRecord) -> str:
    """``(T([2], f32), 1), {} with 0 = [-1.5, 2.0]``: tensors of few elements by number, in order of appearance."""
    live = rebuild(record, torch.device("cpu"))
    tensors = [leaf for leaf in _leaves((*live.args, *live.kwargs.values())) if isinstance(leaf, torch.Tensor)]
    shown = [
        f"{number} = {tensor.tolist()}" for number, tensor in enumerate(tensors) if tensor.numel() <= MAX_SHOWN_ELEMENTS
    ]
    return describe(record) + (f" with {', '.join(shown)}" if shown else "")


def _leaves(values: tuple[object, ...]) -> list[object]:
    found: list[object] = []
    for value in values:
        found.extend(_leaves(tuple(value)) if isinstance(value, list | tuple) else [value])
    return found
