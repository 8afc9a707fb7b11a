"""Which of an op's tensors may hold other values, and which values leave every honest kernel right.

Rounding differs between honest kernels. Where an op magnifies it (a difference of large numbers
inside a nonlinear function, a product of many factors, a step) two right kernels differ by more than
a tolerance grants, so such values are not asked. A range that :mod:`opsmith.suites.valid_inputs`
declares for an argument is kept, except where the op works element by element.
"""

from __future__ import annotations

import functools
import itertools
import math
from typing import NamedTuple

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import aten_schemas, overload
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, Variant
from opsmith.core.trace import TracedCall
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall, CannotRebuild, stem_of
from opsmith.suites.valid_inputs.indices import INDEX_RULES
from opsmith.suites.valid_inputs.values import COMMON_RULES, VALUE_RULES

#: Every label of floating values, in the order in which they are proposed.
LABELS = ("signed", "large", "huge", "tiny", "offset", "structured", "mixed", "special", "denormals")
WHOLE_LABELS = ("signed", "large")

_SUMMED = frozenset(LABELS) - {"huge", "special", "denormals"}
_RANGED = frozenset({"signed", "large", "tiny", "special"})

#: Ops that are sums of products of their tensors.
CONTRACTIONS = frozenset(
    {
        *("mm", "bmm", "addmm", "addbmm", "baddbmm", "addmv", "mv", "addr", "dot", "vdot", "linear", "matmul"),
        *("convolution", "_convolution", "conv1d", "conv2d", "conv3d", "_addmm_activation", "cumsum", "trace"),
        *("inner", "outer", "ger", "tensordot", "einsum", "kron", "chain_matmul"),
        *("avg_pool1d", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"),
    }
)
#: Ops that bring each row (or group of rows) of their first tensor to a common scale.
ROWWISE = frozenset(
    {
        *("_softmax", "softmax", "_log_softmax", "log_softmax", "_safe_softmax", "native_layer_norm", "layer_norm"),
        *("native_group_norm", "group_norm", "native_batch_norm", "_native_batch_norm_legit", "batch_norm"),
        *("cudnn_batch_norm", "_batch_norm_with_update", "rms_norm", "_fused_rms_norm", "instance_norm"),
    }
)
_ROWWISE_LABELS = frozenset(LABELS) - {"special", "denormals"}
#: What rows of fewer elements are brought to is mostly rounding when all of them are large.
ENOUGH_TO_CENTRE = 16
#: The gradient that comes in takes part linearly, but next to factors that cancel: it stays moderate.
_GRADIENT_LABELS = frozenset({"signed", "tiny", "structured"})
_OTHER_LABELS = frozenset({"signed", "structured"})

#: Ops that keep the values of the call, by their names' beginnings.
KEPT = {
    ("linalg_", "_linalg_", "lu_", "_lu_", "cholesky", "_cholesky", "triangular_", "matrix_exp", "pinverse"): (
        "A matrix of another kind may be singular, and its factors are then a matter of rounding."
    ),
    ("geqrf", "orgqr", "ormqr", "svd", "qr", "det", "logdet", "slogdet", "inverse", "lstsq"): "As above.",
    ("special_", "polygamma", "digamma", "lgamma", "mvlgamma", "igamma", "erfinv", "i0"): (
        "Approximated inside a range; beyond it, and near poles, eager itself is off."
    ),
    ("histc", "histogram", "_histogramdd", "bucketize", "searchsorted", "logit"): (
        "A rounding error at an edge is a whole step."
    ),
    ("remainder", "fmod", "floor_divide"): "As above: a quotient next to a whole number.",
    ("prod", "cumprod", "logcumsumexp"): "The error of a long product grows with its length and overflows midway.",
}


#: Ops whose result is about the layout, or that take a storage apart by themselves.
ABOUT_LAYOUT = (
    *("as_strided", "set", "resize", "empty", "new_empty", "_reshape_alias", "_unsafe_view", "lift", "swap"),
    *("view_as", "reshape", "_pin_memory", "record_stream", "is_", "_resize"),
)
#: Ops that trust their caller: what they read by address is dense, or eager itself answers wrongly.
TRUSTING = (
    *("_scaled_dot_product", "_flash_attention", "_efficient_attention", "_embedding_bag", "_weight_norm_interface"),
    *itertools.chain(*itertools.islice(KEPT, 2)),  # Those of matrices.
)

#: Labels that some ops go without, by stem.
WITHOUT: dict[str, tuple[frozenset[str], str]] = {
    "addcdiv": (frozenset({"large", "offset", "mixed"}), "A sum and a quotient, both large, cancel."),
    "lerp": (frozenset({"large", "offset", "mixed"}), "Two products, both large, cancel."),
    "atan2": (frozenset({"denormals"}), "Hardware division flushes them, and their ratio decides."),
    "cumsum": (frozenset({"structured", "mixed"}), "In half types eager itself rounds between the blocks of a row."),
}


class Freedom(NamedTuple):
    """What may be put into one storage.

    Attributes:
        slot: the first tensor that looks at it.
        labels: of the values.
        one_sign: large values are all positive: what a reduction takes the mean of must not cancel.
    """

    slot: ArgumentSlot
    labels: frozenset[str]
    one_sign: bool


def bound_call(record: CallRecord) -> BoundCall | None:
    """The arguments by name; None where they do not fit the schema."""
    try:
        return BoundCall(TracedCall(op=record.op, args=record.args, kwargs=record.kwargs))
    except CannotRebuild:
        return None


def freedoms(record: CallRecord, schema: OpSchema) -> dict[int, Freedom]:
    """Storages whose values may change, by number."""
    call = bound_call(record)
    if call is None or is_random(schema) or not reads_values(schema):
        return {}
    by_storage: dict[int, list[ArgumentSlot]] = {}
    for slot in call.slots:
        by_storage.setdefault(slot.tensor.storage, []).append(slot)
    one_sign = not is_elementwise(schema) and call.stem not in CONTRACTIONS
    found = {}
    for number, slots in by_storage.items():
        labels = frozenset.intersection(*[_labels(schema, call, slot) for slot in slots])
        if labels and len({slot.tensor.dtype for slot in slots}) == 1:
            found[number] = Freedom(slots[0], labels, one_sign)
    return found


def has_rule(schema: OpSchema, name: str) -> bool:
    """Whether values of this argument have a declared domain."""
    stem = stem_of(schema.name)
    return is_placed(schema, name) or name in VALUE_RULES.get(stem, {}) or name in COMMON_RULES


def is_placed(schema: OpSchema, name: str) -> bool:
    """Whether this argument holds places: indices, lengths, class numbers."""
    return name in INDEX_RULES.get(stem_of(schema.name), {})


def is_random(schema: OpSchema) -> bool:
    """Whether the result is drawn."""
    return "nondeterministic_seeded" in tags(schema)


def is_elementwise(schema: OpSchema) -> bool:
    """Whether each element of the result follows from one element of each tensor."""
    return "pointwise" in tags(schema)


def reads_values(schema: OpSchema) -> bool:
    """Whether the result is more than another view of the memory."""
    return schema.variant is not Variant.VIEW


def is_about_layout(schema: OpSchema) -> bool:
    """Whether the result is about the layout of the memory, or is another view of it."""
    return not reads_values(schema) or stem_of(schema.name).startswith(ABOUT_LAYOUT)


def is_trusting(schema: OpSchema) -> bool:
    """Whether the op is handed dense and aligned tensors, as autograd hands them to a backward op."""
    stem = stem_of(schema.name)
    return not is_elementwise(schema) and (stem.startswith(TRUSTING) or "_backward" in stem)


@functools.cache
def written_arguments(schema: OpSchema) -> frozenset[str]:
    """Arguments that the schema marks as written."""
    arguments = overload(schema.name)._schema.arguments
    return frozenset(a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write)


@functools.cache
def tags(schema: OpSchema) -> frozenset[str]:
    """Torch's tags of an overload, of its functional one, and of the op whose gradient it is.

    In-place and ``out=`` overloads are not tagged throughout and gradients hardly at all; the
    gradient of an elementwise op is elementwise.
    """
    schemas = aten_schemas()
    stem = stem_of(schema.name)
    related = [schema.name, schema.functional, f"{stem.removesuffix('_backward')}.default", f"{stem}.Tensor"]
    return frozenset(tag for name in related if name in schemas for tag in schemas[name].tags)


def _labels(schema: OpSchema, call: BoundCall, slot: ArgumentSlot) -> frozenset[str]:
    dtype = torch_dtype(slot.tensor.dtype)
    if slot.name in written_arguments(schema) and schema.variant is not Variant.INPLACE:
        return frozenset()
    if slot.tensor.dtype == "b8" or is_placed(schema, slot.name) or slot.name in COMMON_RULES:
        return frozenset()
    ranged = slot.name in VALUE_RULES.get(call.stem, {})
    if not (dtype.is_floating_point or dtype.is_complex):
        plain = not ranged and (is_elementwise(schema) or "reduction" in tags(schema))
        return frozenset(WHOLE_LABELS) if plain else frozenset()
    if keeps_values(schema) or call.value("rounding_mode") is not None:
        return frozenset()
    if call.stem in ROWWISE and not ranged:
        return _rowwise_labels(call, slot)
    return _float_labels(schema, call.stem, slot.name, ranged=ranged) - WITHOUT.get(call.stem, (frozenset(), ""))[0]


def keeps_values(schema: OpSchema) -> bool:
    """Whether the op is declared in :data:`KEPT`; a reduction (a norm) is not meant."""
    stem = stem_of(schema.name)
    return any(map(stem.startswith, KEPT)) and not ("reduction" in tags(schema) and stem != "prod")


def _float_labels(schema: OpSchema, stem: str, name: str, *, ranged: bool) -> frozenset[str]:
    if "_backward" in stem:
        return _GRADIENT_LABELS if name.startswith("grad") or (is_elementwise(schema) and not ranged) else frozenset()
    if is_elementwise(schema):
        return _RANGED if ranged else frozenset(LABELS)
    if ranged:
        return frozenset()
    if stem in CONTRACTIONS or "reduction" in tags(schema):
        return _SUMMED
    return _OTHER_LABELS


def _rowwise_labels(call: BoundCall, slot: ArgumentSlot) -> frozenset[str]:
    """All that rows can be brought to scale from; weights stay moderate."""
    if slot is not call.slots[0]:
        return frozenset({"signed"})
    if call.stem.endswith("softmax"):
        return _ROWWISE_LABELS
    if _row_elements(call, slot) < ENOUGH_TO_CENTRE:
        return _OTHER_LABELS
    # Half types keep too few bits of a large row for `x * scale + shift`, eager's way, to have one right answer.
    steady = slot.tensor.dtype not in ("f16", "bf16") and (call.number("eps") or 0.0) >= 0
    return _ROWWISE_LABELS if steady else _OTHER_LABELS | {"tiny"}


def _row_elements(call: BoundCall, slot: ArgumentSlot) -> int:
    """Elements that are normalised together."""
    shape, elements = slot.tensor.shape, math.prod(slot.tensor.shape)
    if normalized := call.integers("normalized_shape"):
        return math.prod(normalized)
    if groups := call.integer("group") or call.integer("num_groups"):
        return elements // max(shape[0] * groups, 1)
    return elements // max(shape[1] if len(shape) > 1 else 1, 1)
