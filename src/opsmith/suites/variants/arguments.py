"""The same call with other arguments that are no tensors: the ones that samples leave at their default.

Only what honest kernels agree on is asked. A factor keeps its sign unless the op is linear in it: what
a negative slope or threshold means is eager's own business. A flag is turned over and a dimension exchanged
for another one where their names say what they do.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec

from opsmith.aten.schemas import overload
from opsmith.core.case import CallRecord, TensorValue, Value
from opsmith.core.op import OpSchema
from opsmith.core.seeds import derive_seed
from opsmith.suites.valid_inputs.binding import stem_of
from opsmith.suites.variants.scope import CONTRACTIONS, is_elementwise, is_random, keeps_values, tags

#: Factors that a result is linear in: any number will do.
LINEAR_FACTORS = frozenset({"alpha", "value", "weight"})
#: Factors of one sign: slopes, thresholds, scales.
POSITIVE_FACTORS = frozenset({"negative_slope", "lambd", "delta", "scale", "input_scale", "threshold", "margin"})
FLAGS = frozenset({"keepdim", "unbiased", "largest", "descending", "log_target", "log_input", "full"})
APPROXIMATIONS = {"none": "tanh", "tanh": "none"}


def argument_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with one of its numbers, flags or dimensions changed; the label is that argument's name.

    Args:
        record: a recorded call.
        schema: of its overload.
        seed: of the order and of the numbers.
    """
    if is_random(schema) or keeps_values(schema) or not _is_simple(schema):
        return
    chance = random.Random(derive_seed(seed, "arguments"))  # noqa: S311 - a choice, no secret
    variants = [
        (argument.name, changed)
        for position, argument in enumerate(overload(record.op)._schema.arguments)
        for value in _others(argument, _given(record, argument, position), record, schema, chance)
        if (changed := _with(record, argument, position, value)) is not None
    ]
    chance.shuffle(variants)
    yield from variants


def _is_simple(schema: OpSchema) -> bool:
    stem = stem_of(schema.name)
    return is_elementwise(schema) or stem in CONTRACTIONS or "reduction" in tags(schema) or stem in _WITH_DIMENSION


#: Ops that work along a dimension, and what is neither elementwise nor a reduction for torch.
_WITH_DIMENSION = frozenset(
    {
        *("cumsum", "cumprod", "cummax", "cummin", "logcumsumexp", "_softmax", "_log_softmax", "sort", "topk"),
        *("max", "min", "argmax", "argmin", "mean", "sum", "prod", "var", "std", "amax", "amin", "cat", "gelu"),
        *("addmm", "baddbmm", "addmv", "addr", "addbmm", "lerp", "elu", "celu", "leaky_relu", "rsub"),
    }
)


def _given(record: CallRecord, argument: Any, position: int) -> Any:
    """The value of an argument, the default where the call leaves it out."""
    if not argument.kwarg_only and position < len(record.args):
        return record.args[position]
    return record.kwargs.get(argument.name, argument.default_value)


def _others(argument: Any, given: Any, record: CallRecord, schema: OpSchema, chance: random.Random) -> list[Value]:
    """Other values of an argument that kernels agree on."""
    name = argument.name
    if name in FLAGS and type(given) is bool:
        return [not given]
    if name == "approximate" and given in APPROXIMATIONS:
        return [APPROXIMATIONS[given]]
    if name == "dim" and type(given) is int:
        rank = max((len(value.shape) for value in record.args if isinstance(value, TensorValue)), default=0)
        return [dim for dim in range(-rank, rank) if dim != given]
    linear = name in LINEAR_FACTORS or (name == "beta" and stem_of(schema.name) in CONTRACTIONS)
    if type(given) not in (int, float) or not (linear or name in POSITIVE_FACTORS):
        return []
    signs = (-1, 1) if linear else (1,)
    if type(given) is int and not _takes_fractions(record):
        return [sign * (abs(given) + 1 + chance.randrange(3)) for sign in signs]
    return [sign * (0.5 + abs(float(given))) * chance.uniform(0.6, 2.0) for sign in signs]


def _takes_fractions(record: CallRecord) -> bool:
    return any(isinstance(value, TensorValue) and value.dtype in ("f16", "bf16", "f32", "f64") for value in record.args)


def _with(record: CallRecord, argument: Any, position: int, value: Value) -> CallRecord | None:
    """The call with another value of one argument; None where it could be given only out of turn."""
    if argument.kwarg_only or argument.name in record.kwargs:
        return msgspec.structs.replace(record, kwargs={**record.kwargs, argument.name: value})
    if position > len(record.args):
        return None
    return msgspec.structs.replace(record, args=(*record.args[:position], value, *record.args[position + 1 :]))
