"""Observing a call: everything it returned and every input byte it changed, as plain data.

Worker and referee use the same code, so a difference between their outcomes is a difference
between kernel and eager.
"""

from __future__ import annotations

from typing import Any

import torch

from opsmith.core.case import CallRecord, ComplexValue, Outcome, OutputOther, OutputTensor
from opsmith.evaluation.inputs import LiveCall, dtype_name, element_bytes
from opsmith.suites.recording import storage_bytes

#: Results above this are described but not copied: no case asks for one, so the shape is wrong.
MAX_RESULT_BYTES = 16 << 30


def observe(result: Any, call: LiveCall, record: CallRecord) -> Outcome:
    """Describe what a call returned and what it did to its inputs.

    Args:
        result: the call's return value.
        call: the live arguments, after the call.
        record: the arguments as they were before.
    """
    leaves: list[Any] = []
    structure = _flatten(result, leaves)
    return Outcome(structure=structure, outputs=_describe_leaves(leaves, call), changed=_changed(call, record))


def _flatten(result: Any, leaves: list[Any]) -> str:
    # ATen's lists and tuples are one thing to a caller, so they are not told apart.
    if isinstance(result, (list, tuple)):
        return "(" + ",".join([_flatten(item, leaves) for item in result]) + ")"
    leaves.append(result)
    return "*"


def _describe_leaves(leaves: list[Any], call: LiveCall) -> tuple[OutputTensor | OutputOther, ...]:
    described: list[OutputTensor | OutputOther] = []
    spans: list[tuple[int, int]] = []
    input_spans = [_span(storage) for storage in call.storages]
    for leaf in leaves:
        if type(leaf) is torch.Tensor or type(leaf) is torch.nn.Parameter:
            span = _span(leaf.untyped_storage()) if leaf.layout is torch.strided else (0, 0)
            described.append(_describe_tensor(leaf, _overlapping(span, input_spans), _overlapping(span, spans)))
            spans.append(span)
        else:
            described.append(_describe_other(leaf))
            spans.append((0, 0))
    return tuple(described)


def _describe_tensor(tensor: torch.Tensor, input_storage: int | None, output: int | None) -> OutputTensor:
    strided = tensor.layout is torch.strided
    readable = strided and tensor.device.type != "meta" and tensor.numel() * tensor.element_size() <= MAX_RESULT_BYTES
    return OutputTensor(
        dtype=dtype_name(tensor.dtype),
        shape=tuple(tensor.shape),
        strides=tensor.stride() if strided else (),
        offset=tensor.storage_offset() if strided else 0,
        device=tensor.device.type,
        layout=str(tensor.layout).removeprefix("torch."),
        input_storage=input_storage,
        output=output,
        data=element_bytes(tensor) if readable else b"",
    )


def _describe_other(leaf: Any) -> OutputOther:
    kind = type(leaf).__name__
    if isinstance(leaf, complex):
        return OutputOther(kind, ComplexValue(leaf.real, leaf.imag))
    return OutputOther(kind, leaf if type(leaf) in (bool, int, float, str) else None)


def _span(storage: torch.UntypedStorage) -> tuple[int, int]:
    start = storage.data_ptr()
    return start, start + storage.nbytes()


def _overlapping(span: tuple[int, int], others: list[tuple[int, int]]) -> int | None:
    # By address, not by storage object: a kernel can wrap the same memory in another storage.
    for number, other in enumerate(others):
        if max(span[0], other[0]) < min(span[1], other[1]):
            return number
    return None


def _changed(call: LiveCall, record: CallRecord) -> dict[int, bytes]:
    changed = {}
    for number, (storage, before) in enumerate(zip(call.storages, record.storages, strict=True)):
        after = storage_bytes(storage)
        if after != before:
            changed[number] = after
    return changed
