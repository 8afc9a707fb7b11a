"""Classes of calls: what is faster for one call of a class is taken to be faster for all.

Dtypes, orders of strides and arguments that choose between algorithms are told apart exactly, sizes by powers of two.
A size that is no multiple of 8 is told apart from one that is: accesses of 16 bytes need it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.core.dtypes import TENSOR_SHORT_NAMES

#: Smaller sizes, such as those of convolution kernels, are told apart exactly.
_EXACT = 8
#: Lists of more tensors are told apart by their number and size alone.
_LISTED = 4
_PLAIN = (bool, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format)


def class_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """The class of a call in words, such as ``bf16[4096,8192], bf16[8192], 1``; None if a value is of no known type."""
    words = [_word(value) for value in args]
    for name, value in kwargs.items():
        word = _word(value)
        words.append(None if word is None else f"{name}={word}")
    return None if None in words else ", ".join(word for word in words if word is not None)


def _word(value: Any) -> str | None:
    kind = type(value)
    if kind is Tensor or kind is Parameter:
        return _tensor(value)
    if kind in _PLAIN:
        return str(value)
    if kind is int:
        return _size(value)
    if kind is float:
        return str(value) if value in (0.0, 1.0) else "float"
    if kind is list or kind is tuple:
        return _list(value)
    return None


def _list(values: Sequence[Any]) -> str | None:
    if len(values) > _LISTED and all(isinstance(value, Tensor) for value in values):
        elements = sum(value.numel() for value in values)
        dtypes = _joined(sorted({_dtype(value) for value in values}))
        layout = "" if all(value.is_contiguous() for value in values) else " strided"
        return f"[{_size(len(values))} of {dtypes}, {_size(elements)} elements{layout}]"
    words = [_word(value) for value in values]
    return None if None in words else f"[{_joined(word for word in words if word is not None)}]"


def _tensor(tensor: Tensor) -> str:
    sizes = _joined(map(_size, tensor.shape))
    return f"{_dtype(tensor)}[{sizes}]{_layout(tensor)}"


def _layout(tensor: Tensor) -> str:
    """Nothing for a contiguous tensor, else its dimensions from the outermost to the innermost one."""
    if tensor.is_contiguous():
        return ""
    strides = tensor.stride()
    dims = [dim for dim, size in enumerate(tensor.shape) if size > 1]
    order = sorted(dims, key=lambda dim: (-strides[dim], dim))
    expanded = " expanded" if any(strides[dim] == 0 for dim in dims) else ""
    spanned = 1 + sum((tensor.shape[dim] - 1) * strides[dim] for dim in dims)
    gaps = " gaps" if spanned > tensor.numel() else ""
    return f"@{_joined(map(str, order))}{expanded}{gaps}"


def _dtype(tensor: Tensor) -> str:
    name = str(tensor.dtype).removeprefix("torch.")
    return TENSOR_SHORT_NAMES.get(name, name)


def _size(size: int) -> str:
    if abs(size) <= _EXACT:
        return str(size)
    rounded = 1 << (abs(size) - 1).bit_length()
    return f"{'-' if size < 0 else ''}{rounded}{'' if size % _EXACT == 0 else '~'}"


def _joined(words: Iterable[str]) -> str:
    return ",".join(words)
