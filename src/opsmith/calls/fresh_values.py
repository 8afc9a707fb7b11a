"""Fresh values for timed calls, made of recorded ones by numbers from a counter-based generator.

A call that is timed many times must not meet values that an earlier call has met, nor values that can be known
beforehand. So each element is a blend of two recorded ones, or one of two, as a number says that follows from the
round's key, the set and the element's place. Philox (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3",
2011) gives these numbers: NumPy's on a host, torch's on a device. Whoever knows the key can make the values of any
single set again.

The values stay between those that were recorded: where each element may be any of them, or anything between two, a
blend is a valid value, too.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import torch

from opsmith.core.fresh_values import Redraw
from opsmith.core.seeds import derive_seed

#: Recorded values that elements are made of, at least: those of a smaller storage are repeated.
BANK_ELEMENTS = 4_096
#: Elements by which the values of one set lie further on than those of the set before: the first number that does not
#: divide how many values there are.
STRIDES = (13, 17, 19, 23)
#: What is blended begins at a multiple of so many elements, which takes equally long in all rounds, and the other part
#: so much further on: recorded values often repeat after a power of two, and would be blended with themselves.
ALIGNED_ELEMENTS = 16
OTHER_OFFSET = 7
#: On a host, elements that are made at a time: what they take stays in the processor's cache. Small sets together.
HOST_PIECE = 1 << 16
MOST_HOST_ROWS = 64
#: The same on a device, where a launch costs more than many elements, and elements of one launch for a large set.
DEVICE_GROUP = 1 << 22
MOST_DEVICE_ROWS = 1_024
DEVICE_PIECE = 1 << 24
#: Weights of a blend on a host: a byte each.
_WEIGHTS = 256
#: By bytes: the integer that chosen elements are moved as.
UNITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
#: What the device's numbers and values are made with.
_DEVICE_KERNELS = ("aten::copy_", "aten::uniform_", "aten::random_", "aten::lerp.Tensor_out", "aten::where.self_out")


def unit_of(how: Redraw, dtype: torch.dtype) -> torch.dtype:
    """What elements are taken as: blended ones as real numbers, chosen ones as integers of their width."""
    return dtype.to_real() if how is Redraw.BLENDED else UNITS[min(dtype.itemsize, 8)]


class ValueBank:
    """Recorded values of one storage, from which those of any set and round are made.

    Args:
        values: the recorded values, as units; of a small storage :data:`BANK_ELEMENTS` and more.
        length: units of the storage itself.
        how: BLENDED (floating-point units) or CHOSEN (integer units).
        sets: how many sets there may be.
        number: of the storage in its call.
    """

    def __init__(self, values: torch.Tensor, length: int, how: Redraw, sets: int, number: int) -> None:
        self.unit = values.dtype
        self.length = length
        self._how, self._number = how, number
        self._count = count = len(values)
        self._stride = next((stride for stride in STRIDES if count % stride), STRIDES[0])
        self._on_host = values.device.type == "cpu"
        widest, piece = (MOST_HOST_ROWS, HOST_PIECE) if self._on_host else (MOST_DEVICE_ROWS, DEVICE_GROUP)
        #: Sets whose numbers are drawn together.
        self._rows = max(1, min(widest, piece // max(length, 1)))
        padded = -(-sets // self._rows) * self._rows
        whole, rest = divmod(count + OTHER_OFFSET + length + self._stride * padded, count)
        self._flat = torch.cat([values] * whole + [values[:rest]])

    def write(self, target: torch.Tensor, key: int) -> None:
        """Write the values that the first sets have in a round.

        Args:
            target: units, a row for each set.
            key: of the round.
        """
        if self._on_host:
            self.write_each(list(target), key)
            return
        for first in range(0, len(target), self._rows):
            self._write_group(target[first : first + self._rows], key, first // self._rows)

    def write_each(self, targets: Sequence[torch.Tensor], key: int, first: int = 0) -> None:
        """The same for single storages, from set ``first`` on, each as its flat tensor of units.

        A storage that has been given another size is written where it lies now.
        """
        write = self._write_host_group if self._on_host else self._write_rows
        done = 0
        while done < len(targets):
            group, skipped = divmod(first + done, self._rows)
            of_group = targets[done : done + self._rows - skipped]
            write(of_group, key, group, skipped)
            done += len(of_group)

    def storage(self, key: int, slot: int) -> torch.UntypedStorage:
        """A fresh storage with the values that one set has in a round."""
        target = torch.empty(self.length, dtype=self.unit, device=self._flat.device)
        self.write_each([target], key, slot)
        return target.untyped_storage()

    def _starts(self, key: int) -> tuple[int, int]:
        """Where the first set's values begin, of both that are blended."""
        places = self._count // ALIGNED_ELEMENTS
        one = derive_seed(key, self._number) % places
        other = (one + 1 + derive_seed(key, self._number, "other") % (places - 1)) % places
        return one * ALIGNED_ELEMENTS, other * ALIGNED_ELEMENTS + OTHER_OFFSET

    # ------------------------------------------------------------ on a host

    def _write_host_group(self, targets: Sequence[torch.Tensor], key: int, group: int, skipped: int) -> None:
        size = self.unit.itemsize
        for offset, values in self._host_pieces(key, group, skipped + len(targets)):
            for target, row in zip(targets, values[skipped:], strict=True):
                ctypes.memmove(target.data_ptr() + offset * size, row.ctypes.data, len(row) * size)

    def _host_pieces(self, key: int, group: int, rows: int) -> Iterator[tuple[int, Any]]:
        """The values of a group's first sets, a row each; of a large set, piece by piece with its offset in units."""
        import numpy as np  # Slow to import; only timing needs it.

        numbers = np.random.Philox(key=derive_seed(key, self._number, "host", group))
        flat = self._flat.numpy()
        starts = [start + group * self._rows * self._stride for start in self._starts(key)]
        for offset in range(0, self.length, HOST_PIECE):
            shape = rows, min(HOST_PIECE, self.length - offset)
            one, other = (
                np.lib.stride_tricks.as_strided(
                    flat[start + offset :], shape, (self._stride * flat.itemsize, flat.itemsize), writeable=False
                )
                for start in starts
            )
            drawn = numbers.random_raw(-(-shape[0] * shape[1] // 8)).view(np.uint8)[: shape[0] * shape[1]]
            yield offset, self._mixed(one, other, drawn.reshape(shape))

    def _mixed(self, one: Any, other: Any, drawn: Any) -> Any:
        import numpy as np

        if self._how is Redraw.BLENDED:
            values = np.subtract(other, one)
            values *= np.multiply(drawn, 1 / _WEIGHTS, dtype=values.dtype)
            values += one
            return values
        mask = (drawn & 1).astype(one.dtype)
        np.negative(mask, out=mask)
        mask &= one ^ other
        mask ^= one
        return mask

    # ------------------------------------------------------------ on a device

    def _write_rows(self, targets: Sequence[torch.Tensor], key: int, group: int, skipped: int) -> None:
        """The values of sets of one group, which lie apart."""
        if self._rows == 1:
            self._write_group(targets[0].view(1, -1), key, group)
            return
        rows = torch.empty((skipped + len(targets), self.length), dtype=self.unit, device=targets[0].device)
        self._write_group(rows, key, group)
        for target, row in zip(targets, rows[skipped:], strict=True):
            call_kernel("aten::copy_", target, row, False)

    def _write_group(self, target: torch.Tensor, key: int, group: int) -> None:
        """The values of the first sets of a group, whose numbers are drawn for all of them."""
        device = target.device
        numbers = torch.Generator(device).manual_seed(derive_seed(key, self._number, "device", group))
        starts = [start + group * self._rows * self._stride for start in self._starts(key)]
        is_blended = self._how is Redraw.BLENDED
        for offset in range(0, self.length, DEVICE_PIECE):
            columns = min(DEVICE_PIECE, self.length - offset)
            drawn = torch.empty((self._rows, columns), dtype=self.unit if is_blended else torch.bool, device=device)
            shape, strides = (len(target), columns), (self._stride, 1)
            one, other = (self._flat.as_strided(shape, strides, start + offset) for start in starts)
            written = target[:, offset : offset + columns]
            if is_blended:
                call_kernel("aten::uniform_", drawn, 0.0, 1.0, generator=numbers)
                call_kernel("aten::lerp.Tensor_out", one, other, drawn[: len(target)], out=written)
            else:
                call_kernel("aten::random_", drawn, generator=numbers)
                call_kernel("aten::where.self_out", drawn[: len(target)], one, other, out=written)


def fetch_kernels(device_type: str) -> None:
    """Fetch what makes values on a device, before anything else may lie in the dispatcher's tables."""
    for name in _DEVICE_KERNELS:
        _kernel(name, device_type)


@cache
def _kernel(name: str, device_type: str) -> Any:
    return torch.library.get_kernel(name, device_type.upper())


def call_kernel(name: str, *args: Any, **kwargs: Any) -> None:
    """Call one of these ops past the dispatcher, whatever lies in its tables."""
    target = kwargs.get("out", args[0])
    _kernel(name, target.device.type).call_boxed(torch._C._dispatch_keys(target), *args, **kwargs)
