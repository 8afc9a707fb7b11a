"""Groups of overloads that one implementation answers, read from torch's schemas.

``add.Tensor``, ``add_.Tensor`` and ``add.out`` compute the same and hand it back differently. torchgen,
which ships with torch, tells that from their signatures without mutability, ``out=`` arguments and
defaults. A view op stands with its ``*_copy`` op, as in torchgen's ``NativeFunctionsViewGroup``.
"""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Iterator

import msgspec
import torch
from torchgen.model import FunctionSchema

from opsmith.aten.schemas import group_key, parsed_schemas
from opsmith.core.op import Variant

_COPY = "_copy"


class VariantGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Overloads that differ only in how they hand back their results; None where there is none.

    Attributes:
        signature: what they have in common, as torchgen writes it.
        functional: returns a new tensor.
        inplace: writes into its first argument.
        out: writes into ``out=`` arguments.
        mutable: returns a new tensor and updates an argument too, such as running statistics.
        view: returns a view where ``functional`` returns a copy.
        view_inplace: turns its argument into that view.
    """

    signature: str
    functional: str | None = None
    inplace: str | None = None
    out: str | None = None
    mutable: str | None = None
    view: str | None = None
    view_inplace: str | None = None

    @property
    def overloads(self) -> tuple[str, ...]:
        """Every member."""
        members = (self.functional, self.inplace, self.out, self.mutable, self.view, self.view_inplace)
        return tuple(member for member in members if member is not None)


@functools.cache
def variant_groups() -> tuple[VariantGroup, ...]:
    """Every group of ATen overloads that this torch dispatches, by signature.

    TorchScript's own overloads (``add.str``) never reach a kernel and are left out.
    """
    dispatched = tuple(_dispatched())
    members: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for name, schema, variant in dispatched:
        members[group_key(schema)][variant.value] = name
    # The key of the view that each copying op stands for.
    copying = {_key_of_view(schema): group_key(schema) for _, schema, _ in dispatched if _copies(schema)}
    for view_key in [key for key, found in members.items() if Variant.VIEW in found]:
        found = members.pop(view_key)
        merged = members[copying.get(view_key, view_key)]
        merged |= {Variant.VIEW: found[Variant.VIEW]}
        if Variant.INPLACE in found:
            merged["view_inplace"] = found[Variant.INPLACE]
    return tuple(VariantGroup(signature=key, **found) for key, found in sorted(members.items()))


def group_of(op: str) -> VariantGroup:
    """The group that an overload is in.

    Raises:
        KeyError: this torch dispatches no such ATen overload.
    """
    return _groups_by_overload()[op]


@functools.cache
def _groups_by_overload() -> dict[str, VariantGroup]:
    return {op: group for group in variant_groups() for op in group.overloads}


@functools.cache
def dispatched_overloads() -> frozenset[str]:
    """The names of the ATen overloads that torch's dispatcher knows."""
    names = (name.removeprefix("aten::") for name in torch._C._dispatch_get_all_op_names() if name.startswith("aten::"))
    return frozenset(name if "." in name else f"{name}.default" for name in names)


def _dispatched() -> Iterator[tuple[str, FunctionSchema, Variant]]:
    known = dispatched_overloads()
    for name, (_, schema, variant) in parsed_schemas():
        if name in known:
            yield name, schema, variant


def _copies(schema: FunctionSchema) -> bool:
    return str(schema.name.name.base).endswith(_COPY)


def _key_of_view(schema: FunctionSchema) -> str:
    return str(schema.signature(strip_default=True, strip_view_copy_name=True))
