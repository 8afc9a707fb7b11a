"""What torch's schemas say about every ATen overload: variant, group, tags.

Two overloads belong together when their :class:`~opsmith.aten.signatures.Signature` is equal.
"""

from __future__ import annotations

import functools

import torch

from opsmith.aten.signatures import Signature, read
from opsmith.core.op import OpSchema, Variant


@functools.cache
def aten_schemas() -> dict[str, OpSchema]:
    """Describe every ATen overload that this torch dispatches, by ``packet.overload``."""
    functional_of: dict[Signature, str] = {}
    for name, (variant, signature) in aten_signatures().items():
        if variant is Variant.FUNCTIONAL:
            functional_of.setdefault(signature, name)
    return {
        name: OpSchema(
            name=name,
            schema=str(_dispatched()[name]),
            variant=variant,
            functional=functional_of.get(signature) if variant in (Variant.INPLACE, Variant.OUT) else None,
            tags=_tags(name),
        )
        for name, (variant, signature) in aten_signatures().items()
    }


@functools.cache
def aten_signatures() -> dict[str, tuple[Variant, Signature]]:
    """How every ATen overload that this torch dispatches hands back its result, and its signature."""
    return {name: read(schema) for name, schema in _dispatched().items()}


@functools.cache
def _dispatched() -> dict[str, torch._C.FunctionSchema]:
    """By name, without TorchScript's own overloads (``add.str``), which reach no kernel, and without dictionaries."""
    known = set(torch._C._dispatch_get_all_op_names())
    schemas = (schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("aten::"))
    return {
        f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}": schema
        for schema in schemas
        if "Dict(" not in str(schema)
        and (f"{schema.name}.{schema.overload_name}" if schema.overload_name else schema.name) in known
    }


def overload(name: str) -> torch._ops.OpOverload:
    """The callable of an overload by its name, for example ``add.Tensor``.

    Raises:
        AttributeError: this torch has no such overload.
    """
    packet, _, overload_name = name.rpartition(".")
    found = getattr(getattr(torch.ops.aten, packet), overload_name)
    assert isinstance(found, torch._ops.OpOverload)
    return found


@functools.cache
def group_tags(schema: OpSchema) -> frozenset[str]:
    """Torch's tags of an overload, of its functional one, and of the op whose gradient it is.

    In-place and ``out=`` overloads are not tagged throughout and gradients hardly at all; the
    gradient of an elementwise op is elementwise.
    """
    schemas = aten_schemas()
    stem = schema.packet.removeprefix("_foreach_")
    stem = stem[:-1] if stem.endswith("_") and not stem.endswith("__") else stem
    others = (f"{stem.removesuffix('_backward')}.default", f"{stem}.Tensor", f"{stem}.Scalar")
    related = [schema.name, schema.functional, *others]
    return frozenset(tag for name in related if name in schemas for tag in schemas[name].tags)


def _tags(name: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(str(tag).rpartition(".")[2] for tag in overload(name).tags))
    except (AttributeError, RuntimeError):
        return ()  # A schema of TorchScript's that no operator object stands for.
