"""The signature of a call: what has to be equal for a plan of one call to serve another."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

#: The tensors of a call and their first bytes.
Tensors = list[Tensor]
Addresses = list[int]
Signature = tuple[Any, ...]

#: Values of these types equal each other only where they are the same argument.
_PLAIN = frozenset({bool, int, str, type(None), torch.dtype, torch.device, torch.layout, torch.memory_format})


def signature_of(
    args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Tensors, addresses: Addresses
) -> Signature | None:
    """The signature of a call, or None where an argument is of a type that no plan knows.

    Args:
        args: by position.
        kwargs: by name.
        tensors: empty; gets those of the call in the order of its arguments, those in lists included.
        addresses: empty; gets theirs.
    """
    words: list[Any] = [torch.get_default_dtype(), torch.are_deterministic_algorithms_enabled()]
    if not _read(args, words, tensors, addresses):
        return None
    if kwargs:
        words += kwargs
        if not _read(kwargs.values(), words, tensors, addresses):
            return None
    if len({*addresses}) < len(addresses):
        # Perhaps an argument is given twice, which is another call than two arguments.
        firsts: dict[int, int] = {}
        words += [firsts.setdefault(id(tensor), n) for n, tensor in enumerate(tensors)]
    return tuple(words)


def _read(values: Iterable[Any], words: list[Any], tensors: Tensors, addresses: Addresses) -> bool:
    for value in values:
        kind = type(value)
        if kind is Tensor or kind is Parameter:
            address = value.data_ptr()
            words += (value.dtype, value.shape, value.stride(), value.get_device(), address & 15)
            tensors.append(value)
            addresses.append(address)
        elif kind in _PLAIN:
            words += (kind, value)
        elif kind is float:
            words += (kind, value or str(value))  # 0.0 equals -0.0.
        elif kind is list or kind is tuple:
            words += (list, len(value))
            if not _read(value, words, tensors, addresses):
                return False
        else:
            return False
    return True
