"""The same call with other indices.

============== ======================================================================
label          what every index tensor holds
============== ======================================================================
``equal``      one place, again and again
``edges``      the first place and the last one, in any order
``repeated``   three places, in any order
``descending`` its places from the last to the first
``negative``   its own places, some of them counted from the end; where the op takes that
============== ======================================================================

Where values are added up at places, those are small whole numbers: their sum is exact in any order. Where they are
stored, no place occurs twice that did not, because either of two values might stay.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.strides import overlaps
from opsmith.core.case import CallRecord, GeneratedStorage, Storage, TensorValue
from opsmith.core.domains import Distinct, Domain, Integers, Targets
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs import known_domains
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall
from opsmith.suites.valid_inputs.indices import indexed_dims
from opsmith.suites.variants.dense import with_round_numbers
from opsmith.suites.variants.layouts import bytes_of, window_of
from opsmith.suites.variants.scope import bound_call, freedoms, is_placed, is_random, rounds_nothing

PLACE_LABELS = ("equal", "edges", "repeated", "descending", "negative")
#: Arguments that are places in a tensor; others are lengths, pivots, or the like.
PLACES = frozenset({"index", "indices", "target"})
#: Ops that take places counted from the end.
FROM_THE_END = frozenset({"index", "index_put", "_index_put_impl", "take", "put", "index_fill"})
#: Ops that combine what comes to one place.
ADDING = ("scatter", "index_add", "index_reduce", "index_put", "_index_put_impl", "put", "embedding_dense_backward")
#: Of fewer places all are counted from the end: some of them may be the first one, which a kernel may guess.
ENOUGH_FOR_BOTH = 8
#: Of ``repeated``.
FEW_PLACES = 3


def place_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with other places in every index tensor; labels as in the module's docstring.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of the places.
    """
    call = bound_call(record)
    if call is None or is_random(schema) or schema.variant is Variant.VIEW:
        return
    # A gradient of pooling is told where in its window a maximum was.
    slots = [slot for slot in call.slots if _is_varied(schema, slot)] if "pool" not in call.stem else []
    domains = known_domains(record) if slots else {}
    adds = not rounds_nothing(schema, call) and call.stem.startswith(ADDING)
    for label in PLACE_LABELS:
        changed: dict[int, Storage] = {}
        for slot in slots:
            number = slot.tensor.storage
            known = domains.get(number)
            storage = record.storages[number]
            own = derive_seed(seed, label, number)
            if known is None:
                continue
            if isinstance(storage, GeneratedStorage):
                domain = _generated(known.domain, label, own)
                if domain is not None:
                    changed[number] = msgspec.structs.replace(storage, domain=domain, seed=own)
            elif storage:
                places = _places(call, slot, storage, known.domain, label, own)
                if places is not None:
                    changed[number] = _placed(storage, slot.tensor, places)
        if changed:
            base = with_round_numbers(record) if adds else record
            if adds:
                changed |= _whole_values(record, schema, call, derive_seed(seed, label))
            storages = tuple([changed.get(number, storage) for number, storage in enumerate(record.storages)])
            yield label, msgspec.structs.replace(base, storages=storages)


def _is_varied(schema: OpSchema, slot: ArgumentSlot) -> bool:
    tensor = slot.tensor
    has_places = is_placed(schema, slot.name) and (slot.name in PLACES) and tensor.dtype in ("i32", "i64")
    return has_places and 0 not in tensor.shape and 0 not in tensor.strides and not overlaps(tensor)


def _places(
    call: BoundCall, slot: ArgumentSlot, storage: bytes, domain: Domain, label: str, seed: int
) -> torch.Tensor | None:
    """Other places for a tensor, in its shape; None where the domain has none of the label."""
    tensor, generator = slot.tensor, torch.Generator().manual_seed(seed)
    _, own = window_of(storage, tensor)
    if label == "negative":
        size = _counted_size(call, slot)
        counted = (_chosen(2, own.shape, generator) == 1) | (own.numel() < ENOUGH_FOR_BOTH)
        return torch.where(counted, own % size - size, own) if size else None
    match domain:
        case Integers(low, high, 1.0, 0.0) if label == "descending":
            return torch.randint(low, high, own.shape, generator=generator).sort(-1, descending=True).values
        case Integers(low, high, 1.0, 0.0):
            return _few(label, low, high, own.shape, generator)
        case Targets(classes) if label != "descending":
            return _few(label, 0, classes, own.shape, generator)
        case Distinct(_, (dim,), 1, None) if label == "descending":
            return own.sort(dim, descending=True).values
        case _:
            return None


def _few(label: str, low: int, high: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Elements of a shape chosen from one place, from the first and the last one, or from some."""
    if label == "edges":
        pool = torch.tensor([low, high - 1])
    else:
        pool = torch.randint(low, high, (1 if label == "equal" else FEW_PLACES,), generator=generator)
    return pool[_chosen(len(pool), shape, generator)]


def _chosen(count: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """Numbers below ``count`` in any order, the last one first among those of which each occurs if there is room."""
    flat = torch.randint(0, count, (math.prod(shape),), generator=generator)
    places = torch.randperm(len(flat), generator=generator)[:count]
    flat[places] = torch.arange(count - 1, -1, -1)[: len(places)]
    return flat.view(shape)


def _counted_size(call: BoundCall, slot: ArgumentSlot) -> int | None:
    """How many places there are where the op also counts them from the end."""
    if call.stem not in FROM_THE_END:
        return None
    if call.stem in ("take", "put"):
        return call.elements("self")
    return call.size("self", call.integer("dim")) if call.stem == "index_fill" else indexed_dims(call)[slot.number][0]


def _placed(storage: bytes, tensor: TensorValue, places: torch.Tensor) -> bytes:
    memory, window = window_of(storage, tensor)
    window.copy_(places)
    return bytes_of(memory)


def _generated(domain: Domain, label: str, seed: int) -> Domain | None:
    match domain, label:
        case Integers(low, high, 1.0, 0.0), "equal":
            place = low + seed % (high - low)
            return Integers(place, place + 1)
        case Integers(low, high, 1.0, 0.0), "edges" if high - low > 1:
            return Integers(0, 2, unit=high - 1 - low, origin=low)
        case Integers(low, high, 1.0, 0.0), "repeated":
            return Integers(low, min(low + FEW_PLACES, high))
        case _:
            return None


def _whole_values(record: CallRecord, schema: OpSchema, call: BoundCall, seed: int) -> dict[int, Storage]:
    """Small whole numbers for what is added up, ones of both signs for what is multiplied."""
    found: dict[int, Storage] = {}
    multiplies = call.value("reduce") in ("prod", "multiply")
    for number, freedom in freedoms(record, schema).items():
        storage, dtype = record.storages[number], torch_dtype(freedom.slot.tensor.dtype)
        if "signed" in freedom.labels and dtype.is_floating_point and not isinstance(storage, GeneratedStorage):
            generator = torch.Generator().manual_seed(derive_seed(seed, number))
            whole = torch.randint(-2, 3, (len(storage) // dtype.itemsize,), generator=generator)
            numbers = torch.where(whole < 0, -1, 1) if multiplies else whole
            found[number] = bytes_of(numbers.to(dtype))
    return found
