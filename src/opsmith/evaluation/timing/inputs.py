"""The inputs of timed calls: many sets, rewritten between blocks, so that no call meets what an earlier one met.

A set's values are the recorded ones, rotated within each floating-point storage by as many elements as
belong to the set and the round. Both sides of a pair rotate alike, and the referee can make the values of
any timed call again. What holds no floating-point number (indices, masks, sizes) stays as it is.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import msgspec
import torch

from opsmith.aten.arguments import tensors_in
from opsmith.aten.schemas import overload
from opsmith.calls.live import LiveCall, item_bytes, live_call, make_storages
from opsmith.calls.synthetic import flat_view
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue, tensor_values
from opsmith.core.domains import IndependentDomain

#: Elements by which one set is rotated further than the one before: the first that leaves a rest, so that a
#: storage has as many different sets as elements.
STRIDES = (13, 17, 19, 23)
#: Where a device's allocator lets every storage begin.
ALIGNED_BYTES = 512
#: Sets that are made before anybody asks for them.
MADE_AT_ONCE = 8
_FLOATING = ("f16", "bf16", "f32", "f64", "c32", "c64", "c128")
#: By bytes: the integer that elements of a storage are copied as.
_UNITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class TimedInputs:
    """Up to ``count`` sets of one call's inputs, of which the first few are there at once, with the values of round 0.

    Attributes:
        record: the call.
        lives: the sets that there are.

    Args:
        record: the call.
        device: where it runs.
        count: how many sets there may be.
        varied: rotate the values; False where the op refuses rotated ones.
        storages: the record's values, if they were made before; then it has no gaps, see :func:`without_gaps`.
    """

    def __init__(
        self,
        record: CallRecord,
        device: torch.device,
        count: int,
        *,
        varied: bool,
        storages: Sequence[torch.UntypedStorage] | None = None,
    ) -> None:
        if storages is None:
            record = without_gaps(record)
            storages = make_storages([record], device)[0]
        self.record = record
        self._device = device
        self._count = count
        steps = _element_bytes(record)
        self._values = [
            _Values(storage, step if varied else None, count) for storage, step in zip(storages, steps, strict=True)
        ]
        self.lives: list[LiveCall] = []
        self._columns: list[list[torch.UntypedStorage]] = []
        self._changes_shapes = _changes_shapes(record)
        resizable = _resizable(record)
        self._copies = [
            _SideBySide(values)
            if values.size_bytes and number not in resizable and not _is_on_host(values)
            else _Apart(values)
            for number, values in enumerate(self._values)
        ]
        self.make(min(count, MADE_AT_ONCE))

    def make(self, count: int) -> None:
        """Have the first ``count`` sets: if more are wanted than there are, all are made anew, in one piece."""
        if count <= len(self.lives):
            return
        self.lives, self._columns = [], []  # What they take is free for the new ones.
        self._columns = [copies.make(count) for copies in self._copies]
        self.lives = self._made(count)
        self.renew(0, count)

    def _made(self, count: int) -> list[LiveCall]:
        """Arguments that look at the first sets' storages as the recorded ones do."""
        return [
            live_call(self.record, [column[place] for column in self._columns], self._device) for place in range(count)
        ]

    def renew(self, round_number: int, count: int) -> None:
        """Write the values of a round into the first ``count`` sets, of which missing ones are made.

        An ``out=`` argument that a call has resized stays as it is: its tensor would look past a smaller storage.
        """
        self.make(count)
        for values, copies in zip(self._values, self._copies, strict=True):
            if values.size_bytes and count:
                copies.write(values.start(round_number, self._count), count)
        if self._changes_shapes:
            self.lives[:count] = self._made(count)

    def tensors(self, count: int) -> list[torch.Tensor]:
        """Those among the arguments of the first ``count`` sets, in lists of tensors, too."""
        lives = self.lives[:count]
        return tensors_in(argument for live in lives for argument in (*live.args, *live.kwargs.values()))

    def before(self, slot: int, round_number: int) -> list[torch.UntypedStorage]:
        """Fresh storages with the values that one set has in a round."""
        return [values.storage(slot, values.start(round_number, self._count)) for values in self._values]

    def record_of(self, slot: int, round_number: int) -> CallRecord:
        """The call of one set with the values that it has in a round."""
        storages = [
            _rotated(storage, values.rotation(slot, values.start(round_number, self._count)))
            for storage, values in zip(self.record.storages, self._values, strict=True)
        ]
        return msgspec.structs.replace(self.record, storages=tuple(storages))


class _Values:
    """The values of one storage, one after another so often that every rotation of them is a slice.

    Args:
        storage: the recorded values.
        step: bytes of the element by which they may be rotated; None if they may not.
        count: sets of inputs that are written at a time.
    """

    def __init__(self, storage: torch.UntypedStorage, step: int | None, count: int) -> None:
        self.size_bytes = size = storage.nbytes()
        self.device = storage.device
        if step is None or size < 2 * step or size % step:
            step = None
        width = min(step or _widest(size), 8)
        self.unit = _UNITS[width]
        self._length = size // width
        self._stride = 0 if step is None else _stride(size // step) * (step // width)
        flat = flat_view(storage, self.unit)
        if self._stride:
            whole, rest = divmod(2 * self._length + self._stride * count, self._length)
            flat = torch.cat([flat] * whole + [flat[:rest]])
        self._flat = flat

    def start(self, round_number: int, count: int) -> int:
        """Where the first set's values start in a round, in units."""
        if not self._stride:
            return 0
        return (1 + round_number * count) * self._stride % self._length

    def rows(self, start: int, slot: int, count: int) -> torch.Tensor:
        """The values of ``count`` sets from ``slot`` on, a row each."""
        return self._flat.as_strided((count, self._length), (self._stride, 1), start + slot * self._stride)

    def rotation(self, slot: int, start: int) -> int:
        """Bytes by which the values of one set are rotated."""
        if not self._stride:
            return 0
        return (start + slot * self._stride) % self._length * self._flat.element_size()

    def address(self, slot: int, start: int) -> int:
        """Where the values of one set lie."""
        return int(self._flat.data_ptr()) + (start + slot * self._stride) * self._flat.element_size()

    def storage(self, slot: int, start: int) -> torch.UntypedStorage:
        """A fresh storage with the values of one set."""
        first = start + slot * self._stride
        return self._flat[first : first + self._length].clone().untyped_storage()


class _Apart:
    """The storages of each set for themselves: on a host, and where a call may give them another size."""

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._targets: list[torch.Tensor] = []
        self._copy = _copying(values.device.type)

    def make(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of so many sets, instead of those that were made before."""
        values = self._values
        self._targets = []
        storages = [torch.UntypedStorage(values.size_bytes, device=values.device) for _ in range(count)]
        self._targets = [flat_view(storage, values.unit) for storage in storages]
        return storages

    def write(self, start: int, count: int) -> None:
        """Write the values of the first ``count`` sets."""
        values = self._values
        for slot, target in enumerate(self._targets[:count]):
            if _is_on_host(values):
                ctypes.memmove(target.data_ptr(), values.address(slot, start), values.size_bytes)
            else:
                self._copy(target, values.rows(start, slot, 1)[0])


class _SideBySide:
    """The storages of many sets behind each other in one piece of memory, which one copy writes.

    To a kernel they are storages like any other, but for :meth:`resize_`, and as well aligned.
    """

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._rows = torch.empty(0)
        self._copy = _copying(values.device.type)

    def make(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of so many sets, instead of those that were made before."""
        values = self._values
        pitch = -(-values.size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
        self._rows = torch.empty(0)
        memory = torch.empty(count, pitch, dtype=torch.uint8, device=values.device).view(values.unit)
        self._rows = memory[:, : values.size_bytes // values.unit.itemsize]
        at: Callable[[int, torch.device, int], Any] = torch._C._construct_storage_from_data_pointer
        return [at(row.data_ptr(), values.device, values.size_bytes) for row in memory]

    def write(self, start: int, count: int) -> None:
        """Write the values of the first ``count`` sets."""
        self._copy(self._rows[:count], self._values.rows(start, 0, count))


@cache
def _copying(device_type: str) -> Callable[[torch.Tensor, torch.Tensor], None]:
    """What copies on a device: fetched once, past whatever may be put in the dispatcher's tables later."""
    kernel = torch.library.get_kernel("aten::copy_", device_type.upper())

    def copy(target: torch.Tensor, source: torch.Tensor) -> None:
        kernel.call_boxed(torch._C._dispatch_keys(target), target, source, False)

    return copy


def _is_on_host(values: _Values) -> bool:
    return values.device.type == "cpu"


def _changes_shapes(record: CallRecord) -> bool:
    """Whether a call gives its argument another shape (``unsqueeze_``), which the next call would begin with."""
    try:
        return torch.Tag.inplace_view in overload(record.op).tags
    except AttributeError:
        return False  # A module's name, or none at all, is no overload.


def _resizable(record: CallRecord) -> set[int]:
    """Storages that a call may give another size: of what it writes to, by keyword, or of everything."""
    resizes = record.op.startswith(("resize", "set_"))
    values = (*record.args, *record.kwargs.values()) if resizes else tuple(record.kwargs.values())
    return {tensor.storage for tensor in tensor_values(values)}


def _stride(elements: int) -> int:
    """Elements between the beginnings of two sets."""
    return next((stride for stride in STRIDES if elements % stride), STRIDES[0])


def _rotated(storage: Storage, size_bytes: int) -> Storage:
    if isinstance(storage, bytes):
        return storage[size_bytes:] + storage[:size_bytes]
    return msgspec.structs.replace(storage, rotation=size_bytes)


def _widest(size_bytes: int) -> int:
    """Bytes of the largest unit that divides a storage."""
    return next(width for width in (8, 4, 2, 1) if size_bytes % width == 0)


def without_gaps(record: CallRecord) -> CallRecord:
    """The call with values between its elements, too: rotating would bring whatever lies there under them."""
    covering: dict[int, TensorValue] = {}
    for tensor in tensor_values((*record.args, *record.kwargs.values())):
        covering.setdefault(tensor.storage, tensor)
    storages = [
        _filled(storage, covering[number]) if isinstance(storage, bytes) and number in covering else storage
        for number, storage in enumerate(record.storages)
    ]
    return msgspec.structs.replace(record, storages=tuple(storages))


def _filled(storage: bytes, tensor: TensorValue) -> bytes:
    import numpy as np  # Slow to import; only timing needs it.

    size = item_bytes(tensor.dtype)
    elements = math.prod(tensor.shape)
    if tensor.dtype not in _FLOATING or elements * size >= len(storage) or not elements or len(storage) % size:
        return storage
    content = np.frombuffer(storage, dtype=np.dtype((np.void, size))).copy()
    window = np.lib.stride_tricks.as_strided(
        content[tensor.offset :], tensor.shape, [stride * size for stride in tensor.strides]
    )
    values = window.reshape(-1).copy()
    inside = np.zeros(len(content), dtype=bool)
    np.lib.stride_tricks.as_strided(inside[tensor.offset :], tensor.shape, tensor.strides)[...] = True
    outside = np.flatnonzero(~inside)
    content[outside] = np.resize(values, len(outside))
    return content.tobytes()


def _element_bytes(record: CallRecord) -> list[int | None]:
    """For each storage the size of an element by which it may be rotated, or None if it may not."""
    tensors: dict[int, list[TensorValue]] = {}
    for tensor in tensor_values((*record.args, *record.kwargs.values())):
        tensors.setdefault(tensor.storage, []).append(tensor)
    return [_rotatable(storage, tensors.get(number, [])) for number, storage in enumerate(record.storages)]


def _rotatable(storage: bytes | GeneratedStorage, tensors: Sequence[TensorValue]) -> int | None:
    if not tensors or any(tensor.dtype not in _FLOATING for tensor in tensors):
        return None
    if isinstance(storage, GeneratedStorage) and not isinstance(storage.domain, IndependentDomain):
        return None  # Its elements depend on each other: a positive definite matrix, probabilities.
    if (
        isinstance(storage, GeneratedStorage)
        and math.prod(storage.shape) * item_bytes(storage.dtype) < storage.size_bytes
    ):
        return None  # What lies between its elements is no value.
    return max(item_bytes(tensor.dtype) for tensor in tensors)
