"""Ops that touch a part of an argument: how many elements at most, for the traffic of a good implementation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeAlias

import torch

from opsmith.core.case import OutputTensor
from opsmith.evaluation.roofline.call import BoundCall

Elements: TypeAlias = Callable[[BoundCall, Sequence[OutputTensor]], int]


def most_touched(call: BoundCall, stem: str, name: str, results: Sequence[OutputTensor]) -> int | None:
    """Elements of the argument ``name`` that the call touches at most; None where it may be all of them."""
    table = _WRITTEN if name in call.written else _READ
    argument, elements = table.get(stem, ("", _of_results))
    return elements(call, results) if name == argument else None


def _of_results(_: BoundCall, results: Sequence[OutputTensor]) -> int:
    return sum(math.prod(result.shape) for result in results)


def _as_many_as(name: str) -> Elements:
    return lambda call, _: _numel(call, name)


def _numel(call: BoundCall, name: str) -> int:
    return sum(math.prod(tensor.shape) for tensor in call.tensors.get(name, ()))


def _rows_of_bags(call: BoundCall, _: Sequence[OutputTensor]) -> int:
    return _numel(call, "indices") * call.tensors["weight"][0].shape[-1]


def _filled_slices(call: BoundCall, _: Sequence[OutputTensor]) -> int:
    shape, dim = call.tensors["self"][0].shape, call.whole("dim") or 0
    return _numel(call, "index") * math.prod(shape) // max(shape[dim], 1) if shape else 1


def _indexed_elements(call: BoundCall, _: Sequence[OutputTensor]) -> int:
    shape = call.tensors["self"][0].shape
    indices = call.tensors.get("indices", [])
    if any(index.dtype in ("b8", "u8") for index in indices):
        return math.prod(shape)  # A mask may choose them all.
    chosen = call.positions("indices")
    kept = [size for dim, size in enumerate(shape) if dim not in chosen]
    return math.prod((*torch.broadcast_shapes(*(index.shape for index in indices)), *kept))


#: Stem -> the argument of which a part is read.
_READ: dict[str, tuple[str, Elements]] = {
    **dict.fromkeys(
        [
            "index",
            "_unsafe_index",
            "index_select",
            "gather",
            "take",
            "slice",
            "select",
            "diagonal",
            "as_strided",
            "unfold",
        ],
        ("self", _of_results),
    ),
    "embedding": ("weight", _of_results),
    **dict.fromkeys(("_embedding_bag", "_embedding_bag_forward_only"), ("weight", _rows_of_bags)),
    **dict.fromkeys(("nll_loss_forward", "nll_loss2d_forward"), ("self", _as_many_as("target"))),
}

#: Stem -> the argument of which a part is read and written in place.
_WRITTEN: dict[str, tuple[str, Elements]] = {
    **dict.fromkeys(("scatter", "scatter_add", "scatter_reduce"), ("self", _as_many_as("index"))),
    **dict.fromkeys(("index_add", "index_copy", "index_reduce"), ("self", _as_many_as("source"))),
    **dict.fromkeys(("index_put", "_index_put_impl"), ("self", _indexed_elements)),
    "index_fill": ("self", _filled_slices),
}
