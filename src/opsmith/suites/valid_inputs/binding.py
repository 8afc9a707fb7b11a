"""A traced call by the names of its schema."""

from __future__ import annotations

import math
from typing import NamedTuple, TypeGuard

from opsmith.aten.renames import misfit
from opsmith.aten.schemas import overload
from opsmith.core.case import SequenceValue, TensorValue, Value
from opsmith.core.trace import TracedCall


class CannotRebuild(Exception):
    """A traced call for whose tensors no valid values can be given; the message says why."""


class ArgumentSlot(NamedTuple):
    """A tensor of a call and the argument that it is.

    Attributes:
        name: of the argument.
        number: position in the argument's list of tensors; 0 where it is no list.
        tensor: its dtype, shape and strides.
    """

    name: str
    number: int
    tensor: TensorValue

    @property
    def own_shape(self) -> tuple[int, ...]:
        """The tensor's shape without what it repeats: an expanded dimension is one element, seen many times."""
        sizes = zip(self.tensor.shape, self.tensor.strides, strict=True)
        return tuple([min(size, 1) if stride == 0 else size for size, stride in sizes])


class BoundCall:
    """The arguments of a traced call by name, without the schema's defaults filled in.

    Attributes:
        op: the overload.
        stem: see :func:`stem_of`.
        slots: its tensors in the order of their storages.

    Raises:
        CannotRebuild: torch has no such overload, or the call does not fit its schema.
    """

    def __init__(self, call: TracedCall) -> None:
        self.op = call.op
        self.stem = stem_of(call.op)
        self._arguments = _bind(call)
        slots = [slot for name, value in self._arguments.items() for slot in _slots(name, value)]
        self.slots = sorted(slots, key=lambda slot: slot.tensor.storage)

    def value(self, name: str) -> Value:
        """An argument, or None where the call leaves it out."""
        return self._arguments.get(name)

    def tensor(self, name: str) -> TensorValue | None:
        """An argument that is a tensor, or None."""
        value = self.value(name)
        return value if isinstance(value, TensorValue) else None

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor argument.

        Raises:
            CannotRebuild: it is no tensor.
        """
        value = self.value(name)
        if not isinstance(value, TensorValue):
            raise CannotRebuild(f"{self.op} was traced without the tensor `{name}`")
        return value.shape

    def size(self, name: str, dim: int) -> int:
        """Size of a tensor argument along a dimension, which may count from the end; 1 if it has none."""
        shape = self.shape(name)
        if not shape:
            return 1
        if not -len(shape) <= dim < len(shape):
            raise CannotRebuild(f"{self.op}: `{name}` has no dimension {dim}")
        return shape[dim]

    def elements(self, name: str) -> int:
        """Number of elements of a tensor argument."""
        return math.prod(self.shape(name))

    def scalar(self, name: str) -> float | None:
        """An argument that is a number, or None."""
        value = self.value(name)
        return value if _is_integer(value) or isinstance(value, float) else None

    def number(self, name: str) -> float | None:
        """An argument that is a finite number, or None."""
        value = self.scalar(name)
        return value if value is not None and math.isfinite(value) else None

    def integer(self, name: str, default: int = 0) -> int:
        """An integer argument, or the schema's default where the call leaves it out."""
        value = self.value(name)
        return value if _is_integer(value) else default

    def flag(self, name: str) -> bool:
        """A bool argument, False where the call leaves it out."""
        return self.value(name) is True

    def integers(self, name: str) -> tuple[int, ...]:
        """An argument that is a list of integers or one of them; empty where the call leaves it out."""
        value = self.value(name)
        items = value.items if isinstance(value, SequenceValue) else (value,)
        return tuple([item for item in items if _is_integer(item)])


def _is_integer(value: Value) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def stem_of(op: str) -> str:
    """The packet of an overload without what marks a variant: ``add`` for ``_foreach_add_.List``."""
    stem = op.rpartition(".")[0].removeprefix("_foreach_")
    return stem[:-1] if stem.endswith("_") and not stem.endswith("__") else stem


def _bind(call: TracedCall) -> dict[str, Value]:
    problem = misfit(call)
    if problem is not None:
        raise CannotRebuild(problem)
    positional = [argument.name for argument in overload(call.op)._schema.arguments if not argument.kwarg_only]
    return {**dict(zip(positional, call.args, strict=False)), **call.kwargs}


def _slots(name: str, value: Value) -> list[ArgumentSlot]:
    items = value.items if isinstance(value, SequenceValue) else (value,)
    return [ArgumentSlot(name, number, item) for number, item in enumerate(items) if isinstance(item, TensorValue)]
