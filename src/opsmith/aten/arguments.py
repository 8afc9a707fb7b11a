"""The arguments of a call of an op: the tensors among them, the memory that they share, their names in the schema."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import torch
from torch import Tensor

from opsmith.aten.strides import extent
from opsmith.core.dtypes import TENSOR_SHORT_NAMES, of_call
from opsmith.core.op import OpSchema, TaskKind


def tensors_in(values: Iterable[Any]) -> list[Tensor]:
    """The tensors among arguments, those in lists included, in their order."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            found.extend(tensors_in(value))
    return found


def written_by(op: torch._ops.OpOverload) -> Callable[[tuple[Any, ...], dict[str, Any]], list[torch.Tensor]]:
    """The function from a call's arguments to the tensors that it writes to."""
    arguments = enumerate(op._schema.arguments)
    places = [(index, argument.name) for index, argument in arguments if _is_written(argument)]

    def written(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[torch.Tensor]:
        return tensors_in(args[index] if index < len(args) else kwargs[name] for index, name in places)

    return written


def _is_written(argument: torch.Argument) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def undeclared(declared: Sequence[str], args: Sequence[Any], kwargs: Mapping[str, Any]) -> str | None:
    """Why a kernel that declares its dtypes does not serve a call, or None; one that declares none serves all."""
    if not declared:
        return None
    tensors = tensors_in((*args, *kwargs.values()))
    names = [str(tensor.dtype).removeprefix("torch.") for tensor in tensors]
    strange = of_call(TENSOR_SHORT_NAMES.get(name, name) for name in names).difference(declared)
    return f"declared for {', '.join(declared)}, not for {', '.join(sorted(strange))}" if strange else None


def share_memory(destinations: Iterable[Any], values: Iterable[Any], *, or_are_one: bool = False) -> bool:
    """Whether an argument that is written to overlaps another argument; being it counts if ``or_are_one``."""
    sources = tensors_in(values)
    return any(
        or_are_one
        if _are_one(source, destination)
        else torch._C._overlaps(source, destination) and _ranges_meet(source, destination)
        for destination in tensors_in(destinations)
        for source in sources
    )


def _are_one(one: Tensor, other: Tensor) -> bool:
    """Whether both look at the same elements in the same order, as eager allows it to elementwise ops."""
    return one is other or (
        one.data_ptr() == other.data_ptr() != 0  # Tensors without elements have no memory to share.
        and one.dtype is other.dtype
        and one.shape == other.shape
        and one.stride() == other.stride()
    )


def _ranges_meet(one: Tensor, other: Tensor) -> bool:
    (first, first_end), (second, second_end) = _bytes_of(one), _bytes_of(other)
    return first < second_end and second < first_end


def _bytes_of(tensor: Tensor) -> tuple[int, int]:
    if tensor.numel() == 0:
        return 0, 0
    size_bytes = extent(tensor.shape, tensor.stride(), 0) * tensor.element_size()
    return tensor.data_ptr(), tensor.data_ptr() + size_bytes


@cache
def overload_of(schema: OpSchema) -> Any:
    """The ``OpOverload`` that a schema of an op describes.

    Raises:
        AttributeError: this torch has no such overload.
    """
    qualified = schema.schema.partition("(")[0]
    namespace = qualified.partition("::")[0] if "::" in qualified else "aten"
    packet, _, overload = schema.name.rpartition(".")
    return getattr(getattr(getattr(torch.ops, namespace), packet), overload)


def bind(schema: OpSchema, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Every argument of a call by name, the schema's defaults filled in; of a module or a collective none."""
    bound: dict[str, Any] = {}
    if schema.kind is not TaskKind.OP:
        return bound
    for position, argument in enumerate(overload_of(schema)._schema.arguments):
        if position < len(args) and not argument.kwarg_only:
            bound[argument.name] = args[position]
        else:
            bound[argument.name] = kwargs.get(argument.name, argument.default_value)
    return bound
