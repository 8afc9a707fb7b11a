"""The guard table of a kernel file as data: which calls a row serves, and what the compiler wrote for them."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeAlias

import msgspec

from opsmith.core.case import SequenceValue, TensorValue, Value
from opsmith.generate.inductor.conditions import Condition

#: A call's arguments by parameter, those left out included: see :mod:`.calls`.
BoundCall: TypeAlias = dict[str, Value]


class TensorPattern(msgspec.Struct, frozen=True, tag="tensor", array_like=True):
    """A tensor of one dtype, rank and class of layouts.

    Attributes:
        dtype: short name.
        empty: of each dimension whether its size is 0. Other sizes are the kernel's to take; a loop that never runs
            is treated apart by compilers.
        strides: None for row-major order. Else of each dimension the stride where it is 0 or 1, which are written into
            the kernel, and None where the kernel takes any.
    """

    dtype: str
    empty: tuple[bool, ...]
    strides: tuple[int | None, ...] | None = None

    @classmethod
    def of(cls, tensor: TensorValue) -> TensorPattern:
        """The pattern that a tensor has."""
        strides = None
        if tensor.strides != row_major(tensor.shape):
            strides = tuple(stride if stride < 2 else None for stride in tensor.strides)
        return cls(tensor.dtype, tuple(size == 0 for size in tensor.shape), strides)


class NumberPattern(msgspec.Struct, frozen=True, tag="number", array_like=True):
    """A number of one Python type, ``int`` or ``float``.

    The kernel takes it as an argument, or a condition says which value is written into the kernel.
    """

    python: str


class ConstantPattern(msgspec.Struct, frozen=True, tag="constant", array_like=True):
    """One value that is no number, which is written into the kernel."""

    value: Value


class SequencePattern(msgspec.Struct, frozen=True, tag="sequence", array_like=True):
    """A list or tuple of so many items."""

    items: tuple[Pattern, ...]


Pattern: TypeAlias = TensorPattern | NumberPattern | ConstantPattern | SequencePattern


class EmittedKernel(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel as the compiler wrote it.

    Attributes:
        name: by which the host code calls it; unique in its row.
        source: C++, Triton or Metal.
        arguments: of C++, the types of its parameters.
        helpers: what it uses and a file holds once for many: of Triton the sources of functions, of Metal the lines
            that include headers.
    """

    name: str
    source: str
    arguments: tuple[str, ...] = ()
    helpers: tuple[str, ...] = ()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a guard table.

    Attributes:
        patterns: what each parameter has to be.
        conditions: what has to hold of the sizes (``self_0``: dimension 0 of ``self``), of the strides
            (``self_stride_0``) and of the numbers (by their names) besides.
        leaves: names of the tensors and numbers among the arguments, in order; the host code is a function of them.
        host: the statements that allocate, call the kernels and return a tuple.
        kernels: in the order in which they are first called.
        returns: ``tensor``, ``tuple`` or ``list``: what the host code's tuple is to become.
    """

    patterns: dict[str, Pattern]
    conditions: tuple[str, ...]
    leaves: tuple[str, ...]
    host: tuple[str, ...]
    kernels: tuple[EmittedKernel, ...]
    returns: str

    def serves(self, call: BoundCall) -> bool:
        """Whether the guard lets a call pass."""
        if self.patterns.keys() != call.keys():
            return False
        if not all(matches(pattern, call[name]) for name, pattern in self.patterns.items()):
            return False
        values = dict(_values(call))
        return all(condition(text).holds(values) for text in self.conditions)


@functools.cache
def condition(text: str) -> Condition:
    """A condition, read once in a process."""
    return Condition(text)


def matches(pattern: Pattern, value: Value) -> bool:
    """Whether a value is what a pattern describes; numbers match their own type only."""
    match pattern, value:
        case TensorPattern(), TensorValue():
            return not (value.is_conj or value.is_neg) and pattern == TensorPattern.of(value)
        case NumberPattern(), _:
            return type(value).__name__ == pattern.python
        case ConstantPattern(), _:
            return constant_key(pattern.value) == constant_key(value)
        case SequencePattern(), SequenceValue():
            return len(pattern.items) == len(value.items) and all(map(matches, pattern.items, value.items))
    return False


def constant_key(value: Value) -> str:
    """Tells constants apart as a kernel has to."""
    if isinstance(value, SequenceValue):
        return f"[{', '.join(map(constant_key, value.items))}]"
    return f"{type(value).__name__} {value!r}"


def _values(call: Mapping[str, Value]) -> Iterator[tuple[str, float]]:
    for name, value in call.items():
        yield from named_values(name, value)


def named_values(name: str, value: Value) -> Iterator[tuple[str, float]]:
    """The sizes, strides and numbers of an argument by the names that conditions call them by."""
    if isinstance(value, TensorValue):
        yield from ((size_name(name, dim), size) for dim, size in enumerate(value.shape))
        yield from ((stride_name(name, dim), stride) for dim, stride in enumerate(value.strides))
    elif isinstance(value, SequenceValue):
        for position, item in enumerate(value.items):
            yield from named_values(f"{name}_{position}", item)
    elif isinstance(value, (int, float)):
        yield name, value


def leaf_patterns(patterns: Iterable[tuple[str, Pattern]]) -> Iterator[tuple[str, Pattern]]:
    """Patterns by the names of their arguments, those of a sequence one by one."""
    for name, pattern in patterns:
        if isinstance(pattern, SequencePattern):
            yield from leaf_patterns((f"{name}_{position}", item) for position, item in enumerate(pattern.items))
        else:
            yield name, pattern


def size_name(tensor: str, dim: int) -> str:
    """What conditions and host code call a size."""
    return f"{tensor}_{dim}"


def stride_name(tensor: str, dim: int) -> str:
    """What conditions and host code call a stride."""
    return f"{tensor}_stride_{dim}"


def row_major(shape: Sequence[int]) -> tuple[int, ...]:
    """The strides of a tensor in row-major order, in elements."""
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
