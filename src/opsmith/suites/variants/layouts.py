"""The same call on the same values in another memory layout.

=============== ==================================================================
label           layout of every tensor that the op only reads
=============== ==================================================================
``shifted``     begins 16 elements into its storage
``misaligned``  begins one element into its storage
``gapped``      every other element of its storage along the last dimension
``transposed``  dimensions in reverse order in memory
``expanded``    stride 0 along one dimension; its values are those of the first
                (elementwise ops only: eager's median, for one, takes others apart)
=============== ==================================================================

What lies between a tensor's elements is other elements of its own, so that a kernel that reads them
gets valid values and a wrong result. A generated storage is drawn anew for the new layout.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.strides import extent
from opsmith.core.case import CallRecord, GeneratedStorage, MappingValue, SequenceValue, Storage, TensorValue, Value
from opsmith.core.op import OpSchema, Variant
from opsmith.suites.valid_inputs.binding import ArgumentSlot, stem_of
from opsmith.suites.variants.scope import (
    bound_call,
    has_rule,
    is_about_layout,
    is_elementwise,
    is_trusting,
    written_arguments,
)

SHIFT = 16
#: Given ``out=``, eager on a CPU reads their input as if it lay in memory as the result does.
MISREAD = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update")


class _Window(NamedTuple):
    """Where a tensor's elements lie in its storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def layout_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with its read-only tensors laid out otherwise; labels as in the module's docstring.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: chooses the dimension that is expanded.
    """
    misread = schema.variant is Variant.OUT and stem_of(schema.name) in MISREAD
    if is_about_layout(schema) or is_trusting(schema) or misread:
        return
    elementwise = is_elementwise(schema)
    slots = _movable(record, schema)
    for label, layout in LAYOUTS.items():
        moved: dict[int, tuple[Storage, TensorValue]] = {}
        for slot in slots:
            if label == "expanded" and (not elementwise or has_rule(schema, slot.name)):
                continue
            window = layout(slot.tensor.shape, seed)
            if window is not None:
                moved[slot.tensor.storage] = _moved(record.storages[slot.tensor.storage], slot.tensor, window)
        if moved:
            yield label, _with(record, moved)


def _movable(record: CallRecord, schema: OpSchema) -> list[ArgumentSlot]:
    """Tensors that the op only reads, each alone on its storage."""
    call = bound_call(record)
    if call is None:
        return []
    numbers = [slot.tensor.storage for slot in call.slots]
    written = written_arguments(schema)
    return [
        slot
        for slot in call.slots
        if slot.name not in written and numbers.count(slot.tensor.storage) == 1 and 0 not in slot.tensor.shape
    ]


def dense_strides(shape: Sequence[int], step: int = 1) -> tuple[int, ...]:
    """Row-major strides of a shape; neighbours along the last dimension are ``step`` elements apart."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _shifted(shape: tuple[int, ...], _seed: int) -> _Window:
    return _Window(shape, dense_strides(shape), SHIFT)


def _misaligned(shape: tuple[int, ...], _seed: int) -> _Window:
    return _Window(shape, dense_strides(shape), 1)


def _gapped(shape: tuple[int, ...], _seed: int) -> _Window | None:
    return _Window(shape, dense_strides(shape, 2), 0) if math.prod(shape) > 1 else None


def _transposed(shape: tuple[int, ...], _seed: int) -> _Window | None:
    if sum(size > 1 for size in shape) < 2:
        return None
    return _Window(shape, tuple(reversed(dense_strides(tuple(reversed(shape))))), 0)


def _expanded(shape: tuple[int, ...], seed: int) -> _Window | None:
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    if not dims:
        return None
    chosen = dims[seed % len(dims)]
    dense = dense_strides([1 if dim == chosen else size for dim, size in enumerate(shape)])
    return _Window(shape, tuple([0 if dim == chosen else stride for dim, stride in enumerate(dense)]), 0)


LAYOUTS: dict[str, Callable[[tuple[int, ...], int], _Window | None]] = {
    "shifted": _shifted,
    "misaligned": _misaligned,
    "gapped": _gapped,
    "transposed": _transposed,
    "expanded": _expanded,
}


def _moved(storage: Storage, tensor: TensorValue, window: _Window) -> tuple[Storage, TensorValue]:
    """A storage of the window's own, and the tensor on it."""
    placed = msgspec.structs.replace(tensor, strides=window.strides, offset=window.offset)
    elements = extent(*window)
    dtype = torch_dtype(tensor.dtype)
    if isinstance(storage, GeneratedStorage):
        size_bytes = elements * dtype.itemsize
        return msgspec.structs.replace(
            storage, size_bytes=size_bytes, strides=window.strides, offset=window.offset
        ), placed
    values = torch.frombuffer(bytearray(storage), dtype=dtype).as_strided(tensor.shape, tensor.strides, tensor.offset)
    memory = values.flatten().roll(1).repeat(-(-elements // values.numel()))[:elements].clone()
    target = memory.as_strided(tensor.shape, window.strides, window.offset)
    for dim, stride in enumerate(window.strides):
        if stride == 0 and target.shape[dim] > 1:
            values, target = values.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
    target.copy_(values)
    return memory.view(torch.uint8).numpy().tobytes(), placed


def _with(record: CallRecord, moved: dict[int, tuple[Storage, TensorValue]]) -> CallRecord:
    def place(value: Value) -> Value:
        if isinstance(value, TensorValue):
            return moved[value.storage][1] if value.storage in moved else value
        if isinstance(value, SequenceValue):
            return SequenceValue(tuple([place(item) for item in value.items]), value.is_tuple)
        if isinstance(value, MappingValue):
            return MappingValue({name: place(item) for name, item in value.items.items()})
        return value

    return msgspec.structs.replace(
        record,
        args=tuple([place(value) for value in record.args]),
        kwargs={name: place(value) for name, value in record.kwargs.items()},
        storages=tuple([moved[n][0] if n in moved else storage for n, storage in enumerate(record.storages)]),
    )
