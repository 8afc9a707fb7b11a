"""From serialized calls to live tensors and back: what a worker receives and what it returns."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import msgspec
import torch

from opsmith.calls.synthetic import generate
from opsmith.calls.transfer import LARGE_BYTES, HostBytes, storage_bytes, to_device
from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    MappingValue,
    NamedValue,
    SequenceValue,
    Storage,
    TensorValue,
    Value,
    tensor_values,
)
from opsmith.core.dtypes import TENSOR_DTYPES

_DTYPES = {short: getattr(torch, long) for short, long in TENSOR_DTYPES.items()}
_DTYPE_NAMES = {dtype: short for short, dtype in _DTYPES.items()}

CALL_DECODER = msgspec.msgpack.Decoder(CallRecord)


class LiveCall:
    """A call's arguments as tensors, on storages of their own.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        storages: the input storages in the record's order, on the call's device.
    """

    __slots__ = ("args", "kwargs", "storages")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any], storages: list[torch.UntypedStorage]) -> None:
        self.args = args
        self.kwargs = kwargs
        self.storages = storages


def rebuild(record: CallRecord, device: torch.device) -> LiveCall:
    """Make live arguments from a record; each call owns fresh copies of all storages.

    Args:
        record: the serialized call.
        device: where tensors go that the record does not place on the CPU.
    """
    return rebuild_all([record], device)[0]


def rebuild_all(records: Sequence[CallRecord], device: torch.device) -> list[LiveCall]:
    """:func:`rebuild` for several calls, with one copy to the device for all storages that are not large.

    Generated storages are drawn where they are to be, one after another.
    """
    storages = make_storages(records, device)
    return [live_call(record, own, device) for record, own in zip(records, storages, strict=True)]


def live_call(record: CallRecord, storages: list[torch.UntypedStorage], device: torch.device) -> LiveCall:
    """Make live arguments that look at the given storages, which have the record's order.

    An ``out=`` that is an argument too, as in ``cat((x, y), out=x)``, is that very tensor: resizing it resizes both.
    """
    args = tuple([_decode(a, storages, device) for a in record.args])
    kwargs = {name: _decode(value, storages, device) for name, value in record.kwargs.items()}
    for name, value in record.kwargs.items():
        same = _same_tensor(value, record.args, args) if isinstance(value, TensorValue) else None
        if same is not None:
            kwargs[name] = same
    return LiveCall(args, kwargs, storages)


def _same_tensor(wanted: TensorValue, values: Sequence[Value], live: Sequence[Any]) -> torch.Tensor | None:
    """The live tensor whose value among ``values``, sequences looked through, is the one wanted."""
    for value, made in zip(values, live, strict=True):
        if isinstance(value, SequenceValue):
            inner = _same_tensor(wanted, value.items, made)
            if inner is not None:
                return inner
        elif value == wanted:
            assert isinstance(made, torch.Tensor)
            return made
    return None


def content_of(storage: Storage, device: torch.device) -> bytes:
    """A storage's content as bytes; what is generated is generated on ``device``."""
    return storage if isinstance(storage, bytes) else storage_bytes(generate(storage, device))


def make_storages(records: Sequence[CallRecord], device: torch.device) -> list[list[torch.UntypedStorage]]:
    """Fresh storages for several calls, each on the device where its record wants it."""
    if device.type == "cpu":
        return [[_host_storage(storage) for storage in record.storages] for record in records]
    on_host = [_on_host(record) for record in records]
    moving = [
        storage
        for record, stay in zip(records, on_host, strict=True)
        for i, storage in enumerate(record.storages)
        if i not in stay and isinstance(storage, bytes) and len(storage) <= LARGE_BYTES
    ]
    together = torch.frombuffer(bytearray(b"".join(moving)) or bytearray(1), dtype=torch.uint8).to(device)
    storages: list[list[torch.UntypedStorage]] = []
    start = 0
    for record, stay in zip(records, on_host, strict=True):
        own = []
        for number, storage in enumerate(record.storages):
            if number in stay:
                own.append(_host_storage(storage))
            elif isinstance(storage, bytes) and len(storage) > LARGE_BYTES:
                own.append(to_device(storage, device).untyped_storage())
            elif isinstance(storage, bytes):
                # A storage of its own: a slice of the shared one would alias its neighbours.
                own.append(together[start : start + len(storage)].clone().untyped_storage())
                start += len(storage)
            else:
                own.append(generate(storage, device))
        storages.append(own)
    return storages


def _host_storage(storage: Storage) -> torch.UntypedStorage:
    if not isinstance(storage, bytes):
        return generate(storage, torch.device("cpu"))
    on_host = torch.UntypedStorage(len(storage))
    if storage:
        ctypes.memmove(on_host.data_ptr(), storage, len(storage))
    return on_host


def _on_host(record: CallRecord) -> set[int]:
    """Storages that the record itself places on the CPU, whatever the run's device."""
    return {t.storage for t in tensor_values((*record.args, *record.kwargs.values())) if t.device == "cpu"}


def _decode(value: Value, storages: list[torch.UntypedStorage], device: torch.device) -> Any:
    if isinstance(value, TensorValue):
        return _decode_tensor(value, storages[value.storage])
    if isinstance(value, SequenceValue):
        items = [_decode(v, storages, device) for v in value.items]
        return tuple(items) if value.is_tuple else items
    if isinstance(value, NamedValue):
        if value.kind == "device":
            return torch.device("cpu") if value.name == "cpu" else device
        return getattr(torch, value.name)
    if isinstance(value, ComplexValue):
        return complex(value.real, value.imag)
    if isinstance(value, MappingValue):
        return {name: _decode(v, storages, device) for name, v in value.items.items()}
    return value


def _decode_tensor(value: TensorValue, storage: torch.UntypedStorage) -> torch.Tensor:
    tensor = torch.empty(0, dtype=_DTYPES[value.dtype], device=storage.device)
    tensor.set_(storage, value.offset, value.shape, value.strides)
    if value.is_conj:
        tensor = torch._conj(tensor)
    if value.is_neg:
        tensor = torch._neg_view(tensor)
    return tensor


def element_bytes(tensor: torch.Tensor) -> bytes:
    """A tensor's elements in row-major order, conjugation and negation applied, as bytes."""
    memory = HostBytes()
    memory.add_elements(tensor)
    return memory.collect()[0]


def tensor_from_bytes(data: bytes, dtype: str, shape: Sequence[int]) -> torch.Tensor:
    """The inverse of :func:`element_bytes`, on the CPU.

    Raises:
        ValueError: the number of bytes does not fit dtype and shape.
    """
    tensor = torch.empty(tuple(shape), dtype=_DTYPES[dtype])
    if tensor.numel() * tensor.element_size() != len(data):
        raise ValueError(f"{len(data)} bytes do not make a {dtype} tensor of shape {tuple(shape)}")
    if data:
        ctypes.memmove(tensor.data_ptr(), data, len(data))
    return tensor


def item_bytes(dtype: str) -> int:
    """Bytes of one element of a dtype, by its short name."""
    itemsize: int = _DTYPES[dtype].itemsize
    return itemsize


def dtype_name(dtype: torch.dtype) -> str:
    """The short name, or torch's own for a dtype that records do not carry."""
    return _DTYPE_NAMES.get(dtype, str(dtype).removeprefix("torch."))
