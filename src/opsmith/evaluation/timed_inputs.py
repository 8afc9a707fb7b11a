"""The inputs of timed calls: many sets, rewritten between blocks, so that no call meets what an earlier one met.

A set's values are the recorded ones, rotated within each floating-point storage by as many elements as
belong to the set and the round. Both sides of a pair rotate alike, and the referee can make the values of
any timed call again. What holds no floating-point number (indices, masks, sizes) stays as it is.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence

import msgspec
import torch

from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue, storage_size, tensor_values
from opsmith.core.domains import IndependentDomain
from opsmith.evaluation.generated import flat_view
from opsmith.evaluation.inputs import content_of, item_bytes, live_call, make_storages

#: Elements by which one set is rotated further than the one before; a prime.
STRIDE = 13
_FLOATING = ("f16", "bf16", "f32", "f64", "c32", "c64", "c128")


class TimedInputs:
    """``count`` sets of one call's inputs; starts with the values of round 0.

    Args:
        record: the call.
        device: where it runs.
        count: how many sets.
        varied: rotate the values; False where the op refuses rotated ones.
    """

    def __init__(self, record: CallRecord, device: torch.device, count: int, *, varied: bool) -> None:
        self.record = record = _without_gaps(record)
        self._device = device
        self._varied = varied
        self._steps = _element_bytes(record)
        self._pristine = make_storages([record], device)[0]
        self.lives = [live_call(record, [storage.clone() for storage in self._pristine], device) for _ in range(count)]
        # Fetched here, past whatever may be put in the dispatcher's tables later.
        self._copy_all = torch.library.get_kernel("aten::_foreach_copy_", device.type.upper())
        self.renew(0)

    def renew(self, round_number: int) -> None:
        """Write the values of a round into every set."""
        targets: list[torch.Tensor] = []
        sources: list[torch.Tensor] = []
        for slot, live in enumerate(self.lives):
            for number, storage in enumerate(live.storages):
                shift = self._shift(slot, number, round_number)
                self._add_parts(storage, self._pristine[number], shift, targets, sources)
        self._copy(targets, sources)

    def _add_parts(
        self,
        storage: torch.UntypedStorage,
        pristine: torch.UntypedStorage,
        shift: int,
        targets: list[torch.Tensor],
        sources: list[torch.Tensor],
    ) -> None:
        size = pristine.nbytes()
        if storage.nbytes() != size:
            storage.resize_(size)  # An ``out=`` argument was resized.
        if not size:
            return
        target, source = flat_view(storage, torch.uint8), flat_view(pristine, torch.uint8)
        targets.append(target[: size - shift])
        sources.append(source[shift:])
        if shift:
            targets.append(target[size - shift :])
            sources.append(source[:shift])

    def _copy(self, targets: Sequence[torch.Tensor], sources: Sequence[torch.Tensor]) -> None:
        if not targets:
            return
        if self._device.type == "cpu":
            for target, source in zip(targets, sources, strict=True):
                ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel())
            return
        on_device = [
            (t, s) for t, s in zip(targets, sources, strict=True) if t.device == s.device != torch.device("cpu")
        ]
        keys = torch._C._dispatch_keys(on_device[0][0]) if on_device else None
        if keys is not None:
            self._copy_all.call_boxed(keys, [t for t, _ in on_device], [s for _, s in on_device])
        for target, source in zip(targets, sources, strict=True):
            if target.device.type == "cpu":
                ctypes.memmove(target.data_ptr(), source.data_ptr(), source.numel())

    def _shift(self, slot: int, storage: int, round_number: int) -> int:
        """Bytes by which a set's storage is rotated in a round."""
        step = self._steps[storage]
        size = self._pristine[storage].nbytes()
        if not self._varied or step is None or size < 2 * step:
            return 0
        return (1 + slot + round_number * len(self.lives)) * STRIDE % (size // step) * step

    def record_of(self, slot: int, round_number: int) -> CallRecord:
        """The call of one set with the values that it has in a round, as bytes."""
        storages = []
        for number, storage in enumerate(self.record.storages):
            content, shift = content_of(storage, self._device), self._shift(slot, number, round_number)
            storages.append(content[shift:] + content[:shift])
        return msgspec.structs.replace(self.record, storages=tuple(storages))

    def memory_bytes(self) -> int:
        """Bytes of one set."""
        return sum(map(storage_size, self.record.storages))


def _without_gaps(record: CallRecord) -> CallRecord:
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
