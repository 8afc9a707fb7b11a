"""Valid values for traced calls, which were recorded without any.

What an argument may hold follows from the op, the argument's name and the other arguments: an index
stays inside what it indexes, a saved variance is positive, the targets of a loss are class numbers.
The rules are tables: places in :mod:`.indices`, ranges in :mod:`.values`. An argument without a rule
gets numbers of both signs and of varying magnitude. docs/explanation/inputs.md says more.
"""

from __future__ import annotations

import contextlib

import msgspec

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.renames import current
from opsmith.aten.strides import extent, overlaps
from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue, Value, digest
from opsmith.core.domains import Distinct, Domain, Segments, StructuredDomain
from opsmith.core.fresh_values import KnownDomain
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall, CannotRebuild
from opsmith.suites.valid_inputs.fitting import fits, fitted
from opsmith.suites.valid_inputs.indices import INDEX_RULES
from opsmith.suites.valid_inputs.values import COMMON_RULES, VALUE_RULES, default_domain

__all__ = ["CannotRebuild", "domains", "known_domains", "traced_record"]

#: Arguments that an op reads on the host, wherever it runs.
HOST_ARGUMENTS = {
    ("_pack_padded_sequence", "lengths"),
    ("_cudnn_ctc_loss", "targets"),
    # The state of dropout; only while a CUDA graph is captured does it lie on the device.
    ("_scaled_dot_product_efficient_attention_backward", "philox_seed"),
    ("_scaled_dot_product_efficient_attention_backward", "philox_offset"),
}


def domains(call: TracedCall) -> list[Domain]:
    """What the values of each tensor are, in the order of the tensors' storages.

    Raises:
        CannotRebuild: this torch has no such overload, or no valid values can be given.
    """
    bound = BoundCall(current(call))
    return [_domain(bound, slot) for slot in bound.slots]


def known_domains(record: CallRecord) -> dict[int, KnownDomain]:
    """What the op says about the values of each storage of a recorded call, by the storage's number.

    A storage that is no argument, or whose values have no domain of their own, is left out; all are where the call is
    none of an overload of this torch.
    """
    try:
        bound = BoundCall(TracedCall(op=record.op, args=record.args, kwargs=record.kwargs))
    except CannotRebuild:
        return {}
    known: dict[int, KnownDomain] = {}
    for slot in bound.slots:
        with contextlib.suppress(CannotRebuild):
            domain = _domain(bound, slot)
            known[slot.tensor.storage] = KnownDomain(domain, derive_seed(record.op, *_stream(slot, domain)))
    return known


def traced_record(call: TracedCall, *, seed: int) -> CallRecord:
    """A call that can be run: the same arguments on generated storages.

    Layouts are those of the trace: a storage is as large as its tensor's strides need, and
    expanded or overlapping elements are one element in memory.

    Args:
        call: as it was traced; an overload that torch has renamed gets today's name.
        seed: of the values. A record holds only what derives from it.

    Raises:
        CannotRebuild: this torch has no such overload, or no valid values can be given.
    """
    call = current(call)
    bound = BoundCall(call)
    key = digest(msgspec.msgpack.encode(call))
    on_host = {slot.tensor.storage for slot in bound.slots if (bound.stem, slot.name) in HOST_ARGUMENTS}
    return CallRecord(
        op=call.op,
        args=tuple([_placed(value, on_host) for value in call.args]),
        kwargs={name: _placed(value, on_host) for name, value in call.kwargs.items()},
        storages=tuple([_generated(bound, slot, seed, key) for slot in bound.slots]),
    )


def _generated(call: BoundCall, slot: ArgumentSlot, seed: int, key: str) -> GeneratedStorage:
    tensor, domain = slot.tensor, _domain(call, slot)
    return GeneratedStorage(
        size_bytes=_storage_elements(call, slot) * torch_dtype(tensor.dtype).itemsize,
        dtype=tensor.dtype,
        shape=tensor.shape,
        strides=tensor.strides,
        offset=tensor.offset,
        domain=domain,
        seed=derive_seed(seed, key, *_stream(slot, domain)),
    )


def _stream(slot: ArgumentSlot, domain: Domain) -> tuple[str | int, ...]:
    """What tells the seeds of a call's tensors apart; the parts of one description have the same."""
    match domain:
        case Segments():
            return ("segments",)
        case Distinct():
            return (slot.name,)
        case _:
            return (slot.name, slot.number)


def _placed(value: Value, on_host: set[int]) -> Value:
    if isinstance(value, TensorValue) and value.storage in on_host:
        return msgspec.structs.replace(value, device="cpu")
    return value


def _domain(call: BoundCall, slot: ArgumentSlot) -> Domain:
    for rules in (INDEX_RULES.get(call.stem, {}), VALUE_RULES.get(call.stem, {}), COMMON_RULES):
        rule = rules.get(slot.name)
        if rule is not None:
            domain = fitted(rule(call, slot) if callable(rule) else rule, slot.tensor.dtype)
            break
    else:
        domain = fitted(default_domain(slot), slot.tensor.dtype)
    if isinstance(domain, StructuredDomain) and 0 not in slot.tensor.shape:
        if overlaps(slot.tensor):
            raise CannotRebuild(f"{call.op}: `{slot.name}` overlaps itself, and its elements depend on each other")
        if not fits(domain, slot.own_shape):
            raise CannotRebuild(f"{call.op}: the shape of `{slot.name}` does not follow from the other arguments")
    return domain


def _storage_elements(call: BoundCall, slot: ArgumentSlot) -> int:
    tensor = slot.tensor
    elements = extent(tensor.shape, tensor.strides, tensor.offset)
    if call.stem.startswith("as_strided") and slot.name == "self":
        # The view that is asked for may reach further than the tensor.
        wanted = extent(call.integers("size"), call.integers("stride"), call.integer("storage_offset"))
        return max(elements, wanted)
    return elements
