"""Variants of recorded calls: the same question asked with other values, another layout, other sizes.

A kernel that was fitted to the calls it is judged by (to their range, their strides, their shapes, or
to their very values) is right on those and wrong on their variants. A variant is a proposal: eager
may refuse it, and then nobody is asked. What is proposed leaves an honest kernel as right as it was:
which op takes which values is in :mod:`.scope`, which matrices in :mod:`.matrices`.

=============  ====================================================================
value label    what every varied tensor holds
=============  ====================================================================
``signed``     normal numbers
``large``      magnitudes from 1e3 to 1e4 (10 to 100 in float16)
``huge``       both signs, up to where ``exp`` overflows
``tiny``       magnitudes from 1e-30 to 1e-6 (1e-4 to 1e-2 in float16)
``offset``     a large constant plus noise of size 1: cancels in a single-pass variance
``structured`` constant rows, ramps, rows with one outlier
``mixed``      each element 10 to the power of a number between -6 and 6
``special``    normal numbers with some NaN, infinities and negative zeros
``nan``        normal numbers with a single NaN in some rows
``infinite``   rows with one infinity, with one of each sign, with negative ones only
``ties``       few different numbers, zeros of both signs among them; some rows all equal
``ignored``    of what a factor of zero takes out: as ``special``
``denormals``  numbers below the smallest normal one, next to normal ones
``boundaries`` the call's own numbers, where ops bend, NaN and infinities; see :mod:`.dense`
``sweep``      all numbers of a half type, many of a wider one; likewise
=============  ====================================================================
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

from opsmith.core.case import CallRecord, SequenceValue, TensorValue, Value, storage_size, tensor_values
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites.variants.arguments import argument_variants, combined_arguments
from opsmith.suites.variants.dense import with_round_numbers
from opsmith.suites.variants.guards import Guards
from opsmith.suites.variants.large import large_variants
from opsmith.suites.variants.layouts import layout_variants
from opsmith.suites.variants.matrices import matrix_variants
from opsmith.suites.variants.places import place_variants
from opsmith.suites.variants.results import result_variants
from opsmith.suites.variants.scope import is_elementwise
from opsmith.suites.variants.shapes import shape_variants
from opsmith.suites.variants.values import value_variants

__all__ = [
    "argument_variants",
    "layout_variants",
    "matrix_variants",
    "place_variants",
    "probes",
    "shape_variants",
    "value_variants",
]

#: A call this large or smaller shows what a larger one would.
ENOUGH_BYTES = 1 << 20

#: Labels that come before others: of a hundred mutants that one label sees, these see nearly all.
SEEING_MOST = frozenset({"sweep", "boundaries", "special", "nan", "ties", "denormals"})
_Variants = Callable[[CallRecord, OpSchema, int], Iterator[tuple[str, CallRecord]]]
#: Of the ops that are asked on one large tensor, one in so many is asked on the largest.
VAST_EVERY = 8
#: In which turn the kinds of variants are chosen: nearly half of them have other values.
_TURNS: tuple[_Variants, ...] = (
    matrix_variants,
    value_variants,
    place_variants,
    shape_variants,
    value_variants,
    combined_arguments,
    layout_variants,
    value_variants,
    place_variants,
    argument_variants,
)
#: The same for overloads that write their arguments: what these look like comes first.
_WRITING_TURNS: tuple[_Variants, ...] = (
    layout_variants,
    value_variants,
    place_variants,
    result_variants,
    shape_variants,
    layout_variants,
    argument_variants,
    value_variants,
    result_variants,
)


def probes(
    records: Sequence[CallRecord], schema: OpSchema, seed: int, limit: int, *, large: int = 0
) -> list[tuple[str, CallRecord]]:
    """At most ``limit`` different variants of an op's recorded calls, with guard elements around each tensor.

    Labels come first, so that each occurs once before one occurs again; calls with different
    patterns of arguments (ranks, dtypes, keywords, flags) take turns. Which labels are left out
    where ``limit`` is below their number depends on ``seed``.

    Args:
        records: recorded calls of one overload.
        schema: of that overload.
        seed: of the choice and of the values.
        limit: of the number of variants.
        large: how many of them may be on large tensors; they come first.
    """
    guards, bases = Guards(schema, seed), _bases(records)
    chosen = _large(bases, schema, seed, min(large, limit))
    chosen += _chosen(bases, schema, seed, limit - len(chosen))
    return [(label, guards.around(_decided(record, schema))) for label, record in chosen]


def _decided(record: CallRecord, schema: OpSchema) -> CallRecord:
    """The call with numbers that a half type holds, where a kernel may compare its elements with them in that type."""
    halves = any(tensor.dtype in ("f16", "bf16") for tensor in tensor_values(record.args))
    return with_round_numbers(record) if halves and is_elementwise(schema) else record


def _large(bases: Sequence[CallRecord], schema: OpSchema, seed: int, limit: int) -> list[tuple[str, CallRecord]]:
    """Variants on large tensors; where there is to be one, it is mostly the smallest of them."""
    found = [(one.label, one.record) for one in _in_turn(large_variants, bases, schema, seed)] if limit else []
    if limit > 1 or not found:
        return found[:limit]
    found.sort(key=lambda variant: _size_bytes(variant[1]))
    return [found[-1 if derive_seed(seed, schema.name, "vast") % VAST_EVERY == 0 else 0]]


def _chosen(bases: Sequence[CallRecord], schema: OpSchema, seed: int, limit: int) -> list[tuple[str, CallRecord]]:
    turns = _WRITING_TURNS if schema.variant in (Variant.INPLACE, Variant.OUT) else _TURNS
    sources = {vary: _in_turn(vary, bases, schema, seed) for vary in dict.fromkeys(turns)}
    waiting = {vary: variant for vary, source in sources.items() if (variant := next(source, None)) is not None}
    chosen: list[tuple[str, CallRecord]] = []
    for vary in itertools.cycle(turns):
        if len(chosen) >= limit or not waiting:
            return chosen
        # A kind with few labels does not ask them again while another one has some that nobody was asked.
        if vary in waiting and waiting[vary].times == min(variant.times for variant in waiting.values()):
            chosen.append((waiting[vary].label, waiting[vary].record))
            following = next(sources[vary], None)
            if following is None:
                del waiting[vary]
            else:
                waiting[vary] = following
    raise AssertionError("a cycle does not end")


def _bases(records: Iterable[CallRecord]) -> list[CallRecord]:
    """One call of each pattern: the largest one that is large enough, or the smallest of larger ones."""
    by_pattern: dict[object, list[CallRecord]] = {}
    for record in records:
        by_pattern.setdefault(_pattern(record), []).append(record)
    return [min(group, key=_preference) for group in by_pattern.values()]


def _preference(record: CallRecord) -> tuple[bool, int]:
    size_bytes = _size_bytes(record)
    too_large = size_bytes > ENOUGH_BYTES
    return too_large, size_bytes if too_large else -size_bytes


def _size_bytes(record: CallRecord) -> int:
    return sum(map(storage_size, record.storages))


def _pattern(record: CallRecord) -> object:
    tensors = tensor_values((*record.args, *record.kwargs.values()))
    empty = any(0 in tensor.shape for tensor in tensors)
    return tuple(map(_kind, record.args)), tuple((n, _kind(v)) for n, v in sorted(record.kwargs.items())), empty


def _kind(value: Value) -> object:
    """What tells patterns apart: the rank and dtype of a tensor, a flag, the sign of a number."""
    if isinstance(value, TensorValue):
        return len(value.shape), value.dtype
    if isinstance(value, SequenceValue):
        return tuple(dict.fromkeys(map(_kind, value.items)))
    if isinstance(value, float):
        return (value > 0) - (value < 0), "float"
    return repr(value)


class _Proposed(NamedTuple):
    """A variant, and how often its label was there before."""

    label: str
    record: CallRecord
    times: int


def _in_turn(vary: _Variants, bases: Sequence[CallRecord], schema: OpSchema, seed: int) -> Iterator[_Proposed]:
    """The variants of all bases: label after label, each of another base than the one before, first of larger ones."""
    chance = random.Random(derive_seed(seed, schema.name, vary.__name__))  # noqa: S311 - a choice, no secret
    by_label: dict[str, list[tuple[int, CallRecord]]] = {}
    for number, base in enumerate(chance.sample(bases, min(len(bases), MOST_BASES))):
        for label, record in vary(base, schema, derive_seed(seed, number)):
            by_label.setdefault(label, []).append((number, record))
    used: dict[int, int] = {}
    labels = list(by_label)
    chance.shuffle(labels)
    labels.sort(key=lambda label: label not in SEEING_MOST)
    for times in itertools.count():
        if not labels:
            return
        for label in labels:
            options = by_label[label]
            # What a label has to show, a few elements may not: they are asked where there are no others, or later.
            number, record = min(options, key=lambda o: (not times and _is_small(o[1]), used.get(o[0], 0)))
            options.remove((number, record))
            used[number] = used.get(number, 0) + 1
            yield _Proposed(label, record, times)
        labels = [label for label in labels if by_label[label]]
        chance.shuffle(labels)


def _is_small(record: CallRecord) -> bool:
    shapes = [tensor.shape for tensor in tensor_values((*record.args, *record.kwargs.values()))]
    return max(map(math.prod, shapes), default=0) < FEW_ELEMENTS or not all(map(math.prod, shapes))


#: A call whose largest tensor has fewer elements is small, and so is one with a tensor that has none.
FEW_ELEMENTS = 8
#: Patterns that are varied; an op has a dozen at most, but for those with lists of scalars.
MOST_BASES = 8
