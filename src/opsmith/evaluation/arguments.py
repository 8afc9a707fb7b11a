"""The arguments of a call by their schema names, and the overload that it calls."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from opsmith.core.op import OpSchema, TaskKind
from opsmith.evaluation.observation import JudgedCall


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


def bind(call: JudgedCall) -> dict[str, Any]:
    """Every argument of ``call`` by name, the schema's defaults filled in; of a module or a collective none."""
    bound: dict[str, Any] = {}
    if call.schema.kind is not TaskKind.OP:
        return bound
    for position, argument in enumerate(overload_of(call.schema)._schema.arguments):
        if position < len(call.args) and not argument.kwarg_only:
            bound[argument.name] = call.args[position]
        else:
            bound[argument.name] = call.kwargs.get(argument.name, argument.default_value)
    return bound
