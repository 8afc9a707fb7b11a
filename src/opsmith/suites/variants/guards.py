"""Guard elements around every tensor of a call: a write before, behind or between its elements shows.

A tensor then begins some elements into its storage, as a slice of a larger one does, and its storage goes
on behind its last element. How far is drawn. What the guards hold differs from what an op makes of it for
nearly every op: the elements next to a tensor are negative and no whole numbers where the dtype has any.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.core.case import (
    CallRecord,
    GeneratedStorage,
    Storage,
    TensorValue,
    map_tensors,
    tensors_by_storage,
)
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.suites.variants.layouts import bytes_of
from opsmith.suites.variants.scope import is_about_layout, is_trusting

#: Elements in front of a tensor that is not aligned are between one and this, and so are those behind any.
MOST_ELEMENTS = 64
#: What a vectorised kernel takes for aligned, bytes; and at most so many times that lie in front of a tensor.
ALIGNED_BYTES = 64
MOST_ALIGNED = 4
#: Share of the calls whose tensors are all aligned. In the others none is: a kernel that is compiled for either
#: meets no more than two kinds.
ALIGNED_SHARE = 0.75


class Guards:
    """Puts guard elements around the tensors of calls.

    Args:
        schema: of the calls' overload.
        seed: of the numbers of elements and of what they hold.
    """

    def __init__(self, schema: OpSchema, seed: int) -> None:
        self._schema = schema
        self._chance = random.Random(derive_seed(seed, "guards"))  # noqa: S311 - a choice, no secret
        self._generator = torch.Generator().manual_seed(derive_seed(seed, "guards", "values"))
        self._noise: dict[str, bytes] = {}

    def around(self, record: CallRecord) -> CallRecord:
        """The call with guard elements around each tensor that has elements; the values are the same."""
        if is_about_layout(self._schema):
            return record
        aligned = is_trusting(self._schema) or self._chance.random() < ALIGNED_SHARE
        moved: dict[int, tuple[Storage, int]] = {}
        for number, tensors in tensors_by_storage(record).items():
            guarded = self._guarded(record.storages[number], tensors, aligned=aligned)
            if guarded is not None:
                moved[number] = guarded
        return _with(record, moved) if moved else record

    def _guarded(
        self, storage: Storage, tensors: Sequence[TensorValue], *, aligned: bool
    ) -> tuple[Storage, int] | None:
        """A storage between guards, and by how many bytes its tensors move; None where there is nothing to guard."""
        # What has no element is resized where it is written, and then reaches as far as it needs.
        if any(0 in tensor.shape for tensor in tensors):
            return None
        dtype = max((tensor.dtype for tensor in tensors), key=lambda short: torch_dtype(short).itemsize)
        itemsize = torch_dtype(dtype).itemsize
        if aligned:
            before = ALIGNED_BYTES * self._chance.randint(1, MOST_ALIGNED)
        else:
            before = itemsize * self._chance.randrange(1, MOST_ELEMENTS, 2)
        behind = itemsize * self._chance.randint(1, MOST_ELEMENTS)
        if isinstance(storage, GeneratedStorage):
            return msgspec.structs.replace(
                storage,
                size_bytes=storage.size_bytes + before + behind,
                offset=storage.offset + before // itemsize,
            ), before
        if len(storage) % itemsize:
            return None
        if dtype not in self._noise:
            self._noise[dtype] = _noise(dtype, self._generator)
        noise = self._noise[dtype]
        return noise[-before:] + storage + noise[:behind], before


def _noise(short: str, generator: torch.Generator) -> bytes:
    """Guard elements of a dtype, as many as are ever needed; the first and the last lie next to a tensor."""
    dtype = torch_dtype(short)
    count = max(MOST_ELEMENTS, MOST_ALIGNED * ALIGNED_BYTES // dtype.itemsize)
    if dtype.is_floating_point or dtype.is_complex:
        real = dtype.to_real() if dtype.is_complex else dtype
        count *= 2 if dtype.is_complex else 1
        numbers = torch.randn(count, generator=generator).mul_(64)
        edges = -torch.rand(count, generator=generator).mul_(2).add_(1.25)
        numbers[:2], numbers[-2:] = edges[:2], edges[-2:]
        content = numbers.to(real)
    elif dtype is torch.bool:
        content = torch.randint(0, 2, (count,), generator=generator).bool()
    else:
        limits = torch.iinfo(dtype)
        content = torch.randint(max(limits.min, -99), 100, (count,), generator=generator)
        content[0] = content[-1] = max(limits.min, -3) or 101
        content = content.to(dtype)
    return bytes_of(content)


def _with(record: CallRecord, moved: Mapping[int, tuple[Storage, int]]) -> CallRecord:
    def place(tensor: TensorValue) -> TensorValue:
        if tensor.storage not in moved:
            return tensor
        elements = moved[tensor.storage][1] // torch_dtype(tensor.dtype).itemsize
        return msgspec.structs.replace(tensor, offset=tensor.offset + elements)

    return msgspec.structs.replace(
        record,
        args=tuple([map_tensors(value, place) for value in record.args]),
        kwargs={name: map_tensors(value, place) for name, value in record.kwargs.items()},
        storages=tuple([moved[n][0] if n in moved else storage for n, storage in enumerate(record.storages)]),
    )
