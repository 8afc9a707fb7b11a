"""Timing a module without its state: that is copied into it once, before the clock runs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import torch

from opsmith.calls.live import rebuild
from opsmith.core.case import CallRecord, TensorValue, map_tensors, tensor_values
from opsmith.tasks.module_call import ModuleCall


def timed_function(
    function: Callable[..., Any], record: CallRecord, device: torch.device
) -> tuple[Callable[..., Any], CallRecord]:
    """What is to be called between two looks at the clock, and with which arguments.

    A module takes the state of ``record`` here, and the record returned holds its inputs alone;
    any other function comes back as it is.
    """
    if not isinstance(function, ModuleCall):
        return function, record
    if "state" in record.kwargs:
        with torch.no_grad():
            function.take(rebuild(record, device).kwargs["state"])
    return function.module, without_state(record)


def without_state(record: CallRecord) -> CallRecord:
    """The call with its positional arguments only, and no storage but theirs."""
    kept = sorted({tensor.storage for tensor in tensor_values(record.args)})
    number_of = {storage: number for number, storage in enumerate(kept)}

    def renumbered(tensor: TensorValue) -> TensorValue:
        return msgspec.structs.replace(tensor, storage=number_of[tensor.storage])

    return msgspec.structs.replace(
        record,
        args=tuple([map_tensors(value, renumbered) for value in record.args]),
        kwargs={},
        storages=tuple([record.storages[number] for number in kept]),
    )
