"""Calls on torch's meta device, described as records: sizes, strides and shared storages without memory."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.schemas import aten_schemas, overload
from opsmith.calls.live import dtype_name
from opsmith.calls.recording import PendingRecord
from opsmith.core.case import CallRecord, GeneratedStorage, OutputTensor
from opsmith.core.domains import Normal
from opsmith.core.timing import Work
from opsmith.evaluation.roofline.work import work_of


class FormsOnly:
    """Takes the place of the values of a record: meta tensors have none."""

    def __init__(self) -> None:
        self.sizes: list[int] = []

    def add_storage(self, storage: torch.UntypedStorage) -> int:
        self.sizes.append(storage.nbytes())
        return len(self.sizes) - 1


def recorded(op: str, *args: Any, **kwargs: Any) -> CallRecord:
    """The serialized call with storages that nobody generates."""
    memory = FormsOnly()
    pending = PendingRecord(op, args, kwargs, memory)  # type: ignore[arg-type]
    storages = [GeneratedStorage(size, "u8", (size,), (1,), 0, Normal(), 0) for size in memory.sizes]
    return pending.resolve(storages)  # type: ignore[arg-type]


def described(result: Any, arguments: Any) -> list[OutputTensor]:
    """The result's tensors without data, with the input storage whose memory they use."""
    storages: dict[int, int] = {}
    for leaf in tree_leaves(arguments):
        if isinstance(leaf, torch.Tensor):
            storages.setdefault(leaf.untyped_storage()._cdata, len(storages))
    return [
        OutputTensor(
            dtype=dtype_name(leaf.dtype),
            shape=tuple(leaf.shape),
            strides=leaf.stride(),
            offset=int(leaf.storage_offset()),
            device=leaf.device.type,
            layout="strided",
            input_storage=storages.get(leaf.untyped_storage()._cdata),
            output=None,
            data=b"",
        )
        for leaf in tree_leaves(result)
        if isinstance(leaf, torch.Tensor)
    ]


def work(op: str, *args: Any, **kwargs: Any) -> Work:
    """The work of a call that is made on the meta device."""
    record = recorded(op, *args, **kwargs)
    return work_with_results(record, described(overload(op)(*args, **kwargs), (args, kwargs)))


def work_with_results(record: CallRecord, results: list[OutputTensor]) -> Work:
    """The work of a call whose results are known."""
    found = work_of(record, aten_schemas()[record.op], results)
    assert found is not None
    return found


def t(*shape: int, dtype: torch.dtype = torch.bfloat16) -> torch.Tensor:
    """A tensor without memory."""
    return torch.empty(shape, dtype=dtype, device="meta")
