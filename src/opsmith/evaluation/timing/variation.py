"""How the storages of a timed call are made anew: decided once, by the referee, from what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import torch

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.low_precision import readable
from opsmith.calls.fresh_values import BANK_ELEMENTS
from opsmith.calls.synthetic import flat_view
from opsmith.core.case import CallRecord, GeneratedStorage, TensorValue, tensor_values, tensors_by_storage
from opsmith.core.domains import Domain, IndependentDomain, Integers, Magnitude
from opsmith.core.fresh_values import Freshness, KnownDomain, Redraw, Variation

#: Sets of a call's inputs at most where something is drawn again set by set, which takes about 0.2 ms.
MOST_DRAWN_SETS = 32
#: Numbers that are blended are no larger than this share of what their dtype holds: their difference is a number, too.
LARGEST_SHARE = 1 / 4
#: Distinct whole numbers that nothing is known about are taken for an order of places from this many on.
LEAST_ORDER = 3
FIXED = Variation(Redraw.FIXED)


def variations(
    record: CallRecord, storages: Sequence[torch.UntypedStorage], domains: Mapping[int, KnownDomain]
) -> tuple[Variation, ...]:
    """How each storage is made anew so that its values stay valid.

    Args:
        record: the call, without gaps.
        storages: the recorded values.
        domains: by storage, what is known of values that were recorded as bytes.
    """
    tensors = tensors_by_storage(record)
    return tuple(
        [
            _variation(record, number, content, tensors.get(number, []), domains.get(number))
            for number, content in enumerate(storages)
        ]
    )


def _variation(
    record: CallRecord,
    number: int,
    content: torch.UntypedStorage,
    tensors: Sequence[TensorValue],
    known: KnownDomain | None,
) -> Variation:
    if not content.nbytes() or len({tensor.dtype for tensor in tensors}) != 1:
        return FIXED
    dtype = torch_dtype(tensors[0].dtype)
    if content.nbytes() % dtype.itemsize:
        return FIXED
    storage = record.storages[number]
    if isinstance(storage, GeneratedStorage):
        if not isinstance(storage.domain, IndependentDomain):
            return Variation(Redraw.DRAWN)
        return _of_generated(dtype, content, storage.domain)
    if known is not None and not isinstance(known.domain, IndependentDomain):
        return Variation(Redraw.DRAWN, known.domain, known.seed) if len(tensors) == 1 else FIXED
    if dtype.is_floating_point or dtype.is_complex:
        found = _of_numbers(dtype, content)
        return found if known is None else _within(found, known.domain)
    return _of_whole_numbers(flat_view(content, dtype), known)


def _of_generated(dtype: torch.dtype, content: torch.UntypedStorage, domain: Domain) -> Variation:
    if not dtype.is_floating_point and not dtype.is_complex:
        return Variation(Redraw.CHOSEN)
    how = _of_numbers(dtype, content).how
    return _within(Variation(Redraw.CHOSEN if how is Redraw.FIXED else how), domain)


def _within(found: Variation, domain: Domain) -> Variation:
    """What keeps away from zero on both sides cannot be blended."""
    if found.how is Redraw.BLENDED and isinstance(domain, Magnitude) and domain.signed:
        return Variation(Redraw.CHOSEN, shrunk=found.shrunk)
    return found


def _of_numbers(dtype: torch.dtype, content: torch.UntypedStorage) -> Variation:
    """Floating-point numbers, or pairs of them."""
    real = dtype.to_real()
    values = flat_view(content, real)
    # Narrow ones may have no arithmetic.
    wide = values if real.itemsize >= torch.float32.itemsize else readable(values).float()
    low, high = wide.aminmax()
    is_constant = bool(low == high)
    if is_constant and bool(low == low.round()):
        return FIXED  # A whole number may count something.
    spans_much = not bool((wide.abs().amax() <= LARGEST_SHARE * torch.finfo(wide.dtype).max).item())  # NaN, too.
    is_whole = not spans_much and not is_constant and bool((wide == wide.round()).all())
    if real not in (torch.float32, torch.float64) or spans_much or is_whole:
        return Variation(Redraw.CHOSEN, shrunk=is_constant and not spans_much)
    return Variation(Redraw.BLENDED, shrunk=is_constant)


def _of_whole_numbers(values: torch.Tensor, known: KnownDomain | None) -> Variation:
    """Indices, counts, masks: any of the recorded ones, if each may be at any place."""
    if known is None:
        return FIXED if _may_be_an_order(values) else Variation(Redraw.CHOSEN)
    domain = known.domain
    if len(values) < BANK_ELEMENTS and isinstance(domain, Integers) and (domain.unit, domain.origin) == (1.0, 0.0):
        low, high = values.aminmax()
        if domain.low <= int(low) and int(high) < domain.high:
            return Variation(Redraw.CHOSEN, domain, known.seed)
    return Variation(Redraw.CHOSEN) if len(values) > 1 else FIXED


def _may_be_an_order(values: torch.Tensor) -> bool:
    """Whether whole numbers may depend on each other: bounds ascend, and places of an order are all different."""
    if values.dtype == torch.bool:
        return False
    steps = values.long().diff()
    return bool((steps >= 0).all()) or (len(values) >= LEAST_ORDER and len(values.unique()) == len(values))


def fixed_where_shared(found: Sequence[Variation], record: CallRecord) -> tuple[Variation, ...]:
    """The same of a call of ranks: only numbers that one rank alone has are made anew.

    What several ranks are given alike has to stay alike, and their whole numbers may have to fit together.
    """
    alike = Counter(record.storages)
    own = fixed_numbers(found, record)
    return tuple([FIXED if alike[content] > 1 else one for one, content in zip(own, record.storages, strict=True)])


def freshness(found: Sequence[Variation], storages: Sequence[torch.UntypedStorage]) -> Freshness:
    """How much of a call is made anew; a storage without elements has nothing to be made anew."""
    fixed = [one.how is Redraw.FIXED for one, content in zip(found, storages, strict=True) if content.nbytes()]
    if not any(fixed):
        return Freshness.FRESH if fixed else Freshness.FIXED
    return Freshness.FIXED if all(fixed) else Freshness.PARTLY


def fixed_numbers(found: Sequence[Variation], record: CallRecord) -> tuple[Variation, ...]:
    """The same with everything fixed but independent floating-point numbers, for an op that refuses the rest."""
    floating = {
        tensor.storage
        for tensor in tensor_values((*record.args, *record.kwargs.values()))
        if torch_dtype(tensor.dtype).is_floating_point or torch_dtype(tensor.dtype).is_complex
    }
    return tuple(
        [
            one if number in floating and one.how in (Redraw.BLENDED, Redraw.CHOSEN) else FIXED
            for number, one in enumerate(found)
        ]
    )
