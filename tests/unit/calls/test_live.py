"""Live arguments made from a record."""

from __future__ import annotations

import pytest
import torch

from opsmith.calls.live import rebuild
from opsmith.calls.recording import CallRecorder

CPU = torch.device("cpu")


def rebuilt(op: object, *args: object, out: torch.Tensor) -> tuple[tuple[object, ...], object]:
    """The arguments and ``out`` of ``op(*args, out=out)``, recorded and made again."""
    recorder = CallRecorder(lambda *_: True)
    with recorder:
        op(*args, out=out)  # type: ignore[operator]
    record = recorder.calls[0].record
    assert record is not None
    live = rebuild(record, CPU)
    return live.args, live.kwargs["out"]


def test_an_out_that_is_an_argument_too_is_one_tensor() -> None:
    """Eager resizes ``out`` before it looks for an overlap with the arguments, so it has to see one tensor."""
    base = torch.zeros(8)
    (first, *_), out = rebuilt(torch.add, base, 1, out=base)
    assert out is first
    (first, *_), out = rebuilt(torch.add, base[:4], 1, out=base[4:])
    assert out is not first
    (tensors, *_), out = rebuilt(torch.cat, (torch.ones(2), base[:2]), out=torch.zeros(4))
    assert all(out is not tensor for tensor in tensors)  # type: ignore[attr-defined]


def test_an_out_among_a_list_of_arguments_is_found() -> None:
    """A call that eager has refused is refused again."""
    x, y = torch.zeros(0), torch.ones(4, 6)
    recorder = CallRecorder(lambda *_: True)
    with recorder, pytest.raises(RuntimeError, match="single memory location"):
        torch.cat((x, y), out=x)
    record = recorder.calls[0].record
    assert record is not None
    live = rebuild(record, CPU)
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.cat(*live.args, **live.kwargs)
