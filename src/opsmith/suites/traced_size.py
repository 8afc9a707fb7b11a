"""How large a traced call is: its arguments by their strides, its results on tensors without memory."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from opsmith.aten.dtypes import torch_dtype
from opsmith.aten.schemas import overload
from opsmith.aten.strides import extent
from opsmith.core.case import ComplexValue, MappingValue, NamedValue, SequenceValue, TensorValue, Value, tensor_values
from opsmith.core.trace import TracedCall


def argument_bytes(call: TracedCall) -> int:
    """Bytes of the storages of all tensor arguments."""
    return sum(
        torch_dtype(tensor.dtype).itemsize * extent(tensor.shape, tensor.strides, tensor.offset)
        for tensor in tensor_values((*call.args, *call.kwargs.values()))
    )


def result_bytes(call: TracedCall) -> int:
    """Bytes of the results that are not among the arguments; 0 where that depends on values."""
    args = [_without_memory(value) for value in call.args]
    kwargs = {name: _without_memory(value) for name, value in call.kwargs.items()}
    given = {id(leaf) for leaf in tree_leaves((args, kwargs))}
    try:
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = overload(call.op)(*args, **kwargs)
    except Exception:  # noqa: BLE001 - an op without a meta kernel, or with one that asks for values
        return 0
    return sum(
        leaf.numel() * leaf.element_size()
        for leaf in tree_leaves(result)
        if isinstance(leaf, torch.Tensor) and id(leaf) not in given
    )


def _without_memory(value: Value) -> Any:
    if isinstance(value, TensorValue):
        return torch.empty_strided(value.shape, value.strides, dtype=torch_dtype(value.dtype), device="meta")
    if isinstance(value, SequenceValue):
        items = [_without_memory(item) for item in value.items]
        return tuple(items) if value.is_tuple else items
    if isinstance(value, NamedValue):
        return torch.device("meta") if value.kind == "device" else getattr(torch, value.name)
    if isinstance(value, ComplexValue):
        return complex(value.real, value.imag)
    if isinstance(value, MappingValue):
        return {name: _without_memory(item) for name, item in value.items.items()}
    return value
