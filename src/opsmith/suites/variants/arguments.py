"""The same call with other arguments that are no tensors: each one of the schema away from what samples give it.

What an argument may be follows from its name in the schema and from what was given. A factor keeps its sign unless
the op is linear in it: what a negative slope or threshold means is eager's own business. Where eager refuses a value,
nobody is asked.
"""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import msgspec

from opsmith.aten.schemas import group_tags, overload
from opsmith.core.case import CallRecord, NamedValue, SequenceValue, TensorValue, Value
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.variants.scope import (
    CONTRACTIONS,
    bound_call,
    is_elementwise,
    is_placed,
    is_random,
    keeps_values,
)
from opsmith.suites.variants.values import value_variants

#: Factors that a result is linear in: any number will do.
LINEAR_FACTORS = frozenset({"alpha", "value", "weight"})
#: Factors of one sign: slopes, thresholds, scales.
POSITIVE_FACTORS = frozenset(
    {"negative_slope", "lambd", "delta", "scale", "input_scale", "threshold", "margin", "beta", "eps", "momentum"}
)
FLAGS = frozenset(
    {
        *("keepdim", "unbiased", "largest", "descending", "log_target", "log_input", "full", "scale_grad_by_freq"),
        *("count_include_pad", "align_corners", "zero_infinity", "include_self", "right", "is_result"),
    }
)
#: Values of arguments that choose among a few things an op does.
CHOICES: dict[str, tuple[Value, ...]] = {
    "approximate": ("none", "tanh"),
    "reduce": ("sum", "prod", "mean", "amax", "amin"),
    "correction": (0, 1, 2),
    "diagonal": (-2, -1, 0, 1, 2),
    "padding_idx": (-1, 0, 1, 2),
    # From a class to another one only: a target that was ignored may be no class.
    "ignore_index": (0, 1, 2),
    "divisor_override": (None, 2, 7),
    "padding_mode": (0, 1, 2),
}
#: Of which a gradient takes other values than the forward op: what it is given has the shape for those.
_FORWARD_ONLY = frozenset({"count_include_pad", "divisor_override", "ceil_mode", "dim", "keepdim"})
#: Choices that are left as they are, with the reason.
_NOT_OF = {
    ("padding_mode", "grid_sampler_2d"): "a point at the border is inside or outside by its rounding",
    ("padding_mode", "grid_sampler_3d"): "as above",
    ("reduce", "segment_reduce"): "eager takes names that its documentation does not",
}
#: Ops whose values are kept and whose arguments may be others all the same.
_SIMPLE_KEPT = frozenset({"prod", "cumprod", "logcumsumexp", "searchsorted", "bucketize"})
#: Ops that fill with a number that may be infinite.
_FILLING = frozenset({"masked_fill", "fill", "constant_pad_nd", "index_fill", "masked_scatter"})
#: Ops of a tensor and a number, defined for every finite one.
_WITH_NUMBER = frozenset({"add", "sub", "rsub", "mul", "eq", "ne", "lt", "le", "gt", "ge"})
#: Norms, by the names of their orders.
_ORDERS = {("norm", "p"), ("linalg_vector_norm", "ord")}
#: Sums that may be taken in another dtype than their arguments'.
_IN_OTHER_DTYPE = frozenset({"sum", "mean", "prod", "nansum", "cumsum", "cumprod"})
_WIDER = {"f16": "float32", "bf16": "float32", "f32": "float64", "i32": "float32", "i64": "int32", "u8": "float32"}
#: Ops that slide a window.
_SLIDING = ("max_pool", "avg_pool", "convolution")
#: Numbers that one asks for only where the values hold what they replace.
_REPLACEMENTS = frozenset({"nan", "posinf", "neginf"})
#: A threshold above this is reached by none of a call's usual values.
_REACHED = 10
#: Of the arguments that may change, this share does in a call in which several do.
_CHANGED_SHARE = 0.6
#: Calls with several changed arguments that are proposed of one call.
MOST_COMBINATIONS = 6


class _Change(NamedTuple):
    """Other values of one argument."""

    argument: Any
    position: int
    values: list[Value]


def argument_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with one of its numbers, flags or dimensions changed; the label is that argument's name.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of the order and of the numbers.
    """
    chance = random.Random(derive_seed(seed, "arguments"))  # noqa: S311 - a choice, no secret
    record, changes = _changes(record, schema, seed, chance)
    asked = [(change, value) for change in changes for value in change.values]
    chance.shuffle(asked)
    # Zero first, which a kernel may take for nothing given.
    asked.sort(key=lambda each: each[1] != 0)
    variants = [
        (change.argument.name, changed)
        for change, value in asked
        if (changed := _with(record, change.argument, change.position, value)) is not None
    ]
    shorter = _without_defaults(record, schema)
    if shorter is not None:
        variants.append(("defaults", shorter))
    crossed = _with_crossed_bounds(record, schema)
    if crossed is not None:
        variants.append(("crossed", crossed))
    yield from variants


def combined_arguments(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with several of them changed; the label is ``arguments``.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of what changes and of the numbers.
    """
    chance = random.Random(derive_seed(seed, "combinations"))  # noqa: S311 - a choice, no secret
    record, changes = _changes(record, schema, seed, chance)
    if len(changes) < 2:
        return
    for _ in range(MOST_COMBINATIONS):
        chosen = [change for change in changes if chance.random() < _CHANGED_SHARE]
        changed: CallRecord | None = record
        for change in sorted(chosen, key=lambda change: change.position):
            changed = changed and _with(changed, change.argument, change.position, chance.choice(change.values))
        if changed is not None and len(chosen) > 1:
            yield "arguments", changed


def _changes(
    record: CallRecord, schema: OpSchema, seed: int, chance: random.Random
) -> tuple[CallRecord, list[_Change]]:
    """The call on values that its arguments make a difference to, and what these may be instead."""
    stem = stem_of(schema.name)
    if is_random(schema) or (keeps_values(schema) and stem not in _SIMPLE_KEPT):
        return record, []
    arguments = overload(record.op)._schema.arguments
    changes = [
        _Change(argument, position, values)
        for position, argument in enumerate(arguments)
        if (values := _others(argument, _given(record, argument, position), record, schema, chance))
    ]
    if any(change.argument.name in _REPLACEMENTS for change in changes):
        varied = (changed for label, changed in value_variants(record, schema, seed) if label == "special")
        record = next(varied, record)
    return record, changes


def _is_simple(schema: OpSchema) -> bool:
    stem = stem_of(schema.name)
    return (
        is_elementwise(schema) or stem in CONTRACTIONS or "reduction" in group_tags(schema) or stem in _WITH_DIMENSION
    )


#: Ops that work along a dimension, and what is neither elementwise nor a reduction for torch.
_WITH_DIMENSION = frozenset(
    {
        *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_softmax", "_log_softmax", "sort", "topk"),
        *("max", "min", "argmax", "argmin", "mean", "sum", "prod", "var", "std", "amax", "amin", "cat", "gelu"),
        *("addmm", "baddbmm", "addmv", "addr", "addbmm", "lerp", "elu", "celu", "leaky_relu", "rsub", "flip", "glu"),
        *("median", "nanmedian", "mode", "kthvalue", "logsumexp", "var_mean", "std_mean", "all", "any", "stack"),
        *("softplus", "smooth_l1_loss", "huber_loss", "native_layer_norm", "native_group_norm", "native_batch_norm"),
        *("_native_batch_norm_legit", "_fused_rms_norm", "aminmax", "nansum", "count_nonzero", "norm", "diff"),
    }
)


def _given(record: CallRecord, argument: Any, position: int) -> Any:
    """The value of an argument, the default where the call leaves it out."""
    if not argument.kwarg_only and position < len(record.args):
        return record.args[position]
    return record.kwargs.get(argument.name, argument.default_value)


def _others(argument: Any, given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    """Other values of an argument that kernels agree on."""
    name, stem = argument.name, stem_of(schema.name)
    if "_backward" in stem and name in _FORWARD_ONLY:
        return []
    if name == "reduction" and type(given) is int:
        if "_backward" in stem:  # The gradients of a mean and of a sum are one number, those of no reduction many.
            return [3 - given] if given in (1, 2) else []
        return [kind for kind in (0, 1, 2) if kind != given]
    if name == "dtype" and stem in _IN_OTHER_DTYPE and given is None:
        first = next((value for value in record.args if isinstance(value, TensorValue)), None)
        return [NamedValue("dtype", _WIDER[first.dtype])] if first is not None and first.dtype in _WIDER else []
    choices = _choices(name, given, stem)
    if choices is not None:
        return [value for value in choices if not _same(value, given)]
    if name in _REPLACEMENTS:
        return [chance.choice((-1, 1)) * chance.uniform(1.5, 9.5), 0.0]
    return _BY_NAME.get(name, functools.partial(_numbers, name))(given, record, schema, chance)


def _choices(name: str, given: Any, stem: str) -> tuple[Value, ...] | None:
    """Values of an argument that has few; None where it may be any number."""
    if name in FLAGS and type(given) is bool:
        return (not given,)
    if name == "accumulate":
        return (True,)
    if (stem, name) in _ORDERS:
        return (0, 1, 2, math.inf, -math.inf)
    chosen = CHOICES.get(name)
    known = chosen is not None and (given in chosen or (given is None and name == "correction"))
    return chosen if known and (name, stem) not in _NOT_OF else None


def _same(one: Value, other: Any) -> bool:
    return one == other and type(one) is type(other)


def _rank(record: CallRecord) -> int:
    return max((len(value.shape) for value in record.args if isinstance(value, TensorValue)), default=0)


def _dims(given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    """Other dimensions, from both ends; several of them, all or none given where there may be several."""
    rank, call = _rank(record), bound_call(record)
    if not _is_simple(schema) or not rank or call is None or any(is_placed(schema, slot.name) for slot in call.slots):
        return []
    if type(given) is int:
        return [dim for dim in range(-rank, rank) if dim != given]
    text = str(overload(record.op)._schema)
    if given is None and "int? dim" in text:
        return list(range(-rank, rank))
    if not (given is None or isinstance(given, SequenceValue)):
        return []
    some = [chance.sample(range(rank), chance.randint(1, rank)) for _ in range(2)]
    lists = [[chance.randrange(-rank, rank)], [-1], list(range(rank)), *some]
    return [SequenceValue(tuple(dims), is_tuple=False) for dims in lists]


def _shifts(given: Any, _record: CallRecord, _schema: OpSchema, chance: random.Random) -> list[Value]:
    if not isinstance(given, SequenceValue):
        return []
    return [SequenceValue(tuple([chance.randint(-20, 20) for _ in given.items]), is_tuple=False) for _ in range(2)]


def _window(most: int) -> Callable[[Any, CallRecord, OpSchema, random.Random], list[Value]]:
    """Other steps, pads or dilations of a sliding window: larger by one along some dimensions."""

    def others(given: Any, _record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
        stem = stem_of(schema.name)
        if not stem.startswith(_SLIDING) or "_backward" in stem or not isinstance(given, SequenceValue):
            return []
        if not all(type(item) is int and item < most for item in given.items):
            return []
        larger = [tuple([item + chance.randint(0, 1) for item in given.items]) for _ in range(4)]  # type: ignore[operator]
        return [SequenceValue(items, is_tuple=False) for items in dict.fromkeys(larger) if items != given.items]

    return others


def _fills(given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    if stem_of(schema.name) not in _FILLING or type(given) not in (int, float):
        return _numbers("value", given, record, schema, chance)
    if not _takes_fractions(record):
        return [1 + chance.randrange(5)]
    return [chance.uniform(0.5, 3.0), -chance.uniform(0.5, 3.0), -math.inf, math.inf]


def _exponents(given: Any, record: CallRecord, schema: OpSchema, _chance: random.Random) -> list[Value]:
    if stem_of(schema.name) != "pow" or type(given) not in (int, float) or not _takes_fractions(record):
        return []
    return [value for value in (0, 0.5, 1, 2, 3, -1, -2) if value != given]


def _operands(given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    if stem_of(schema.name) not in _WITH_NUMBER or type(given) not in (int, float):
        return []
    if not _takes_fractions(record):
        return [value for value in (0, 1 + chance.randrange(5)) if value != given]
    return [0.0, chance.uniform(0.5, 3.0), -chance.uniform(0.5, 3.0)]


def _bound(sign: int) -> Callable[[Any, CallRecord, OpSchema, random.Random], list[Value]]:
    """Other bounds that leave the lower one below the upper one."""

    def others(given: Any, record: CallRecord, _schema: OpSchema, chance: random.Random) -> list[Value]:
        if type(given) not in (int, float) or not _takes_fractions(record):
            return []
        return [given + sign * chance.uniform(0.1, 1.5)]

    return others


_BY_NAME: dict[str, Callable[[Any, CallRecord, OpSchema, random.Random], list[Value]]] = {
    "dim": _dims,
    "shifts": _shifts,
    "stride": _window(4),
    "padding": _window(3),
    "dilation": _window(3),
    "value": _fills,
    "exponent": _exponents,
    "other": _operands,
    "min": _bound(-1),
    "max": _bound(1),
    "min_val": _bound(-1),
    "max_val": _bound(1),
}


def _numbers(name: str, given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    """Other factors: of both signs and zero where the op is linear in them."""
    product = stem_of(schema.name) in CONTRACTIONS
    linear = name in LINEAR_FACTORS or (name == "beta" and product)
    if type(given) not in (int, float) or not (linear or name in POSITIVE_FACTORS) or not _is_simple(schema):
        return []
    signs = (-1, 1) if linear else (1,)
    none: list[Value] = [0] if name in ("alpha", "beta") and product and given else []
    if type(given) is int and not _takes_fractions(record):
        return none + [sign * (abs(given) + 1 + chance.randrange(3)) for sign in signs]
    if name == "threshold" and given > _REACHED:
        return [chance.uniform(0.5, 4.0)]
    if name in ("eps", "momentum"):
        return [chance.uniform(0.05, 0.4)] if given > 0 else []
    if name == "alpha" and linear and not product and _is_half(record):
        # Eager rounds `alpha * other` to half precision in some of its loops: powers of two leave nothing to round.
        return [sign * chance.choice((0.5, 2.0, 4.0)) for sign in signs]
    return none + [sign * (0.5 + abs(float(given))) * chance.uniform(0.6, 2.0) for sign in signs]


def _is_half(record: CallRecord) -> bool:
    return _has_tensor_of(record, "f16", "bf16")


def _takes_fractions(record: CallRecord) -> bool:
    return _has_tensor_of(record, "f16", "bf16", "f32", "f64")


def _has_tensor_of(record: CallRecord, *dtypes: str) -> bool:
    return any(isinstance(value, TensorValue) and value.dtype in dtypes for value in record.args)


def _without_defaults(record: CallRecord, schema: OpSchema) -> CallRecord | None:
    """The call with its numbers and flags left out where the schema has defaults; None where it gives none."""
    if is_random(schema) or not is_elementwise(schema):
        return None
    arguments = overload(record.op)._schema.arguments
    kept = len(record.args)
    while kept and arguments[kept - 1].has_default_value() and type(record.args[kept - 1]) in (int, float, bool):
        kept -= 1
    return None if kept == len(record.args) else msgspec.structs.replace(record, args=record.args[:kept])


def _with_crossed_bounds(record: CallRecord, schema: OpSchema) -> CallRecord | None:
    """A clamp whose lower bound lies above its upper one, which is then the result."""
    if stem_of(schema.name) != "clamp" or len(record.args) < 3:
        return None
    self, low, high, *rest = record.args
    if isinstance(low, TensorValue) and isinstance(high, TensorValue):
        return msgspec.structs.replace(record, args=(self, high, low, *rest))
    if type(low) in (int, float) and type(high) in (int, float) and low != high:
        return msgspec.structs.replace(record, args=(self, max(low, high), min(low, high), *rest))  # type: ignore[type-var]
    return None


def _with(record: CallRecord, argument: Any, position: int, value: Value) -> CallRecord | None:
    """The call with another value of one argument, those before it at their defaults; None where one has none."""
    if argument.kwarg_only or argument.name in record.kwargs:
        return msgspec.structs.replace(record, kwargs={**record.kwargs, argument.name: value})
    args = list(record.args)
    for before in overload(record.op)._schema.arguments[len(args) : position]:
        if before.kwarg_only or before.name in record.kwargs or not before.has_default_value():
            return None
        default = before.default_value
        if isinstance(default, list):
            default = SequenceValue(tuple(default), is_tuple=False)
        if not (default is None or isinstance(default, (bool, int, float, str, SequenceValue))):
            return None
        args.append(default)
    return msgspec.structs.replace(record, args=(*args[:position], value, *args[position + 1 :]))
