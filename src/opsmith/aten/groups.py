"""Groups of overloads that one implementation answers, read from torch's schemas.

``add.Tensor``, ``add_.Tensor`` and ``add.out`` compute the same and hand it back differently: their
:class:`~opsmith.aten.signatures.Signature` is equal. A view op stands with its ``*_copy`` op.
"""

from __future__ import annotations

import functools
from collections import defaultdict

import msgspec

from opsmith.aten.schemas import aten_signatures
from opsmith.aten.signatures import Signature
from opsmith.core.op import Variant


class VariantGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Overloads that differ only in how they hand back their results; None where there is none.

    Attributes:
        signature: what they have in common.
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
    """Every group of ATen overloads that this torch dispatches, by signature."""
    members: defaultdict[Signature, dict[str, str]] = defaultdict(dict)
    for name, (variant, signature) in aten_signatures().items():
        members[signature][variant.value] = name
    # The signature of the view that each copying op stands for.
    copying = {signature.of_view(): signature for _, signature in aten_signatures().values() if signature.is_of_copy}
    for viewing in [signature for signature, found in members.items() if Variant.VIEW in found]:
        found = members.pop(viewing)
        merged = members[copying.get(viewing, viewing)]
        merged |= {Variant.VIEW: found[Variant.VIEW]}
        if Variant.INPLACE in found:
            merged["view_inplace"] = found[Variant.INPLACE]
    groups = [VariantGroup(signature=str(signature), **found) for signature, found in members.items()]
    return tuple(sorted(groups, key=lambda group: group.signature))


def group_of(op: str) -> VariantGroup:
    """The group that an overload is in.

    Raises:
        KeyError: this torch dispatches no such ATen overload.
    """
    return _groups_by_overload()[op]


@functools.cache
def _groups_by_overload() -> dict[str, VariantGroup]:
    return {op: group for group in variant_groups() for op in group.overloads}
