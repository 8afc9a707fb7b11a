"""What torch's schemas say about every ATen overload: variant, group, tags.

Grouping follows ``torchgen.model``: two overloads belong together when their signatures are equal
after mutability, ``out=`` arguments and defaults are stripped. torchgen ships with torch.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator

import torch
from torchgen.model import FunctionSchema, SchemaKind

from opsmith.core.op import OpSchema, Variant

_VARIANT_OF_KIND = {
    SchemaKind.functional: Variant.FUNCTIONAL,
    SchemaKind.inplace: Variant.INPLACE,
    SchemaKind.out: Variant.OUT,
    SchemaKind.mutable: Variant.MUTABLE,
    SchemaKind.scratch: Variant.MUTABLE,
}

# Defaults such as `=[]` and `=[0, 1]` are more than torchgen's parser reads; it needs only types.
_LIST_DEFAULT = re.compile(r"=\[[^\]]*\]")


@functools.cache
def aten_schemas() -> dict[str, OpSchema]:
    """Describe every ATen overload of this torch, by ``packet.overload``."""
    parsed = dict(parsed_schemas())
    functional_of: dict[str, str] = {}
    for name, (_, schema, variant) in parsed.items():
        if variant is Variant.FUNCTIONAL:
            functional_of.setdefault(group_key(schema), name)
    return {
        name: OpSchema(
            name=name,
            schema=text,
            variant=variant,
            functional=functional_of.get(group_key(schema)) if variant in (Variant.INPLACE, Variant.OUT) else None,
            tags=_tags(name),
        )
        for name, (text, schema, variant) in parsed.items()
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


def parsed_schemas() -> Iterator[tuple[str, tuple[str, FunctionSchema, Variant]]]:
    """Every ATen overload of this torch by name: its text, the text as torchgen reads it, its variant."""
    for schema in torch._C._jit_get_all_schemas():
        if not schema.name.startswith("aten::"):
            continue
        text = str(schema)
        try:
            parsed = FunctionSchema.parse(_LIST_DEFAULT.sub("", text.removeprefix("aten::")))
        except (AssertionError, ValueError, RuntimeError):
            continue  # TorchScript-only overloads (`t[]`, `Dict(...)`): they are not dispatched.
        variant = _VARIANT_OF_KIND[parsed.kind()]
        if variant is Variant.FUNCTIONAL and _returns_alias(parsed):
            variant = Variant.VIEW
        yield f"{schema.name.removeprefix('aten::')}.{schema.overload_name or 'default'}", (text, parsed, variant)


def _returns_alias(schema: FunctionSchema) -> bool:
    return any(r.annotation is not None and not r.annotation.is_write for r in schema.returns)


def group_key(schema: FunctionSchema) -> str:
    """What the overloads of a group have in common, as text."""
    return str(schema.signature(strip_default=True))


def _tags(name: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(str(tag).rpartition(".")[2] for tag in overload(name).tags))
    except (AttributeError, RuntimeError):
        return ()  # A schema of TorchScript's that no operator object stands for.
