"""The same call on tensors so large that counts and offsets leave the range that blocks, grids and scans start from.

============= =====================================================================================
label         what is large
============= =====================================================================================
``vast``      more than 2^21 elements in all
``long_row``  65,537 to 131,072 elements along the dimension that the op works along, in few rows
``many_rows`` 65,537 to 131,072 along another one, of few elements each: more than a grid has blocks
              in its second and third dimensions; of products and concatenations any one dimension
============= =====================================================================================

Sizes are drawn. Only ops that take a time linear in their elements are asked. Values are generated, and where they are
added up the sums are exact in any order: of a million roundings two right kernels make different ones.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import group_tags
from opsmith.core.case import LARGE_LABELS, CallRecord, GeneratedStorage, Storage, TensorValue, Value, tensor_values
from opsmith.core.domains import Domain, Integers, Normal
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.core.trace import TracedCall
from opsmith.suites.traced_size import result_bytes
from opsmith.suites.valid_inputs import traced_record
from opsmith.suites.valid_inputs.binding import CannotRebuild, stem_of
from opsmith.suites.valid_inputs.fitting import fitted
from opsmith.suites.variants.layouts import dense_strides
from opsmith.suites.variants.scope import CONTRACTIONS, LOSSES, bound_call, is_elementwise, is_placed
from opsmith.suites.variants.shapes import IN_PLACES, largest, may_be_resized, renamed

#: Elements of a vast call are more than this and at most half as many more.
VAST = 1 << 21
#: Rows are longer and more than this, and at most twice as long and as many.
LONG = 1 << 16
#: Other sizes of a large call, and at most how many elements they come to beside a long dimension.
SMALL = (2, 3, 4, 5, 7)
FEW = 7
#: Ops along a dimension that are exact, or whose sums the biggest elements dominate.
_ALONG = frozenset(
    {
        *("cummax", "cummin", "sort", "flip", "roll", "_softmax", "_log_softmax", "logsumexp", "tril", "triu"),
        *("max", "min", "amax", "amin", "argmax", "argmin", "aminmax", "any", "all", "count_nonzero"),
        *("sum", "mean", "nansum", "prod", "cumsum", "cumprod", "linalg_vector_norm", "norm", "median", "nanmedian"),
    }
)
#: Of copies by indices: more dimensions are not made large.
MOST_DIMENSIONS = 3
#: Ops of several tensors whose sizes differ.
_OF_SEVERAL = frozenset(
    {
        *("mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "linear", "outer", "ger"),
        *("cat", "stack", "glu"),
    }
)
#: Ops of single elements whose result is nearly always the same one unless some of them are zero, or equal.
_OF_ZEROS = frozenset({"logical_and", "logical_or", "logical_xor", "logical_not", "eq", "ne", "heaviside"})
_PRODUCTS = frozenset({"prod", "cumprod"})
_EXPONENTIALS = frozenset({"_softmax", "_log_softmax", "logsumexp"})
#: Half types do not hold the running sums, which eager rounds here and there.
_RUNNING = frozenset({"cumsum", "cumprod"})


def large_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call on large tensors; labels as in the module's docstring.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of sizes and values.
    """
    chance = random.Random(derive_seed(seed, "large"))  # noqa: S311 - a choice, no secret
    shape = _common_shape(record, schema)
    if shape is not None:
        calls = {k: _reshaped(record, shape, wanted) for k, wanted in _shapes(record, schema, shape, chance).items()}
    else:
        calls = _with_one_large_size(record, schema, chance)
    for label, call in calls.items():
        try:
            large = traced_record(call, seed=seed)
        except CannotRebuild:
            continue
        yield label, msgspec.structs.replace(large, storages=tuple([_summable(s, schema) for s in large.storages]))


def _with_one_large_size(record: CallRecord, schema: OpSchema, chance: random.Random) -> dict[str, TracedCall]:
    """A product or a concatenation of which one size is large, wherever it stands."""
    stem = stem_of(schema.name)
    if stem not in _OF_SEVERAL | IN_PLACES or not may_be_resized(record, schema):
        return {}
    if stem in IN_PLACES:
        return _with_all_sizes_large(record, chance)
    tensors = tensor_values((*record.args, *record.kwargs.values()))
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > 1})
    calls = [renamed(record, size, chance.randint(LONG + 1, 2 * LONG)) for size in sizes]
    # Rows and columns of one size make a square of a result.
    most_bytes = VAST * torch_dtype(tensors[0].dtype).itemsize
    affordable = [call for call in calls if LONG < largest(call) <= VAST and result_bytes(call) <= most_bytes]
    return {LARGE_LABELS[2]: chance.choice(affordable)} if affordable else {}


def _with_all_sizes_large(record: CallRecord, chance: random.Random) -> dict[str, TracedCall]:
    """A copy of many numbers from many: of few, none would lie in a narrow band."""
    tensors = tensor_values((*record.args, *record.kwargs.values()))
    sizes = sorted({size for tensor in tensors for size in tensor.shape if size > 1})
    rank = max(len(tensor.shape) for tensor in tensors)
    whole = [tensor for tensor in tensors if len(tensor.shape) == rank and min(tensor.shape, default=0) > 1]
    if not whole or rank > MOST_DIMENSIONS or any(set(tensor.shape) <= {1} for tensor in tensors):
        return {}
    side = int(LONG ** (1 / rank)) + 1
    larger = [size for size in chance.sample(range(side, 2 * side), len(sizes)) if size > sizes[-1]]
    if len(larger) < len(sizes):
        return {}
    call: CallRecord | TracedCall = record
    for old, new in zip(sizes, larger, strict=True):
        call = renamed(call, old, new)
    assert isinstance(call, TracedCall)
    if stem_of(record.op) == "take":  # Its result has the shape of the places alone.
        copied, places = call.args
        assert isinstance(places, TensorValue)
        shape = (LONG + larger[0],)
        call = msgspec.structs.replace(call, args=(copied, msgspec.structs.replace(places, shape=shape, strides=(1,))))
    return {LARGE_LABELS[2]: call}


def _common_shape(record: CallRecord, schema: OpSchema) -> tuple[int, ...] | None:
    """The shape that all tensors of a call have or broadcast to; None where the op is not asked on large ones."""
    call, stem = bound_call(record), stem_of(schema.name)
    if call is None or not call.slots or not may_be_resized(record, schema):
        return None
    reduced = call.integer("reduction", default=1 if "reduction" in schema.schema else 0)
    by_element = is_elementwise(schema) or (stem in LOSSES and not reduced)
    if not (by_element or stem in _ALONG) or any(is_placed(schema, slot.name) for slot in call.slots):
        return None
    if stem in _RUNNING and any(slot.tensor.dtype in ("f16", "bf16") for slot in call.slots):
        return None
    if not by_element and len(call.slots) > 1:
        return None
    shape = max((slot.tensor.shape for slot in call.slots), key=len)
    fits = all(
        size in (1, whole)
        for slot in call.slots
        for size, whole in zip(reversed(slot.tensor.shape), reversed(shape), strict=False)
    )
    return shape if shape and fits and all(shape) else None


def _shapes(
    record: CallRecord, schema: OpSchema, shape: tuple[int, ...], chance: random.Random
) -> dict[str, tuple[int, ...]]:
    """Large shapes of as many dimensions, by label."""
    rank, vast, long, many = len(shape), *LARGE_LABELS
    small = [chance.choice(SMALL) for _ in shape]
    place = chance.randrange(rank)
    rest = math.prod(size for dim, size in enumerate(small) if dim != place)
    shapes = {vast: _at(small, place, (VAST + chance.randint(1, VAST // 2)) // rest + 2 | 1)}
    along = _along(record, schema, rank, chance)
    if along is not None:
        shapes[long] = _at(_few(rank, chance), along, chance.randint(LONG + 1, 2 * LONG))
    others = [dim for dim in range(rank) if dim != along]
    if others and rank > 1:
        shapes[many] = _at(_few(rank, chance), chance.choice(others), chance.randint(LONG + 1, 2 * LONG))
    return shapes


def _few(rank: int, chance: random.Random) -> list[int]:
    """Sizes that come to few elements: a long dimension makes many of them."""
    sizes = [1] * rank
    for dim in chance.sample(range(rank), min(rank, 2)):  # One of the two may be where the long dimension comes.
        sizes[dim] = chance.choice([size for size in SMALL if size <= FEW // max(sizes)] or [1])
    return sizes


def _at(sizes: list[int], dim: int, size: int) -> tuple[int, ...]:
    return (*sizes[:dim], size, *sizes[dim + 1 :])


def _along(record: CallRecord, schema: OpSchema, rank: int, chance: random.Random) -> int | None:
    """The dimension that the op works along, any of several; None for an elementwise op."""
    call = bound_call(record)
    if call is None or is_elementwise(schema):
        return None
    dims = [dim for dim in call.integers("dim") if -rank <= dim < rank]
    return chance.choice(dims) % rank if dims else chance.randrange(rank)


def _reshaped(record: CallRecord, shape: tuple[int, ...], wanted: tuple[int, ...]) -> TracedCall:
    """The call with other sizes, counted from the last dimension; what broadcasts goes on doing so."""

    def other(value: Value) -> Value:
        if not isinstance(value, TensorValue):
            return value
        pairs = zip(value.shape, wanted[len(shape) - len(value.shape) :], strict=True)
        sizes = tuple([1 if size == 1 else large for size, large in pairs])
        return TensorValue(value.storage, value.dtype, sizes, dense_strides(sizes), 0, value.device)

    return TracedCall(
        op=record.op,
        args=tuple([other(value) for value in record.args]),
        kwargs={name: other(value) for name, value in record.kwargs.items()},
    )


def _summable(storage: Storage, schema: OpSchema) -> Storage:
    """A generated storage with values whose sums and products are exact, or among which some are zero and equal."""
    stem = stem_of(schema.name)
    assert isinstance(storage, GeneratedStorage)
    dtype = torch_dtype(storage.dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        return storage
    if is_elementwise(schema):
        few = fitted(Integers(-1, 2), storage.dtype)
        return msgspec.structs.replace(storage, domain=few) if stem in _OF_ZEROS else storage
    domain: Domain | None = None
    if stem in _PRODUCTS:
        domain = Integers(0, 2, 2.0, -1.0)
    elif stem in _EXPONENTIALS:
        domain = Normal(8.0)
    elif "reduction" in group_tags(schema) or stem in _RUNNING or stem in CONTRACTIONS:
        domain = Integers(-1, 2)
    return storage if domain is None else msgspec.structs.replace(storage, domain=fitted(domain, storage.dtype))
