"""ATen overloads: their names, their folder names and what their schema says about them."""

from __future__ import annotations

import enum

import msgspec


class Variant(enum.StrEnum):
    """How an overload hands back its result, as ``torchgen.model.SchemaKind`` tells it."""

    FUNCTIONAL = "functional"
    VIEW = "view"
    INPLACE = "inplace"
    OUT = "out"
    MUTABLE = "mutable"


class OpSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What the schema of one ATen overload says.

    Attributes:
        name: ``packet.overload``, always with the overload: ``"add.Tensor"``, ``"relu.default"``.
        schema: the schema text as torch prints it.
        variant: how the result is handed back.
        functional: the functional overload of the same group, or None (an in-place or ``out=``
            overload can be answered by it plus a copy).
        tags: torch's own tags, such as ``pointwise`` or ``nondeterministic_seeded``.
    """

    name: str
    schema: str
    variant: Variant
    functional: str | None = None
    tags: tuple[str, ...] = ()

    @property
    def packet(self) -> str:
        """The name without the overload: ``add`` of ``add.Tensor``."""
        return self.name.rpartition(".")[0]


def folder_name(op_name: str) -> str:
    """The kernel folder of an overload: ``add.Tensor`` -> ``add__Tensor``."""
    packet, _, overload = op_name.rpartition(".")
    return f"{packet}__{overload}"


def op_name(folder: str) -> str | None:
    """The overload that a folder name encodes, decoded from the right, or None for a bare packet.

    ``add__Tensor`` -> ``add.Tensor``; ``add___Tensor`` -> ``add_.Tensor``; ``relu`` -> None.
    """
    packet, separator, overload = folder.rpartition("__")
    return f"{packet}.{overload}" if separator and packet and overload else None
