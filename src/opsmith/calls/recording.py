"""Recording ATen calls: what was dispatched, with the bytes of every storage before the call.

The arguments that reach ATen are recorded, not those a Python function was called with. The
storages are copied whole, so strides, offsets and arguments that share memory survive.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.aten.low_precision import readable
from opsmith.calls.transfer import HostBytes
from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    MappingValue,
    NamedValue,
    SequenceValue,
    TensorValue,
    Value,
    digest,
    tensor_values,
)
from opsmith.core.dtypes import TENSOR_DTYPES


class CannotRecord(Exception):
    """An argument that has no serialized form: sparse, quantized, a subclass, a generator."""


class RecordedCall:
    """One dispatched call: its op, signature, and its record if that was wanted."""

    __slots__ = ("op", "pending", "raised", "record", "signature")

    def __init__(self, op: str, signature: str, pending: PendingRecord | None) -> None:
        self.op = op
        self.signature = signature
        self.pending = pending
        self.record: CallRecord | None = None
        self.raised = False


class CallRecorder(TorchDispatchMode):
    """Records every ATen call made while it is active; ``calls`` is complete when it is left.

    Args:
        wanted: given op and signature, says whether the serialized call is needed.
        device: device type that the suite is about: calls without a tensor there are left out.
        memory: takes the values, if others share it: ``calls`` is complete after :meth:`resolve`.
        value_classes: make the signature tell apart inputs with NaN or infinities, which have the
            shape of ordinary ones but ask another question.
    """

    def __init__(
        self,
        wanted: Callable[[str, str], bool],
        *,
        device: str = "cpu",
        value_classes: bool = False,
        memory: HostBytes | None = None,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[RecordedCall] = []
        self.unrecordable: set[str] = set()
        self._wanted = wanted
        self._device_type = device.partition(":")[0]
        self._value_classes = value_classes
        self._memory = memory or HostBytes()
        self._is_shared = memory is not None

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func.namespace != "aten":
            return func(*args, **kwargs)
        call = self._record(func, args, kwargs)
        try:
            result = func(*args, **kwargs)
        except Exception:
            if call is not None:
                call.raised = True
                self.calls.append(call)
            raise
        if call is not None and self._is_recordable(call.op, result) and self._on_device((args, kwargs, result)):
            self.calls.append(call)
        return result

    def __exit__(self, *exception: object) -> None:
        super().__exit__(*exception)  # type: ignore[no-untyped-call]
        if not self._is_shared:
            self.resolve(self._memory.collect())

    def resolve(self, contents: Mapping[int, bytes]) -> None:
        """Give the calls their records.

        Args:
            contents: of every piece of the memory.
        """
        for call in self.calls:
            if call.pending is not None:
                record = call.pending.resolve(contents)
                if self._value_classes:
                    call.signature = digest(f"{call.signature} {_value_classes(record)}".encode())
                if not self._value_classes or self._wanted(call.op, call.signature):
                    call.record = record

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedCall | None:
        op = op_name(func)
        try:
            signed = signature(op, args, kwargs)
            # The class of the values is known only when they are on the host.
            needed = self._value_classes or self._wanted(op, signed)
            pending = PendingRecord(op, args, kwargs, self._memory) if needed else None
        except CannotRecord as exc:
            self.unrecordable.add(f"{op}: {exc}")
            return None
        return RecordedCall(op, signed, pending)

    def _is_recordable(self, op: str, result: Any) -> bool:
        try:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    _check_plain(leaf, role="a result")
        except CannotRecord as exc:
            self.unrecordable.add(f"{op}: {exc}")
            return False
        return True

    def _on_device(self, values: Any) -> bool:
        if self._device_type == "cpu":
            return True
        return any(isinstance(v, torch.Tensor) and v.device.type == self._device_type for v in tree_leaves(values))


_OP_NAMES: dict[Any, str] = {}


def op_name(func: Any) -> str:
    """``packet.overload`` of an OpOverload."""
    name = _OP_NAMES.get(func)
    if name is None:
        schema = func._schema
        name = _OP_NAMES[func] = f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
    return name


_SIGNATURES: dict[Any, str] = {}


def signature(op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Name everything about a call except its tensors' values.

    Two calls with equal signatures have the same op, nesting, scalars, dtypes, shapes, strides,
    storage offsets and sharing of storages.

    Raises:
        CannotRecord: an argument has no serialized form.
    """
    storages: dict[int, int] = {}
    key = (
        op,
        tuple([_sign(a, storages) for a in args]),
        tuple([(k, _sign(v, storages)) for k, v in kwargs.items()]),
    )
    found = _SIGNATURES.get(key)
    if found is None:
        found = _SIGNATURES[key] = digest(repr(key).encode())
    return found


def _sign(value: Any, storages: dict[int, int]) -> Any:
    if isinstance(value, torch.Tensor):
        _check_plain(value)
        # Keyed by the storage object, not its address: empty storages all lie at zero.
        number = storages.setdefault(value.untyped_storage()._cdata, len(storages))
        return (
            number,
            value.dtype,
            tuple(value.shape),
            value.stride(),
            value.storage_offset(),
            value.device.type,
            value.is_conj(),
            value.is_neg(),
        )
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[_sign(v, storages) for v in value])
    if isinstance(value, dict):
        return tuple([(k, _sign(v, storages)) for k, v in value.items()])
    # 1 and True and 1.0 are equal as keys but not as arguments; a NaN must equal itself.
    return (type(value).__name__, repr(value))


def _value_classes(record: CallRecord) -> list[tuple[bool, bool]]:
    """For each floating storage whether it holds NaN and infinities."""
    dtype_of = {tensor.storage: tensor.dtype for tensor in tensor_values((*record.args, *record.kwargs.values()))}
    classes = []
    for number, content in enumerate(record.storages):
        dtype = getattr(torch, TENSOR_DTYPES[dtype_of[number]])
        if isinstance(content, bytes) and content and (dtype.is_floating_point or dtype.is_complex):
            values = readable(torch.frombuffer(bytearray(content), dtype=dtype))
            classes.append((bool(values.isnan().any()), bool(values.isinf().any())))
    return classes


def _check_plain(tensor: torch.Tensor, role: str = "an argument") -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise CannotRecord(f"{role} is a {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise CannotRecord(f"{role} has layout {tensor.layout}")
    if tensor._is_zerotensor() or tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise CannotRecord(f"{role} has no storage of its own")
    if tensor.dtype not in _DTYPE_NAMES:
        raise CannotRecord(f"{role} has dtype {tensor.dtype}")


_DTYPE_NAMES = {getattr(torch, long): short for short, long in TENSOR_DTYPES.items()}


class PendingRecord:
    """A call whose argument tree is serialized and whose storages are on their way to the host.

    Args:
        op: name of the overload.
        args: positional arguments.
        kwargs: keyword arguments.
        memory: takes a snapshot of every distinct storage.

    Raises:
        CannotRecord: an argument has no serialized form.
    """

    def __init__(self, op: str, args: Sequence[Any], kwargs: dict[str, Any], memory: HostBytes) -> None:
        self._memory = memory
        self._numbers: dict[int, int] = {}
        self._pieces: list[int] = []
        self._op = op
        self._args = tuple([self._encode(a) for a in args])
        self._kwargs = {name: self._encode(value) for name, value in kwargs.items()}

    def resolve(self, contents: Mapping[int, bytes]) -> CallRecord:
        """The record, given the content of every piece of the memory."""
        storages = tuple([contents[piece] for piece in self._pieces])
        return CallRecord(op=self._op, args=self._args, kwargs=self._kwargs, storages=storages)

    def _encode(self, value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            return self._encode_tensor(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, complex):
            return ComplexValue(value.real, value.imag)
        if isinstance(value, (list, tuple)):
            return SequenceValue(tuple([self._encode(v) for v in value]), isinstance(value, tuple))
        if isinstance(value, dict):
            return MappingValue({str(k): self._encode(v) for k, v in value.items()})
        if isinstance(value, torch.dtype):
            return NamedValue("dtype", str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return NamedValue("device", str(value))
        if isinstance(value, (torch.layout, torch.memory_format)):
            return NamedValue(type(value).__name__, str(value).removeprefix("torch."))
        raise CannotRecord(f"an argument is a {type(value).__name__}")

    def _encode_tensor(self, tensor: torch.Tensor) -> TensorValue:
        storage = tensor.untyped_storage()
        number = self._numbers.get(storage._cdata)
        if number is None:
            number = self._numbers[storage._cdata] = len(self._pieces)
            self._pieces.append(self._memory.add_storage(storage))
        return TensorValue(
            number,
            _DTYPE_NAMES[tensor.dtype],
            tuple(tensor.shape),
            tensor.stride(),
            int(tensor.storage_offset()),
            tensor.device.type,
            tensor.is_conj(),
            tensor.is_neg(),
        )
