"""Calls as a person reads them: shapes, dtypes and scalars, no values."""

from __future__ import annotations

import math
import re

from opsmith.core.case import CallRecord, ComplexValue, MappingValue, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.dtypes import SHORT_NAMES

_TENSOR = re.compile(r"\bT\(\[([^\]]*)\], ([a-z]+(\d+)\w*)")
#: Of a dtype that packs numbers, how many bits an element has.
_PACKED_BITS = {"f4e2m1fnx2": 8}


def dtypes_in(text: str) -> set[str]:
    """The short names of the dtypes of the tensors in what :func:`describe` wrote."""
    return {dtype for _, dtype, _ in _TENSOR.findall(text)}


def size_in(text: str) -> tuple[int, int, int]:
    """How large a call is that :func:`describe` wrote: elements and bytes of its tensors, then characters."""
    elements, size_bytes = 0, 0
    for shape, dtype, bits in _TENSOR.findall(text):
        count = math.prod(int(size) for size in shape.split(",") if size.strip())
        elements += count
        size_bytes += count * _PACKED_BITS.get(dtype, int(bits)) // 8
    return elements, size_bytes, len(text)


def describe(record: CallRecord) -> str:
    """The arguments in one line in the trace format: ``(T([2, 3], f32), 1), {'alpha': 2}``."""
    args = ", ".join(_describe(a) for a in record.args)
    kwargs = ", ".join(f"'{name}': {_describe(value)}" for name, value in record.kwargs.items())
    return f"({args}), {{{kwargs}}}"


def _describe(value: Value) -> str:
    if isinstance(value, TensorValue):
        shape, strides = list(value.shape), tuple(value.strides)
        stride_text = "" if strides == _row_major(value.shape) else f", stride={strides}"
        return f"T({shape}, {value.dtype}{stride_text})"
    if isinstance(value, SequenceValue):
        inner = ", ".join(_describe(v) for v in value.items)
        return f"({inner})" if value.is_tuple else f"[{inner}]"
    if isinstance(value, NamedValue):
        return SHORT_NAMES.get(value.name, value.name)
    if isinstance(value, ComplexValue):
        return repr(complex(value.real, value.imag))
    if isinstance(value, MappingValue):
        return "{" + ", ".join(f"{k!r}: {_describe(v)}" for k, v in value.items.items()) + "}"
    return repr(value)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))
