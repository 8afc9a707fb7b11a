"""Recording ATen calls: what was dispatched, with the bytes of every storage before the call.

The arguments that reach ATen are recorded, not those a Python function was called with. The
storages are copied whole, so strides, offsets and arguments that share memory survive.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from opsmith.core.case import (
    CallRecord,
    ComplexValue,
    MappingValue,
    NamedValue,
    SequenceValue,
    TensorValue,
    Value,
    digest,
)
from opsmith.core.dtypes import SHORT_NAMES


class CannotRecord(Exception):
    """An argument that has no serialized form: sparse, quantized, a subclass, a generator."""


class RecordedCall:
    """One dispatched call: its op, signature, and its record if that was wanted."""

    __slots__ = ("op", "raised", "record", "signature")

    def __init__(self, op: str, signature: str, record: CallRecord | None) -> None:
        self.op = op
        self.signature = signature
        self.record = record
        self.raised = False


class Recorder(TorchDispatchMode):
    """Records every ATen call made while it is active.

    Args:
        wanted: given op and signature, says whether the serialized call is needed.
        value_classes: make the signature tell apart inputs with NaN or infinities, which have the
            shape of ordinary ones but ask another question.
    """

    def __init__(self, wanted: Callable[[str, str], bool], *, value_classes: bool = False) -> None:
        super().__init__()
        self.calls: list[RecordedCall] = []
        self.unrecordable: set[str] = set()
        self._wanted = wanted
        self._value_classes = value_classes

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
        if call is not None and self._is_plain(call.op, result):
            self.calls.append(call)
        return result

    def _is_plain(self, op: str, result: Any) -> bool:
        try:
            for leaf in tree_leaves(result):
                if isinstance(leaf, torch.Tensor):
                    _check_plain(leaf, role="a result")
        except CannotRecord as exc:
            self.unrecordable.add(f"{op}: {exc}")
            return False
        return True

    def _record(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> RecordedCall | None:
        op = op_name(func)
        try:
            signed = signature(op, args, kwargs, value_classes=self._value_classes)
            record = record_call(op, args, kwargs) if self._wanted(op, signed) else None
        except CannotRecord as exc:
            self.unrecordable.add(f"{op}: {exc}")
            return None
        return RecordedCall(op, signed, record)


_OP_NAMES: dict[Any, str] = {}


def op_name(func: Any) -> str:
    """``packet.overload`` of an OpOverload."""
    name = _OP_NAMES.get(func)
    if name is None:
        schema = func._schema
        name = _OP_NAMES[func] = f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}"
    return name


_SIGNATURES: dict[Any, str] = {}


def signature(op: str, args: Sequence[Any], kwargs: dict[str, Any], *, value_classes: bool = False) -> str:
    """Name everything about a call except its tensors' values.

    Two calls with equal signatures have the same op, nesting, scalars, dtypes, shapes, strides,
    storage offsets and sharing of storages.

    Raises:
        CannotRecord: an argument has no serialized form.
    """
    storages: dict[int, int] = {}
    key = (
        op,
        tuple([_sign(a, storages, value_classes) for a in args]),
        tuple([(k, _sign(v, storages, value_classes)) for k, v in kwargs.items()]),
    )
    found = _SIGNATURES.get(key)
    if found is None:
        found = _SIGNATURES[key] = digest(repr(key).encode())
    return found


def _sign(value: Any, storages: dict[int, int], value_classes: bool) -> Any:
    if isinstance(value, torch.Tensor):
        _check_plain(value)
        # Keyed by the storage object, not its address: empty storages all lie at zero.
        number = storages.setdefault(value.untyped_storage()._cdata, len(storages))
        signed = (
            number,
            value.dtype,
            tuple(value.shape),
            value.stride(),
            value.storage_offset(),
            value.device.type,
            value.is_conj(),
            value.is_neg(),
        )
        return (*signed, _value_class(value)) if value_classes else signed
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *[_sign(v, storages, value_classes) for v in value])
    if isinstance(value, dict):
        return tuple([(k, _sign(v, storages, value_classes)) for k, v in value.items()])
    # 1 and True and 1.0 are equal as keys but not as arguments; a NaN must equal itself.
    return (type(value).__name__, repr(value))


def _value_class(tensor: torch.Tensor) -> tuple[bool, bool] | None:
    if not (tensor.is_floating_point() or tensor.is_complex()) or tensor.numel() == 0:
        return None
    return bool(tensor.isnan().any()), bool(tensor.isinf().any())


def _check_plain(tensor: torch.Tensor, role: str = "an argument") -> None:
    if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        raise CannotRecord(f"{role} is a {type(tensor).__name__}")
    if tensor.layout is not torch.strided or tensor.is_quantized or tensor.is_nested:
        raise CannotRecord(f"{role} has layout {tensor.layout}")
    if tensor._is_zerotensor() or tensor.is_meta or torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        raise CannotRecord(f"{role} has no storage of its own")
    if tensor.dtype not in _DTYPE_NAMES:
        raise CannotRecord(f"{role} has dtype {tensor.dtype}")


_DTYPE_NAMES = {getattr(torch, long): short for long, short in SHORT_NAMES.items()}


def record_call(op: str, args: Sequence[Any], kwargs: dict[str, Any]) -> CallRecord:
    """Serialize a call: the argument tree and a copy of the bytes of every distinct storage.

    Raises:
        CannotRecord: an argument has no serialized form.
    """
    storages: dict[int, int] = {}
    contents: list[bytes] = []

    def encode(value: Any) -> Value:
        if isinstance(value, torch.Tensor):
            return encode_tensor(value)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, complex):
            return ComplexValue(value.real, value.imag)
        if isinstance(value, (list, tuple)):
            return SequenceValue(tuple([encode(v) for v in value]), isinstance(value, tuple))
        if isinstance(value, dict):
            return MappingValue({str(k): encode(v) for k, v in value.items()})
        if isinstance(value, torch.dtype):
            return NamedValue("dtype", str(value).removeprefix("torch."))
        if isinstance(value, torch.device):
            return NamedValue("device", str(value))
        if isinstance(value, (torch.layout, torch.memory_format)):
            return NamedValue(type(value).__name__, str(value).removeprefix("torch."))
        raise CannotRecord(f"an argument is a {type(value).__name__}")

    def encode_tensor(tensor: torch.Tensor) -> TensorValue:
        _check_plain(tensor)
        storage = tensor.untyped_storage()
        number = storages.get(storage._cdata)
        if number is None:
            number = storages[storage._cdata] = len(contents)
            contents.append(storage_bytes(storage))
        return TensorValue(
            number,
            _DTYPE_NAMES[tensor.dtype],
            tuple(tensor.shape),
            tensor.stride(),
            tensor.storage_offset(),
            tensor.device.type,
            tensor.is_conj(),
            tensor.is_neg(),
        )

    encoded_args = tuple([encode(a) for a in args])
    encoded_kwargs = {name: encode(value) for name, value in kwargs.items()}
    return CallRecord(op=op, args=encoded_args, kwargs=encoded_kwargs, storages=tuple(contents))


def storage_bytes(storage: torch.UntypedStorage) -> bytes:
    """A copy of a storage's content, from any device."""
    on_host = storage if storage.device.type == "cpu" else storage.cpu()
    return ctypes.string_at(on_host.data_ptr(), on_host.nbytes()) if on_host.nbytes() else b""
