"""ATen overloads: their names, their folder names and what their schema says about them.

A module problem or a collective is asked like an op and travels in the same record; a module has no schema of torch's.
"""

from __future__ import annotations

import enum
from fnmatch import fnmatchcase

import msgspec

#: The name of the group of all ranks, which torch gives to the first one.
GROUP = "0"


class TaskKind(enum.StrEnum):
    """What is asked: an ATen overload, the ``Model`` of a problem file, what ranks do together, or a whole model.

    Ranks do one collective of torch's together, or what a problem file says (``PARALLEL``).
    """

    OP = "op"
    MODULE = "module"
    COLLECTIVE = "collective"
    PARALLEL = "parallel"
    MODEL = "model"

    @property
    def of_problems(self) -> bool:
        """Whether it stands in a problem file, and solutions in files of their own."""
        return self in (TaskKind.MODULE, TaskKind.PARALLEL)

    @property
    def on_ranks(self) -> bool:
        """Whether several processes answer it together."""
        return self in (TaskKind.COLLECTIVE, TaskKind.PARALLEL)


class Variant(enum.StrEnum):
    """How an overload hands back its result, as ``torchgen.model.SchemaKind`` tells it."""

    FUNCTIONAL = "functional"
    VIEW = "view"
    INPLACE = "inplace"
    OUT = "out"
    MUTABLE = "mutable"


class OpSchema(msgspec.Struct, frozen=True, kw_only=True):
    """What the schema of one ATen overload says, or what is known of a module problem.

    Attributes:
        name: ``packet.overload``, always with the overload: ``"add.Tensor"``, ``"relu.default"``; of
            a module its task's name, ``"L1/23_Softmax"``.
        schema: the schema text as torch prints it; of a module or a parallel problem the path of its file.
        variant: how the result is handed back.
        functional: the functional overload of the same group, or None (an in-place or ``out=``
            overload can be answered by it plus a copy).
        tags: torch's own tags, such as ``pointwise`` or ``nondeterministic_seeded``.
        kind: an overload, a module, a collective or a parallel problem.
        init: of a module, once its file was loaded, the serialized
            :class:`~opsmith.core.case.CallRecord` of what it is constructed with.
    """

    name: str
    schema: str
    variant: Variant
    functional: str | None = None
    tags: tuple[str, ...] = ()
    kind: TaskKind = TaskKind.OP
    init: bytes | None = None

    @property
    def packet(self) -> str:
        """The name without the overload: ``add`` of ``add.Tensor``."""
        return self.name.rpartition(".")[0]


def matches(name: str, pattern: str) -> bool:
    """Whether a pattern of a user's names an overload: itself, its packet, or a wildcard."""
    return fnmatchcase(name, pattern) or name.rpartition(".")[0] == pattern


def folder_name(op_name: str) -> str:
    """The kernel folder of an overload: ``add.Tensor`` -> ``add__Tensor``."""
    packet, _, overload = op_name.rpartition(".")
    return f"{packet}__{overload}"


def version_file(op_name: str, version: int) -> str:
    """Where a kernel directory has a version of an overload's kernel: ``F/F_implementation_v2.py``."""
    folder = folder_name(op_name)
    return f"{folder}/{folder}_implementation_v{version}.py"


def op_name(folder: str) -> str | None:
    """The overload that a folder name encodes, decoded from the right, or None for a bare packet.

    ``add__Tensor`` -> ``add.Tensor``; ``add___Tensor`` -> ``add_.Tensor``; ``relu`` -> None.
    """
    packet, separator, overload = folder.rpartition("__")
    return f"{packet}.{overload}" if separator and packet and overload else None
