"""The same call on the same values in another memory layout.

=============== ==================================================================
label           layout of every tensor that the op reads, and of what it writes
                in place or into ``out=``
=============== ==================================================================
``misaligned``  begins an odd number of elements, up to 63, into its storage
``gapped``      every second to seventh element of its storage along the last
                dimension
``padded``      rows are dense, and 1 to 64 elements of others lie between them
``permuted``    dimensions in another order in memory
``expanded``    stride 0 along one dimension; its values are those of the first
                (elementwise ops only: eager's median, for one, takes others
                apart; what is written keeps its layout)
=============== ==================================================================

Steps, pads, offsets and orders are drawn. What lies between a tensor's elements is other elements of its own, so that
a kernel that reads them gets valid values and a wrong result. A generated storage is drawn anew for the new layout.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.strides import extent
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue, map_tensors
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs.binding import ArgumentSlot, stem_of
from opsmith.suites.variants.scope import (
    bound_call,
    has_rule,
    is_about_layout,
    is_elementwise,
    is_trusting,
    written_arguments,
)

#: Offsets are odd and below this, and so many elements lie between rows at most.
MOST_ELEMENTS = 64
STEPS = range(2, 8)
#: Given ``out=``, eager on a CPU reads their input as if it lay in memory as the result does.
MISREAD = ("native_batch_norm", "_native_batch_norm_legit", "_batch_norm_with_update", "narrow_copy")


class _Window(NamedTuple):
    """Where a tensor's elements lie in its storage."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int


def layout_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with its tensors laid out otherwise; labels as in the module's docstring.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of what is drawn.
    """
    misread = schema.variant is Variant.OUT and stem_of(schema.name) in MISREAD
    if is_about_layout(schema) or is_trusting(schema) or misread:
        return
    elementwise = is_elementwise(schema)
    slots, written = _movable(record, schema), written_arguments(schema)
    for label, layout in LAYOUTS.items():
        moved: dict[int, tuple[Storage, TensorValue]] = {}
        for slot in slots:
            if label == "expanded" and (not elementwise or has_rule(schema, slot.name) or slot.name in written):
                continue
            chance = random.Random(derive_seed(seed, label, slot.name))  # noqa: S311 - a choice, no secret
            window = layout(slot.tensor.shape, chance)
            if window is not None:
                moved[slot.tensor.storage] = _moved(record.storages[slot.tensor.storage], slot.tensor, window)
        if moved:
            yield label, _with(record, moved)


def _movable(record: CallRecord, schema: OpSchema) -> list[ArgumentSlot]:
    """Tensors that the op reads, or writes in place or as ``out=``, each alone on its storage."""
    call = bound_call(record)
    if call is None:
        return []
    numbers = [slot.tensor.storage for slot in call.slots]
    # What others write beside their result (running statistics) is dense wherever it is used.
    kept = frozenset() if schema.variant in (Variant.INPLACE, Variant.OUT) else written_arguments(schema)
    return [
        slot
        for slot in call.slots
        if slot.name not in kept and numbers.count(slot.tensor.storage) == 1 and 0 not in slot.tensor.shape
    ]


def dense_strides(shape: Sequence[int], step: int = 1) -> tuple[int, ...]:
    """Row-major strides of a shape; neighbours along the last dimension are ``step`` elements apart."""
    strides = []
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _misaligned(shape: tuple[int, ...], chance: random.Random) -> _Window:
    return _Window(shape, dense_strides(shape), chance.randrange(1, MOST_ELEMENTS, 2))


def _gapped(shape: tuple[int, ...], chance: random.Random) -> _Window | None:
    return _Window(shape, dense_strides(shape, chance.choice(STEPS)), 0) if math.prod(shape) > 1 else None


def _padded(shape: tuple[int, ...], chance: random.Random) -> _Window | None:
    if math.prod(shape[:-1]) < 2:
        return None
    wider = (*shape[:-1], shape[-1] + chance.randint(1, MOST_ELEMENTS))
    return _Window(shape, dense_strides(wider), 0)


def _permuted(shape: tuple[int, ...], chance: random.Random) -> _Window | None:
    long = [dim for dim, size in enumerate(shape) if size > 1]
    if len(long) < 2:
        return None
    order = list(range(len(shape)))
    while [dim for dim in order if dim in long] == long:
        chance.shuffle(order)
    dense = dense_strides([shape[dim] for dim in order])
    return _Window(shape, tuple([dense[order.index(dim)] for dim in range(len(shape))]), 0)


def _expanded(shape: tuple[int, ...], chance: random.Random) -> _Window | None:
    dims = [dim for dim, size in enumerate(shape) if size > 1]
    if not dims:
        return None
    chosen = chance.choice(dims)
    dense = dense_strides([1 if dim == chosen else size for dim, size in enumerate(shape)])
    return _Window(shape, tuple([0 if dim == chosen else stride for dim, stride in enumerate(dense)]), 0)


LAYOUTS: dict[str, Callable[[tuple[int, ...], random.Random], _Window | None]] = {
    "misaligned": _misaligned,
    "gapped": _gapped,
    "padded": _padded,
    "permuted": _permuted,
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
    _, values = window_of(storage, tensor)
    memory = values.flatten().roll(1).repeat(-(-elements // values.numel()))[:elements].clone()
    target = memory.as_strided(tensor.shape, window.strides, window.offset)
    for dim, stride in enumerate(window.strides):
        if stride == 0 and target.shape[dim] > 1:
            values, target = values.narrow(dim, 0, 1), target.narrow(dim, 0, 1)
    target.copy_(values)
    return bytes_of(memory), placed


def window_of(storage: bytes, tensor: TensorValue) -> tuple[torch.Tensor, torch.Tensor]:
    """A copy of a recorded storage as flat memory, and a tensor's elements in it."""
    memory = torch.frombuffer(bytearray(storage), dtype=torch_dtype(tensor.dtype))
    return memory, memory.as_strided(tensor.shape, tensor.strides, tensor.offset)


def bytes_of(memory: torch.Tensor) -> bytes:
    """Flat memory as a recorded storage."""
    return memory.view(torch.uint8).numpy().tobytes()


def _with(record: CallRecord, moved: dict[int, tuple[Storage, TensorValue]]) -> CallRecord:
    def place(tensor: TensorValue) -> TensorValue:
        return moved[tensor.storage][1] if tensor.storage in moved else tensor

    return msgspec.structs.replace(
        record,
        args=tuple([map_tensors(value, place) for value in record.args]),
        kwargs={name: map_tensors(value, place) for name, value in record.kwargs.items()},
        storages=tuple([moved[n][0] if n in moved else storage for n, storage in enumerate(record.storages)]),
    )
