"""Recorded calls on tensors that have no memory: host code of a kernel runs on them as on those of a GPU."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from opsmith.core.case import CallRecord, ComplexValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import TENSOR_DTYPES
from opsmith.core.run import Selection
from opsmith.suites import Suite
from opsmith.suites.traces import Traces

_DTYPES = {short: getattr(torch, long) for short, long in TENSOR_DTYPES.items()}


def traced_calls(op: str, dtype: str, inputs: int) -> Iterator[CallRecord]:
    """The calls of an op in the inputs of traced models that come with opsmith, the largest ones.

    Args:
        op: an overload's name.
        dtype: of the calls.
        inputs: how many at most.
    """
    return recorded_calls(_traces(inputs), op, op, dtype, "cuda")


def recorded_calls(suite: Suite, entry: str, op: str, dtype: str, device: str) -> Iterator[CallRecord]:
    """The good calls of an op in one entry of a suite, none where the suite has no such entry."""
    if entry not in suite.entries(dtype, device):
        return
    for call in suite.calls(entry, dtype, device, 0, lambda name, _signature: name == op):
        record = getattr(call, "record", None)
        if record is not None and record.op == op and not getattr(call, "expects_error", False):
            yield record


@functools.cache
def _traces(inputs: int) -> Traces:
    suite = Traces()
    suite.select(Selection(top_inputs=inputs))
    return suite


def fake_arguments(record: CallRecord) -> tuple[Sequence[Any], dict[str, Any]]:
    """A call's arguments with CUDA tensors, under a fake tensor mode.

    Of a call that was recorded for a GPU, 0-dim tensors on the CPU stay there.
    """
    values = [*record.args, *record.kwargs.values()]
    has_device = any(isinstance(value, TensorValue) and value.device != "cpu" for value in values)
    args = [_fake(value, has_device=has_device) for value in record.args]
    return args, {name: _fake(value, has_device=has_device) for name, value in record.kwargs.items()}


def _fake(value: Value, *, has_device: bool) -> Any:
    if isinstance(value, TensorValue):
        span = 1 + sum((size - 1) * stride for size, stride in zip(value.shape, value.strides, strict=True) if size)
        device = "cpu" if has_device and value.device == "cpu" and not value.shape else "cuda"
        whole = torch.empty(value.offset + span, dtype=_DTYPES[value.dtype], device=device)
        return whole.as_strided(value.shape, value.strides, value.offset)
    if isinstance(value, SequenceValue):
        items = [_fake(item, has_device=has_device) for item in value.items]
        return tuple(items) if value.is_tuple else items
    if isinstance(value, ComplexValue):
        return complex(value.real, value.imag)
    if isinstance(value, NamedValue):
        return torch.device("cuda") if value.kind == "device" else getattr(torch, value.name)
    return value
