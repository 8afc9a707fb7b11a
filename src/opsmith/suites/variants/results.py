"""The same call with other ``out=`` tensors: of another size, which eager changes, or of another dtype.

============ ======================================================================================
label        what the op is given to write into
============ ======================================================================================
``emptied``  no element, as ``torch.empty(0)``
``refitted`` another shape than the result's; eager warns, and resizes it
``cast``     another dtype that the result may be cast to: fewer bits for floats, floats for whole
             numbers and bools
============ ======================================================================================

Eager refuses some of them, and then nobody is asked.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator

import msgspec

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import group_tags
from opsmith.core.case import CallRecord, Storage, TensorValue
from opsmith.core.op import OpSchema, Variant
from opsmith.core.seeds import derive_seed
from opsmith.suites.variants.layouts import dense_strides
from opsmith.suites.variants.scope import (
    bound_call,
    is_about_layout,
    is_elementwise,
    is_random,
    written_arguments,
)

#: A dtype to cast to whose values a result of another one has to the last bit, or rounded once.
_CASTS = {"f64": "bf16", "f32": "bf16", "i64": "f32", "i32": "f32", "i16": "f32", "i8": "i32", "u8": "i32", "b8": "u8"}

#: Ops of which eager asks no more of their result's shape than the number of elements.
_COUNTED = frozenset({"linspace", "logspace", "arange", "range"})
#: Ops of which eager computes something else where the result is to be of bytes.
_OF_BYTES = frozenset({"all", "any"})


def result_variants(record: CallRecord, schema: OpSchema, seed: int) -> Iterator[tuple[str, CallRecord]]:
    """The call with other ``out=`` arguments; labels as in the module's docstring.

    Args:
        record: a recorded call of an ``out=`` overload; of another one there are no variants.
        schema: of its overload.
        seed: of what is drawn.
    """
    call = bound_call(record)
    if call is None or schema.variant is not Variant.OUT or is_about_layout(schema) or is_random(schema):
        return
    numbers = [slot.tensor.storage for slot in call.slots]
    written = [slot for slot in call.slots if slot.name in written_arguments(schema)]
    if any(not isinstance(record.kwargs.get(slot.name), TensorValue) for slot in written) or any(
        numbers.count(slot.tensor.storage) != 1 for slot in written
    ):
        return
    chance = random.Random(derive_seed(seed, "results"))  # noqa: S311 - a choice, no secret
    tensors = {slot.name: slot.tensor for slot in written}
    yield "emptied", _with(record, {name: (tensor.dtype, (0,)) for name, tensor in tensors.items()})
    if call.stem not in _COUNTED:
        shapes = {name: (tensor.dtype, _other_shape(tensor.shape, chance)) for name, tensor in tensors.items()}
        yield "refitted", _with(record, shapes)
    if call.stem not in _OF_BYTES and (is_elementwise(schema) or "reduction" in group_tags(schema)):
        casts = {name: _CASTS.get(tensor.dtype) for name, tensor in tensors.items()}
        known = {name: (dtype, tensors[name].shape) for name, dtype in casts.items() if dtype is not None}
        if known:
            yield "cast", _with(record, known)


def _other_shape(shape: tuple[int, ...], chance: random.Random) -> tuple[int, ...]:
    """Fewer elements than a result of this shape has, more, or as many in another shape."""
    options = [(chance.randint(1, 3),), (*shape, chance.randint(2, 5)), (1, *shape)]
    return chance.choice([option for option in options if option != shape])


def _with(record: CallRecord, wanted: dict[str, tuple[str, tuple[int, ...]]]) -> CallRecord:
    storages: list[Storage] = list(record.storages)
    kwargs = dict(record.kwargs)
    for name, (dtype, shape) in wanted.items():
        given = kwargs[name]
        assert isinstance(given, TensorValue)
        storages[given.storage] = bytes(math.prod(shape) * torch_dtype(dtype).itemsize)
        kwargs[name] = TensorValue(given.storage, dtype, shape, dense_strides(shape), 0, given.device)
    return msgspec.structs.replace(record, kwargs=kwargs, storages=tuple(storages))
