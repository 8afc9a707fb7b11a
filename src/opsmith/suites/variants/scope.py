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
from opsmith.aten.schemas import group_tags, overload
from opsmith.aten.unrounded import COPYING, ORDERING
from opsmith.core.case import CallRecord
from opsmith.core.op import OpSchema, Variant
from opsmith.core.trace import TracedCall
from opsmith.suites.valid_inputs.binding import ArgumentSlot, BoundCall, CannotRebuild, stem_of
from opsmith.suites.valid_inputs.indices import INDEX_RULES
from opsmith.suites.valid_inputs.values import COMMON_RULES, VALUE_RULES

#: Every label of floating values, in the order in which they are proposed.
LABELS = (
    *("signed", "large", "huge", "tiny", "offset", "structured", "mixed", "special", "nan", "infinite", "ties"),
    *("denormals", "boundaries", "sweep"),
)
WHOLE_LABELS = ("signed", "large")

#: Of a row: one NaN, or infinities, in some of its places. What a sum or a scale makes of them has one right answer.
_SINGLE = frozenset({"nan", "infinite"})
#: On these only an op that works element by element is asked.
DENSE = frozenset({"boundaries", "sweep"})
_SUMMED = frozenset(LABELS) - DENSE - {"huge", "special", "ties", "denormals"}
_RANGED = frozenset({"signed", "large", "tiny", "special"}) | DENSE
_ELEMENTWISE = frozenset(LABELS) - _SINGLE - {"ties"}

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
_ROWWISE_LABELS = frozenset(LABELS) - DENSE - {"special", "ties", "denormals"}
#: What rows of fewer elements are brought to is mostly rounding when all of them are large.
ENOUGH_TO_CENTRE = 16
#: Losses that take tensors of one shape element by element, though torch does not say so, and may add the results up.
LOSSES = frozenset(
    {
        *("binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss", "smooth_l1_loss", "huber_loss"),
        *("soft_margin_loss", "hinge_embedding_loss", "margin_ranking_loss", "log_sigmoid_forward"),
    }
)
#: These, and what else takes its tensors element by element.
BENT = LOSSES | {"hardswish", "_prelu_kernel", "multi_margin_loss", "multilabel_margin_loss_forward"}
#: Of these, what works element by element whatever its arguments.
UNTAGGED = frozenset({"hardswish"})
#: Losses, and what they are made of, that an infinity makes infinite or zero in any formula.
_TAKING_INFINITIES = frozenset({"mse_loss", "smooth_l1_loss", "huber_loss", "soft_margin_loss", "log_sigmoid_forward"})
#: Gradients that are passed on or cut off, whatever they are.
_SELECTING = frozenset({"threshold_backward", "hardtanh_backward", "softshrink_backward", "hardshrink_backward"})
#: Dtypes whose denormals Triton's interpreter flushes where it widens them.
_FLUSHED = frozenset({"bf16"})
#: Gradients whose sum over a row is part of each of its results.
_SUMMING_ROWS = frozenset({"_softmax_backward_data", "_log_softmax_backward_data"})
#: Ops with steps: which side a rounded quotient falls on is nobody's, but that of an exact one is certain.
STEPPED = frozenset({"remainder", "fmod", "floor_divide"})
#: Ops of :data:`KEPT` whose bends are where their domain ends.
BOUNDED = frozenset({"logit", "erfinv", "special_erfinv"})
#: Ops of whole numbers that are exact modulo the number of values of their dtype.
WRAPPING = frozenset(
    {
        *("add", "sub", "rsub", "mul", "neg", "abs", "square", "bitwise_and", "bitwise_or", "bitwise_xor"),
        *("bitwise_not", "__and__", "__or__", "__xor__"),
    }
)
#: Of these, what ignores its first tensor, NaN in it too, where the factor ``beta`` is zero.
WITH_BETA = frozenset({"addmm", "addbmm", "baddbmm", "addmv", "addr", "_addmm_activation"})
#: Of these, what adds up its first tensor's elements as they are; a product may be split or made of sums of others.
ADDED_UP = frozenset(
    {*("cumsum", "trace", "avg_pool1d", "avg_pool2d", "avg_pool3d"), "_adaptive_avg_pool2d", "_adaptive_avg_pool3d"}
)
#: Ops that add up in places that indices name, of which a NaN or an infinity makes the same in any order.
ADDED_IN_PLACES = frozenset({"scatter_add", "index_add"})
#: Differences of two products, each of one element of either tensor: what an infinity makes of them is certain.
CROSSED = frozenset({"linalg_cross", "cross"})
#: Arguments of ops that round nothing which may hold any number, though traced calls give them a range.
ANY_NUMBER = frozenset({"self", "elements", "test_elements"})
#: Ops of :mod:`opsmith.aten.unrounded` that keep the values of the call all the same.
CONVERTING = frozenset({"_to_copy", "copy", "lu_unpack", "hash_tensor", "_local_scalar_dense", "item"})
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
    "add": (frozenset({"sweep"}), "Numbers of any size, one of them scaled, cancel."),
    "sub": (frozenset({"sweep"}), "As above."),
    "rsub": (frozenset({"sweep"}), "As above."),
    "addcmul": (frozenset({"sweep"}), "As above."),
    "addcdiv": (frozenset({"large", "offset", "mixed", "sweep"}), "A sum and a quotient, both large, cancel."),
    "lerp": (frozenset({"large", "offset", "mixed", "sweep"}), "Two products, both large, cancel."),
    "special_i0e": (frozenset({"sweep"}), "In bfloat16 eager itself is off where it is asked element by element."),
    "atan2": (frozenset({"denormals"}), "Hardware division flushes them, and their ratio decides."),
    "cumsum": (frozenset({"structured", "mixed"}), "In half types eager itself rounds between the blocks of a row."),
    "var_mean": (frozenset({"infinite"}), "How the mean is found decides whether that of an infinity is infinite."),
    "std_mean": (frozenset({"infinite"}), "As above."),
    "mode": (frozenset({"special", "nan"}), "How often a NaN occurs is a matter of how it is compared."),
    "_unique": (frozenset({"special", "nan"}), "As above."),
    "_unique2": (frozenset({"special", "nan"}), "As above."),
    "unique_dim": (frozenset({"special", "nan"}), "As above."),
    "unique_consecutive": (frozenset({"special", "nan"}), "As above."),
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
    return "nondeterministic_seeded" in group_tags(schema)


def is_elementwise(schema: OpSchema) -> bool:
    """Whether each element of the result follows from one element of each tensor."""
    return "pointwise" in group_tags(schema) or stem_of(schema.name) in UNTAGGED


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


def _labels(schema: OpSchema, call: BoundCall, slot: ArgumentSlot) -> frozenset[str]:
    dtype = torch_dtype(slot.tensor.dtype)
    if slot.name in written_arguments(schema) and schema.variant is not Variant.INPLACE:
        return frozenset()
    if slot.tensor.dtype == "b8" or is_placed(schema, slot.name) or slot.name in COMMON_RULES:
        return frozenset()
    ranged = slot.name in VALUE_RULES.get(call.stem, {})
    if rounds_nothing(schema, call) and not (is_elementwise(schema) and "_backward" in call.stem):
        found = _unrounded_labels(schema, slot, ranged=ranged, whole=not (dtype.is_floating_point or dtype.is_complex))
    elif not (dtype.is_floating_point or dtype.is_complex):
        return _whole_labels(schema, call, ranged=ranged)
    elif has_steps(call):
        found = frozenset({"boundaries"})
    elif keeps_values(schema):
        found = _kept_labels(schema, call.stem)
    elif call.stem in ROWWISE and not ranged:
        found = _rowwise_labels(call, slot)
    else:
        found = _float_labels(schema, call.stem, slot.name, ranged=ranged)
    if call.stem == "_cdist_forward" and call.value("p") not in (0.0, math.inf):
        found |= {"nan"}  # In how many places numbers differ, and the greatest difference, is a number on some devices.
    if call.stem in _SELECTING and slot.name.startswith("grad") and slot.tensor.dtype not in _FLUSHED:
        found |= {"denormals"}  # It is passed on as it is.
    found -= WITHOUT.get(call.stem, (frozenset(), ""))[0]
    return found - _SINGLE - DENSE if dtype.is_complex or dtype.itemsize == 1 else found


def has_steps(call: BoundCall) -> bool:
    """Whether a rounding error before a step makes another result."""
    return call.stem in STEPPED or call.value("rounding_mode") is not None


def _kept_labels(schema: OpSchema, stem: str) -> frozenset[str]:
    """What is certain of ops that are approximated inside a range, and of long products."""
    if is_elementwise(schema):
        return DENSE if stem in BOUNDED else frozenset({"sweep"})
    return _SINGLE if stem in _SCALED_UP else frozenset()


def _whole_labels(schema: OpSchema, call: BoundCall, *, ranged: bool) -> frozenset[str]:
    if ranged or not (is_elementwise(schema) or "reduction" in group_tags(schema)):
        return frozenset()
    if not is_elementwise(schema) or keeps_values(schema):
        return frozenset(WHOLE_LABELS)
    return frozenset({*WHOLE_LABELS, "boundaries", *(("huge",) if call.stem in WRAPPING else ())})


def rounds_nothing(schema: OpSchema, call: BoundCall) -> bool:
    """Whether each number of the result is one of the call's, a count or a place."""
    stem = call.stem.removesuffix("_copy")
    if stem in _PLACING:
        return call.value(_PLACING[stem]) in (None, False)
    return stem in COPYING | ORDERING and stem not in CONVERTING and not is_random(schema)


#: Ops that place numbers unless this argument says how to combine them.
_PLACING = {"scatter": "reduce", "index_put": "accumulate", "_index_put_impl": "accumulate", "put": "accumulate"}
#: Long products and what is near them, of which one NaN or infinity makes the same whatever the order.
_SCALED_UP = frozenset({"prod", "cumprod", "logcumsumexp", "_logcumsumexp"})


def _unrounded_labels(schema: OpSchema, slot: ArgumentSlot, *, ranged: bool, whole: bool) -> frozenset[str]:
    flushed = {"denormals"} if slot.tensor.dtype in _FLUSHED else set()
    if is_elementwise(schema):
        if whole:
            return frozenset() if ranged else frozenset({*WHOLE_LABELS, "huge", "boundaries"})
        return _RANGED | ({"denormals"} - flushed) if ranged else _ELEMENTWISE
    if ranged and slot.name not in ANY_NUMBER:
        return frozenset()
    if whole:
        return frozenset({*WHOLE_LABELS, "huge", "ties"})
    return frozenset(LABELS) - DENSE - flushed


def keeps_values(schema: OpSchema) -> bool:
    """Whether the op is declared in :data:`KEPT`; a reduction (a norm) is not meant."""
    stem = stem_of(schema.name)
    return (
        any(map(stem.startswith, KEPT))
        and stem not in CROSSED
        and not ("reduction" in group_tags(schema) and stem != "prod")
    )


def _float_labels(schema: OpSchema, stem: str, name: str, *, ranged: bool) -> frozenset[str]:
    if stem.removesuffix("_backward") in BENT and not is_elementwise(schema):
        # Outside of a probability's range a GPU's eager mode asserts, also at a NaN.
        single = _SINGLE if stem in _TAKING_INFINITIES else {"nan"}
        return frozenset({"boundaries"}) | (frozenset() if ranged or "_backward" in stem else _OTHER_LABELS | single)
    if "_backward" in stem:
        return _backward_labels(schema, stem, is_gradient=name.startswith("grad"), ranged=ranged)
    if is_elementwise(schema):
        return _RANGED if ranged else _ELEMENTWISE
    if ranged:
        return _SINGLE if "reduction" in group_tags(schema) else frozenset()
    if stem in ADDED_UP or "reduction" in group_tags(schema):
        return _SUMMED
    if stem in CONTRACTIONS:
        if name == "self" and stem in WITH_BETA:
            # Added to the product: a NaN there would hide what became of one in the factors.
            return _SUMMED - {"nan"}
        # A convolution by products of sums spreads a NaN of its input, but none of the filter of a channel.
        return _SUMMED - _SINGLE | (frozenset() if "conv" in stem and name != "weight" else {"nan"})
    return _OTHER_LABELS | (_SINGLE if stem in ADDED_IN_PLACES | CROSSED else frozenset())


def _backward_labels(schema: OpSchema, stem: str, *, is_gradient: bool, ranged: bool) -> frozenset[str]:
    """What a gradient that comes in may be; where it is cut off, NaN in it is too: eager selects."""
    if not is_elementwise(schema):
        summed = {"nan"} if stem in _SUMMING_ROWS else frozenset[str]()
        return _GRADIENT_LABELS | summed if is_gradient else frozenset()
    if not is_gradient:
        return DENSE if ranged else _GRADIENT_LABELS | DENSE
    return _GRADIENT_LABELS | DENSE | (_SINGLE if stem in _SELECTING else frozenset({"nan"}))


def _rowwise_labels(call: BoundCall, slot: ArgumentSlot) -> frozenset[str]:
    """All that rows can be brought to scale from; weights stay moderate."""
    if slot is not call.slots[0]:
        return frozenset({"signed"})
    if call.stem.endswith("softmax"):
        return _ROWWISE_LABELS
    # How a mean is found decides whether that of an infinity is infinite.
    single = _SINGLE if "rms" in call.stem else frozenset({"nan"})
    if _row_elements(call, slot) < ENOUGH_TO_CENTRE:
        return _OTHER_LABELS | single
    # Half types keep too few bits of a large row for `x * scale + shift`, eager's way, to have one right answer.
    steady = slot.tensor.dtype not in ("f16", "bf16") and (call.number("eps") or 0.0) >= 0
    return (_ROWWISE_LABELS - _SINGLE if steady else _OTHER_LABELS | {"tiny"}) | single


def _row_elements(call: BoundCall, slot: ArgumentSlot) -> int:
    """Elements that are normalised together."""
    shape, elements = slot.tensor.shape, math.prod(slot.tensor.shape)
    if normalized := call.integers("normalized_shape"):
        return math.prod(normalized)
    if groups := call.integer("group") or call.integer("num_groups"):
        return elements // max(shape[0] * groups, 1)
    return elements // max(shape[1] if len(shape) > 1 else 1, 1)
