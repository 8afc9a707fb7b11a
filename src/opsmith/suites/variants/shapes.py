"""The same call at other sizes.

Where all tensors have one shape, and an op works element by element or along a dimension, one dimension changes.
Elsewhere a size is renamed wherever it stands: in every tensor's shape and in every list of sizes. So what has to
agree goes on agreeing (the inner dimensions of a product, a row and its weight, what broadcasts) without
a rule for each op; where two dimensions only happen to be equal, both change.
The values are generated, inside the domains of :mod:`opsmith.suites.valid_inputs`.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Iterator, Sequence

from opsmith.aten.schemas import group_tags, overload
from opsmith.core.case import CallRecord, SequenceValue, TensorValue, Value, tensor_values
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.suites.traced_size import result_bytes
from opsmith.suites.valid_inputs import traced_record
from opsmith.suites.valid_inputs.binding import BoundCall, CannotRebuild, stem_of
from opsmith.suites.variants.layouts import dense_strides
from opsmith.suites.variants.scope import (
    CONTRACTIONS,
    LOSSES,
    ROWWISE,
    bound_call,
    is_elementwise,
    is_random,
    keeps_values,
    reads_values,
    rounds_nothing,
    written_arguments,
)

#: The edges, which are asked whatever is drawn.
EDGES = (1, 0)
MAX_ELEMENTS = 1 << 16
MAX_RESULT_BYTES = 8 * MAX_ELEMENTS
#: More than the sample inputs of any scan or reduction have.
LONG = 1000
#: Lists of integers that are sizes; others are dimensions, strides and the like.
SIZE_LISTS = frozenset({"normalized_shape", "size", "output_size", "shape", "input_size", "input_sizes", "sizes"})
#: Ops along a dimension that torch does not tag as reductions, and searches in one.
ALONG_A_DIMENSION = frozenset(
    {
        *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "sort", "flip", "roll", "median", "nanmedian"),
        *("tril", "triu", "cat", "stack", "glu", "nanmean", "_weight_norm_interface", "renorm"),
        *("bucketize", "searchsorted"),
    }
)
#: Copies from or to places that indices name.
IN_PLACES = frozenset(
    {"gather", "take", "index_select", "embedding", "scatter", "index_copy", "index_fill", "masked_fill", "index"}
)


def shape_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with one of its sizes changed.

    To 0 (``empty``), to 1 (``single``), to more than 1,000 (``long``) or to another one (``resized``). Of a long call
    other sizes are long as well, where that makes few elements: which one of two has to be long nobody knows.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of the order and of the values.
    """
    if stem_of(schema.name) in IN_PLACES or not may_be_resized(record, schema):
        return  # Of copies by indices, which have many labels, the large call has other sizes.
    tensors = tensor_values((*record.args, *record.kwargs.values()))
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > 1})
    chance = random.Random(derive_seed(seed, "sizes"))  # noqa: S311 - a choice, no secret
    smallest = 0 if _has_empty_answer(schema) else 1
    changes = [functools.partial(renamed, record, old) for old in sizes]
    has_free_dimensions = _has_free_dimensions(schema, tensors)
    if has_free_dimensions:
        # Of a square, one side alone: a kernel that takes one for the other is wrong.
        changes = [functools.partial(_widened, record, dim) for dim, size in enumerate(tensors[0].shape) if size > 1]
    drawn = [(change, new) for change in changes for new in _drawn(chance) if new >= smallest]
    chance.shuffle(drawn)
    for change, new in drawn:
        call = change(new)
        if new > LONG and not has_free_dimensions:
            call = _lengthened(call, [old for old in sizes if old != new], chance)
        if _is_moderate(call) and tensor_values((*call.args, *call.kwargs.values())) != tensors:
            try:
                yield _label(new), traced_record(call, seed=seed)
            except CannotRebuild:
                continue


def _lengthened(call: TracedCall, sizes: Sequence[int], chance: random.Random) -> TracedCall:
    """The call with one size after another long, where that makes no large one of it."""
    for old in chance.sample(sizes, len(sizes)):
        longer = renamed(call, old, chance.randrange(LONG + 1, 2 * LONG, 2))
        call = longer if _is_moderate(longer) else call
    return call


def _is_moderate(call: TracedCall) -> bool:
    """Whether neither arguments nor results are large: a size that is an output's in three dimensions is soon."""
    return largest(call) <= MAX_ELEMENTS and result_bytes(call) <= MAX_RESULT_BYTES


def _drawn(chance: random.Random) -> list[int]:
    """The edges, two sizes around what blocks are made of, and odd ones: small, of one block, of a few, and long."""
    powers = [1 << chance.randint(4, 9) for _ in range(2)]
    small, one, few = chance.randint(2, 9), chance.randrange(11, 64, 2), chance.randrange(65, 800, 2)
    return [*EDGES, powers[0] - 1, powers[1] + 1, small, one, few, chance.randrange(LONG + 1, 2 * LONG, 2)]


def _has_empty_answer(schema: OpSchema) -> bool:
    """Whether honest kernels agree on what no element comes to, as they do not on its variance or a product."""
    stem = stem_of(schema.name)
    if stem in ("var", "std", "var_mean", "std_mean"):
        return False
    return is_elementwise(schema) or "reduction" in group_tags(schema) or stem in ALONG_A_DIMENSION


def _label(size: int) -> str:
    return "long" if size >= LONG else {0: "empty", 1: "single"}.get(size, "resized")


def may_be_resized(record: CallRecord, schema: OpSchema) -> bool:
    """Whether a call's sizes may be others: its values follow from its arguments, and honest kernels agree on them."""
    call = bound_call(record)
    if call is None or is_random(schema) or not reads_values(schema):
        return False
    # Generated factors are close enough to 1 for a product of any length.
    if (keeps_values(schema) and call.stem not in ALONG_A_DIMENSION) or _rounds_midway(
        call.stem, [slot.tensor.dtype for slot in call.slots]
    ):
        return False
    numbers = [slot.tensor.storage for slot in call.slots]
    beside = frozenset() if schema.variant is Variant.OUT else written_arguments(schema) - {"self"}
    if sorted(numbers) != list(range(len(record.storages))) or beside:
        return False
    stem = stem_of(schema.name)
    known = stem in CONTRACTIONS | LOSSES or stem in ROWWISE or stem in ALONG_A_DIMENSION or _is_in_places(schema, call)
    return known or is_elementwise(schema) or "reduction" in group_tags(schema)


def _is_in_places(schema: OpSchema, call: BoundCall) -> bool:
    return call.stem in IN_PLACES and rounds_nothing(schema, call)


def _rounds_midway(stem: str, dtypes: list[str]) -> bool:
    """Whether eager rounds a scale and a shift to half precision: of many elements one is then too far off."""
    return stem in ROWWISE and not stem.endswith("softmax") and not {"f16", "bf16"}.isdisjoint(dtypes)


def largest(call: TracedCall) -> int:
    """Elements of a call's largest tensor."""
    return max((math.prod(t.shape) for t in tensor_values((*call.args, *call.kwargs.values()))), default=0)


def _has_free_dimensions(schema: OpSchema, tensors: Sequence[TensorValue]) -> bool:
    """Whether each dimension of a call's tensors, which have one shape, may have another size by itself."""
    stem = stem_of(schema.name)
    if len({tensor.shape for tensor in tensors}) != 1:
        return False
    along = stem in ALONG_A_DIMENSION or stem.endswith("softmax") or stem == "trace"
    return along or is_elementwise(schema) or ("reduction" in group_tags(schema) and stem not in CONTRACTIONS)


def _widened(record: CallRecord, dim: int, new: int) -> TracedCall:
    """The call with another size of one dimension of all tensors, which have one shape and become dense."""

    def other(value: Value) -> Value:
        if isinstance(value, TensorValue):
            shape = (*value.shape[:dim], new, *value.shape[dim + 1 :])
            return TensorValue(value.storage, value.dtype, shape, dense_strides(shape), 0, value.device)
        if isinstance(value, SequenceValue):
            return SequenceValue(tuple([other(item) for item in value.items]), value.is_tuple)
        return value

    return TracedCall(
        op=record.op,
        args=tuple([other(value) for value in record.args]),
        kwargs={name: other(value) for name, value in record.kwargs.items()},
    )


def renamed(record: CallRecord | TracedCall, old: int, new: int) -> TracedCall:
    """The call with one size for another wherever it stands, its tensors dense."""
    positional = [argument.name for argument in overload(record.op)._schema.arguments if not argument.kwarg_only]
    return TracedCall(
        op=record.op,
        args=tuple([_with_size(value, name, old, new) for name, value in zip(positional, record.args, strict=False)]),
        kwargs={name: _with_size(value, name, old, new) for name, value in record.kwargs.items()},
    )


def _with_size(value: Value, name: str, old: int, new: int) -> Value:
    if isinstance(value, TensorValue):
        shape = tuple([new if size == old else size for size in value.shape])
        return TensorValue(value.storage, value.dtype, shape, dense_strides(shape), 0, value.device)
    if isinstance(value, SequenceValue):
        return SequenceValue(tuple([_with_size(item, name, old, new) for item in value.items]), value.is_tuple)
    return new if type(value) is int and value == old and name in SIZE_LISTS else value
