"""The inputs of timed calls: many sets, rewritten between blocks, so that no call meets what an earlier one met.

The values of a set follow from the key of a round, which a process learns when it is asked to write them
(:mod:`opsmith.calls.fresh_values`). Both sides of a pair have the same, and the referee can make those of any timed
call again. What cannot be made anew stays as it is, and the record of the case says so.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any, Protocol, TypeVar

import msgspec
import torch

from opsmith.aten.arguments import tensors_in
from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import overload
from opsmith.calls.fresh_values import BANK_ELEMENTS, UNITS, ValueBank, call_kernel, unit_of
from opsmith.calls.live import LiveCall, item_bytes, live_call, make_storages
from opsmith.calls.synthetic import flat_view, generate, value_bank
from opsmith.calls.transfer import storage_bytes
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue, tensor_values, tensors_by_storage
from opsmith.core.fresh_values import FreshDraw, Redraw, Variation
from opsmith.core.seeds import derive_seed

#: Where a device's allocator lets every storage begin.
ALIGNED_BYTES = 512
#: Where a host's allocator lets every storage begin, and how far a small storage may lie from where it was.
HOST_ALIGNED_BYTES = 64
SCATTERED_BYTES = 4_096
#: Sets that are made before anybody asks for them.
MADE_AT_ONCE = 8
#: By how much the elements of a storage are shrunk at most that all are the same number.
MOST_SHRUNK = 1 / 8
#: Of what makes values by ops of ATen: the context in which the process may compute for itself.
Computing = Callable[[], AbstractContextManager[Any]]
T = TypeVar("T")
#: Of places that nobody is to know before.
_RANDOM = random.SystemRandom()


class TimedInputs:
    """Up to ``count`` sets of one call's inputs, of which the first few are there at once, with the values of key 0.

    Attributes:
        record: the call.
        count: how many sets there may be.
        lives: the sets that there are.

    Args:
        record: the call.
        device: where it runs.
        count: how many sets there may be.
        variations: how each storage is made anew; without any all stay as they are.
        storages: the record's values, if they were made before; then it has no gaps, see :func:`without_gaps`.
        computing: within it the process may call ATen for itself.
        scattered: on a host, have each set lie somewhere else in each round.
    """

    def __init__(
        self,
        record: CallRecord,
        device: torch.device,
        count: int,
        *,
        variations: Sequence[Variation] = (),
        storages: Sequence[torch.UntypedStorage] | None = None,
        computing: Computing = contextlib.nullcontext,
        scattered: bool = False,
    ) -> None:
        if storages is None:
            record = without_gaps(record)
            storages = make_storages([record], device)[0]
        self.record = record
        self._device = device
        self.count = count
        variations = variations or [Variation(Redraw.FIXED)] * len(storages)
        self._values = [
            _values(record, number, storage, variation, count, computing)
            for number, (storage, variation) in enumerate(zip(storages, variations, strict=True))
        ]
        self.lives: list[LiveCall] = []
        self._columns: list[list[torch.UntypedStorage]] = []
        self._changes_shapes = _changes_shapes(record)
        resizable = _resizable(record)
        self._copies: list[_SideBySide | _Scattered | _Apart] = [
            _Apart(values)
            if not values.size_bytes or number in resizable or (_is_on_host(values) and not scattered)
            else _Scattered(values)
            if _is_on_host(values)
            else _SideBySide(values)
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

    def renew(self, key: int, count: int) -> None:
        """Write the values of a round into the first ``count`` sets, of which missing ones are made.

        On a CPU these are others than before, where there are more: where a set lies in memory makes the same call up
        to a third slower in one process than in another.

        An ``out=`` argument that a call has resized stays as it is: its tensor would look past a smaller storage.
        """
        self.make(count)
        self._rotate(count)
        for values, copies in zip(self._values, self._copies, strict=True):
            if values.size_bytes and count:
                copies.write(key, count)
        if self._changes_shapes:
            self.lives[:count] = self._made(count)

    def _rotate(self, count: int) -> None:
        """Have the first sets behind all others on a CPU, where each lies by itself; a graph keeps to its sets."""
        if any(isinstance(copies, _Scattered) for copies in self._copies):
            self._scatter(count)
            return
        side_by_side = any(isinstance(copies, _SideBySide) for copies in self._copies)
        if self._device.type != "cpu" or side_by_side:
            return
        self.lives = _rotated(self.lives, count)
        self._columns = [_rotated(column, count) for column in self._columns]
        for copies in self._copies:
            if isinstance(copies, _Apart):
                copies.rotate(count)

    def _scatter(self, count: int) -> None:
        """Have the first sets lie elsewhere."""
        for column, copies in zip(self._columns, self._copies, strict=True):
            if isinstance(copies, _Scattered):
                column[:count] = copies.move(count)
        self.lives[:count] = self._made(count)

    def tensors(self, count: int) -> list[torch.Tensor]:
        """Those among the arguments of the first ``count`` sets, in lists of tensors, too."""
        lives = self.lives[:count]
        return tensors_in(argument for live in lives for argument in (*live.args, *live.kwargs.values()))

    def before(self, slot: int, key: int) -> list[torch.UntypedStorage]:
        """Fresh storages with the values that one set has in a round."""
        return [values.storage(slot, key) for values in self._values]

    def record_of(self, slot: int, key: int) -> CallRecord:
        """The call of one set with the values that it has in a round."""
        return msgspec.structs.replace(
            self.record, storages=tuple([values.described(slot, key) for values in self._values])
        )


class _Values(Protocol):
    """The values of one storage in all sets and rounds."""

    size_bytes: int
    device: torch.device
    unit: torch.dtype

    def write(self, rows: torch.Tensor, key: int) -> None:
        """Write those of the first sets, a row of units each, on a device."""
        ...

    def write_each(self, targets: Sequence[torch.Tensor], key: int) -> None:
        """The same, into flat tensors of units, which may lie on a host."""
        ...

    def storage(self, slot: int, key: int) -> torch.UntypedStorage:
        """A fresh storage with those of one set."""
        ...

    def described(self, slot: int, key: int) -> Storage:
        """The same for a record."""
        ...


def _values(
    record: CallRecord,
    number: int,
    content: torch.UntypedStorage,
    variation: Variation,
    count: int,
    computing: Computing,
) -> _Values:
    storage = record.storages[number]
    if variation.how is Redraw.FIXED:
        return _FixedValues(storage, content)
    tensor = tensors_by_storage(record)[number][0]
    if variation.how is Redraw.DRAWN:
        return _DrawnValues(_drawn_from(storage, tensor, variation), content.device, computing)
    return _BankedValues(storage, tensor, content, variation, count, number)


def _drawn_from(storage: Storage, tensor: TensorValue, variation: Variation) -> GeneratedStorage:
    if isinstance(storage, GeneratedStorage):
        return storage
    assert variation.domain is not None
    return GeneratedStorage(
        len(storage),
        tensor.dtype,
        tensor.shape,
        tensor.strides,
        tensor.offset,
        variation.domain,
        variation.seed,
    )


class _FixedValues:
    """The recorded values, in every set."""

    def __init__(self, storage: Storage, content: torch.UntypedStorage) -> None:
        self._recorded = storage
        self.size_bytes, self.device = content.nbytes(), content.device
        self.unit = UNITS[_widest(self.size_bytes)]
        self._flat = flat_view(content, self.unit)

    def write(self, rows: torch.Tensor, key: int) -> None:  # noqa: ARG002 - the same in each round
        call_kernel("aten::copy_", rows, self._flat.expand_as(rows), False)

    def write_each(self, targets: Sequence[torch.Tensor], key: int) -> None:  # noqa: ARG002
        for target in targets:
            if self.device.type == "cpu":
                ctypes.memmove(target.data_ptr(), self._flat.data_ptr(), self.size_bytes)
            else:
                call_kernel("aten::copy_", target, self._flat, False)

    def storage(self, slot: int, key: int) -> torch.UntypedStorage:  # noqa: ARG002
        return self._flat.clone().untyped_storage()

    def described(self, slot: int, key: int) -> Storage:  # noqa: ARG002
        return self._recorded


class _DrawnValues:
    """Values that depend on each other: drawn from their domain again, set by set."""

    def __init__(self, recorded: GeneratedStorage, device: torch.device, computing: Computing) -> None:
        self._recorded = recorded
        self._computing = computing
        self.size_bytes, self.device = recorded.size_bytes, device
        self.unit = UNITS[_widest(self.size_bytes)]

    def write(self, rows: torch.Tensor, key: int) -> None:
        self.write_each(list(rows), key)

    def write_each(self, targets: Sequence[torch.Tensor], key: int) -> None:
        with self._computing():
            for slot, target in enumerate(targets):
                target.copy_(flat_view(self.storage(slot, key), self.unit))

    def storage(self, slot: int, key: int) -> torch.UntypedStorage:
        return generate(self.described(slot, key), self.device)

    def described(self, slot: int, key: int) -> GeneratedStorage:
        return msgspec.structs.replace(self._recorded, seed=derive_seed(self._recorded.seed, key, slot))


class _BankedValues:
    """Values that are drawn by themselves: blended of recorded ones, or chosen among them."""

    def __init__(
        self,
        storage: Storage,
        tensor: TensorValue,
        content: torch.UntypedStorage,
        variation: Variation,
        count: int,
        number: int,
    ) -> None:
        self._recorded = storage
        self._draw = partial(FreshDraw, variation.how, number, count)
        self.size_bytes, self.device = content.nbytes(), content.device
        if isinstance(storage, GeneratedStorage):
            self._bank = value_bank(storage, variation.how, count, number, device=content.device, content=content)
        elif variation.domain is not None:
            generated = _drawn_from(storage, tensor, variation)
            self._bank = value_bank(generated, variation.how, count, number, device=content.device)
        else:
            unit = unit_of(variation.how, torch_dtype(tensor.dtype))
            values = flat_view(_enough(content, torch_dtype(tensor.dtype), variation), unit)
            self._bank = ValueBank(values, len(storage) // unit.itemsize, variation.how, count, number)
        self.unit = self._bank.unit

    def write(self, rows: torch.Tensor, key: int) -> None:
        self._bank.write(rows, key)

    def write_each(self, targets: Sequence[torch.Tensor], key: int) -> None:
        self._bank.write_each(targets, key)

    def storage(self, slot: int, key: int) -> torch.UntypedStorage:
        return self._bank.storage(key, slot)

    def described(self, slot: int, key: int) -> Storage:
        if isinstance(self._recorded, GeneratedStorage):
            return msgspec.structs.replace(self._recorded, fresh=self._draw(key, slot))
        return storage_bytes(self.storage(slot, key))


def _enough(content: torch.UntypedStorage, dtype: torch.dtype, variation: Variation) -> torch.UntypedStorage:
    """The recorded values, where there are enough of them; of a small storage others between them, in any order.

    Numbers that are all the same are shrunk a little, each by another share.
    """
    is_blended = variation.how is Redraw.BLENDED
    elements = flat_view(content, dtype.to_real() if variation.shrunk or is_blended else dtype)
    generator = torch.Generator().manual_seed(0)
    if len(elements) < BANK_ELEMENTS:
        places = torch.randint(len(elements), (2, BANK_ELEMENTS), generator=generator).to(content.device)
        one, other = elements[places]
        weights = torch.rand(BANK_ELEMENTS, generator=generator, dtype=torch.float64).to(content.device)
        elements = one.lerp(other, weights.to(one.dtype)) if is_blended else one
    if variation.shrunk:
        shares = torch.rand(len(elements), generator=generator).to(content.device)
        wide = elements.double() if elements.dtype == torch.float64 else elements.float()
        elements = (wide * (1 - MOST_SHRUNK * shares)).to(elements.dtype)
    return elements.untyped_storage()


class _Apart:
    """The storages of each set for themselves: on a host, and where a call may give them another size."""

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._targets: list[torch.Tensor] = []

    def make(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of so many sets, instead of those that were made before."""
        values = self._values
        self._targets = []
        storages = [torch.UntypedStorage(values.size_bytes, device=values.device) for _ in range(count)]
        self._targets = [flat_view(storage, values.unit) for storage in storages]
        return storages

    def rotate(self, count: int) -> None:
        """Have the first sets behind all others."""
        self._targets = _rotated(self._targets, count)

    def write(self, key: int, count: int) -> None:
        """Write the values of the first ``count`` sets."""
        self._values.write_each(self._targets[:count], key)


class _Scattered:
    """The storages of each set in a place that is drawn anew for each round, in one piece of memory.

    A kernel of ranks that knew where the arguments of later calls lie could send the values of several calls in one
    message.
    """

    def __init__(self, values: _Values) -> None:
        self._values = values
        #: Twice what a storage takes: it may begin anywhere in the first half.
        self._half_bytes = -(-values.size_bytes // HOST_ALIGNED_BYTES) * HOST_ALIGNED_BYTES + SCATTERED_BYTES
        self._memory = torch.empty(0)
        self._count = 0
        self._targets: list[torch.Tensor] = []

    def make(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of so many sets, instead of those that were made before."""
        self._targets, self._memory = [], torch.empty(0)
        self._memory = torch.empty(2 * self._half_bytes * count, dtype=torch.uint8)
        self._count = count
        return self.move(count)

    def move(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of the first sets, elsewhere than before."""
        at: Callable[[int, torch.device, int], Any] = torch._C._construct_storage_from_data_pointer
        values, start = self._values, self._memory.data_ptr()
        start += -start % HOST_ALIGNED_BYTES
        steps = (self._half_bytes - HOST_ALIGNED_BYTES) // HOST_ALIGNED_BYTES
        places = [
            start + 2 * self._half_bytes * window + HOST_ALIGNED_BYTES * _RANDOM.randrange(steps)
            for window in _RANDOM.sample(range(self._count), count)
        ]
        storages = [at(place, values.device, values.size_bytes) for place in places]
        self._targets[:count] = [flat_view(storage, values.unit) for storage in storages]
        return storages

    def write(self, key: int, count: int) -> None:
        """Write the values of the first ``count`` sets."""
        self._values.write_each(self._targets[:count], key)


class _SideBySide:
    """The storages of many sets behind each other in one piece of memory, which one copy writes.

    To a kernel they are storages like any other, but for :meth:`resize_`, and as well aligned.
    """

    def __init__(self, values: _Values) -> None:
        self._values = values
        self._rows = torch.empty(0)

    def make(self, count: int) -> list[torch.UntypedStorage]:
        """Storages of so many sets, instead of those that were made before."""
        values = self._values
        pitch = -(-values.size_bytes // ALIGNED_BYTES) * ALIGNED_BYTES
        self._rows = torch.empty(0)
        memory = torch.empty(count, pitch, dtype=torch.uint8, device=values.device).view(values.unit)
        self._rows = memory[:, : values.size_bytes // values.unit.itemsize]
        at: Callable[[int, torch.device, int], Any] = torch._C._construct_storage_from_data_pointer
        return [at(row.data_ptr(), values.device, values.size_bytes) for row in memory]

    def write(self, key: int, count: int) -> None:
        """Write the values of the first ``count`` sets."""
        self._values.write(self._rows[:count], key)


def _rotated(sets: list[T], count: int) -> list[T]:
    return [*sets[count:], *sets[:count]]


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


def _widest(size_bytes: int) -> int:
    """Bytes of the largest unit that divides a storage."""
    return next(width for width in (8, 4, 2, 1) if size_bytes % width == 0)


def without_gaps(record: CallRecord) -> CallRecord:
    """The call with values between its elements, too: fresh values are made of whatever lies in a storage."""
    covering = tensors_by_storage(record)
    storages = [
        _filled(storage, covering[number][0])
        if isinstance(storage, bytes) and len({tensor.dtype for tensor in covering.get(number, ())}) == 1
        else storage
        for number, storage in enumerate(record.storages)
    ]
    return msgspec.structs.replace(record, storages=tuple(storages))


def _filled(storage: bytes, tensor: TensorValue) -> bytes:
    import numpy as np  # Slow to import; only timing needs it.

    size = item_bytes(tensor.dtype)
    elements = math.prod(tensor.shape)
    if elements * size >= len(storage) or not elements or len(storage) % size:
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
