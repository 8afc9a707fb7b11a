"""The memory that timed results lie in: every page of it is read before a block ends.

A kernel could return memory that is filled when somebody reads it: by a handler of SIGSEGV, from a file, by another
process. So a byte of each page is loaded, by one gather of numpy's over absolute addresses, which takes 6 ns a page and
0.1 us a call on both sides. It needs no compiler and calls nothing of torch's dispatcher.
"""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opsmith.aten.arguments import tensors_in
from opsmith.aten.schemas import overload
from opsmith.aten.strides import extent
from opsmith.calls.live import LiveCall

#: numpy takes the address 0 for no memory.
_FIRST_BYTE = mmap.PAGESIZE
_ADDRESSES = 1 << 47
# Bound here: what a kernel replaces later is not what is called.
_LOAD = np.asarray((ctypes.c_uint8 * (_ADDRESSES - _FIRST_BYTE)).from_address(_FIRST_BYTE)).take
_ADDRESS, _NUMEL, _GATHERED = torch._C.TensorBase.data_ptr, torch._C.TensorBase.numel, np.fromiter


class ResultMemory:
    """Reads what the calls of a block have written.

    Args:
        op: the overload, whose schema says which arguments it writes to; a module writes to none.
    """

    def __init__(self, op: str) -> None:
        self._written = written_arguments(op)
        self._are_alike = True

    def read(self, results: Sequence[Any], lives: Sequence[LiveCall]) -> None:
        """Load a byte of every page of all results, and of the arguments that calls write to, which lie on the host.

        Results of a block are taken to be as large as the first one, which :meth:`compare` holds against them when the
        block is over.
        """
        for column in self._columns(results, lives):
            if self._are_alike and type(column[0]) is Tensor:
                _load_alike(column)
            else:
                for tensor in tensors_in(column):
                    _load_alike([tensor])

    def compare(self, results: Sequence[Any]) -> None:
        """Between blocks: where results differ in size, each is looked at by itself from now on."""
        if self._are_alike:
            self._are_alike = all(len({*map(_elements, column)}) == 1 for column in _columns(results))

    def spans(self, results: Sequence[Any], arguments: Sequence[Tensor]) -> list[tuple[int, int]]:
        """Where results and arguments lie on the host: addresses of first bytes, and of those behind the last ones.

        Arguments, too: a page of them that may not be written would have a handler of signals run while values are.
        """
        tensors = [*arguments, *(tensor for column in _columns(results) for tensor in tensors_in(column))]
        return sorted({(tensor.data_ptr(), tensor.data_ptr() + _bytes(tensor)) for tensor in tensors if _bytes(tensor)})

    def on_device(self, results: Sequence[Any], lives: Sequence[LiveCall]) -> list[Tensor]:
        """The tensors among it that lie on a device."""
        tensors = [tensor for column in self._columns(results, lives) for tensor in tensors_in(column)]
        return [tensor for tensor in tensors if tensor.device.type == "cuda" and tensor.layout is torch.strided]

    def _columns(self, results: Sequence[Any], lives: Sequence[LiveCall]) -> Iterator[Sequence[Any]]:
        yield from _columns(results)
        for where in self._written:
            if isinstance(where, str):
                yield from _columns([live.kwargs.get(where) for live in lives])
            else:
                yield from _columns([live.args[where] for live in lives if where < len(live.args)])


def written_arguments(op: str) -> tuple[int | str, ...]:
    """The arguments that an overload writes to and does not return: places, and names of those by keyword.

    A module, which is no overload, has none.
    """
    try:
        schema = overload(op)._schema
    except AttributeError:
        return ()
    returned = {name for value in schema.returns if value.alias_info for name in value.alias_info.before_set}
    return tuple(
        [
            argument.name if argument.kwarg_only else place
            for place, argument in enumerate(schema.arguments)
            if argument.alias_info and argument.alias_info.is_write and not (argument.alias_info.before_set & returned)
        ]
    )


def _columns(results: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """The results of some calls, output by output."""
    first = results[0] if results else None
    if isinstance(first, (list, tuple)):
        if all(type(result) is type(first) and len(result) == len(first) for result in results):
            for column in zip(*results, strict=True):
                yield from _columns(column)
        else:
            yield [tensor for result in results for tensor in tensors_in([result])]
    elif isinstance(first, dict):  # Of a module.
        yield from _columns([list(result.values()) for result in results if isinstance(result, dict)])
    elif isinstance(first, Tensor):
        yield results


def _load_alike(tensors: Sequence[Any]) -> None:
    """Load a byte of every page of some tensors, each as large as the first one."""
    steps = _steps(_bytes(tensors[0]))
    if steps is not None:
        starts = _GATHERED(map(_ADDRESS, tensors), np.int64, len(tensors))
        _LOAD((starts[:, None] + steps).ravel())


@cache
def _steps(size_bytes: int) -> Any:
    """From the first byte of so many to one of each page that they lie in; None for no bytes."""
    if not size_bytes:
        return None
    return np.append(np.arange(0, size_bytes, mmap.PAGESIZE), size_bytes - 1) - _FIRST_BYTE


def _bytes(tensor: Tensor) -> int:
    """From its first element to behind its last one; 0 where that is no memory of the host's."""
    if tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return 0
    return extent(tensor.shape, tensor.stride(), 0) * tensor.element_size()


def _elements(value: Any) -> int:
    return _NUMEL(value) if isinstance(value, Tensor) else -1
