"""A serialized call read by its schema: which argument is which, and which are written."""

from __future__ import annotations

from collections.abc import Iterable

from opsmith.aten.arguments import overload_of
from opsmith.core.case import CallRecord, ComplexValue, SequenceValue, TensorValue, Value, tensor_values
from opsmith.core.op import OpSchema

_INTEGRAL = frozenset(["i64", "i32", "i16", "i8", "u8", "b8", "u64", "u32", "u16"])


class BoundCall:
    """The arguments of one call by name.

    Args:
        record: the serialized call.
        schema: of its op.

    Attributes:
        tensors: name -> its tensors, in order; arguments without any are not among them.
        scalars: name -> its numbers, of arguments that are scalars by type or stand for a tensor; flags,
            sizes and dimensions are not among them.
        written: names of arguments that the op writes to.
        only_written: those of them that are ``out=`` arguments, whose content means nothing.
    """

    def __init__(self, record: CallRecord, schema: OpSchema) -> None:
        self.tensors: dict[str, list[TensorValue]] = {}
        self.scalars: dict[str, list[float | complex]] = {}
        self.written: set[str] = set()
        self.only_written: set[str] = set()
        self._values: dict[str, Value] = {}
        for position, argument in enumerate(overload_of(schema)._schema.arguments):
            if argument.alias_info is not None and argument.alias_info.is_write:
                self.written.add(argument.name)
                if argument.is_out:
                    self.only_written.add(argument.name)
            is_positional = position < len(record.args) and not argument.kwarg_only
            if is_positional or argument.name in record.kwargs:
                value = record.args[position] if is_positional else record.kwargs[argument.name]
                self._take(argument.name, str(argument.type), value)

    def _take(self, name: str, type_name: str, value: Value) -> None:
        self._values[name] = value
        if tensors := tensor_values((value,)):
            self.tensors[name] = tensors
        elif any(word in type_name for word in ("number", "float", "complex", "Tensor")):
            self.scalars[name] = list(_numbers((value,)))

    def whole(self, name: str) -> int | None:
        """A whole number that the call passes as ``name``, or None."""
        value = self._values.get(name)
        return value if isinstance(value, int) else None

    def wholes(self, name: str) -> tuple[int, ...]:
        """The whole numbers of a list that the call passes as ``name``; a single one is a list of itself."""
        value = self._values.get(name)
        items = value.items if isinstance(value, SequenceValue) else (value,)
        return tuple(item for item in items if isinstance(item, int))

    def positions(self, name: str) -> frozenset[int]:
        """Where the list of tensors that the call passes as ``name`` holds one, not None."""
        value = self._values.get(name)
        items = value.items if isinstance(value, SequenceValue) else ()
        return frozenset(number for number, item in enumerate(items) if isinstance(item, TensorValue))

    def is_set(self, name: str) -> bool:
        """Whether the call passes ``name``, and not None."""
        return self._values.get(name) is not None

    @property
    def inputs(self) -> list[TensorValue]:
        """Every tensor that is not written to."""
        return [tensor for name, own in self.tensors.items() if name not in self.written for tensor in own]


def is_integral(tensor: TensorValue) -> bool:
    """Whether a tensor holds whole numbers or truth values."""
    return tensor.dtype in _INTEGRAL


def _numbers(values: Iterable[Value]) -> Iterable[float | complex]:
    for value in values:
        if isinstance(value, SequenceValue):
            yield from _numbers(value.items)
        elif isinstance(value, ComplexValue):
            yield complex(value.real, value.imag)
        elif isinstance(value, int | float):
            yield value
