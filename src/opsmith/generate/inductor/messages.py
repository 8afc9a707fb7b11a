"""What the process that holds torch's compiler is asked, and what it answers."""

from __future__ import annotations

import enum
from pathlib import Path
from typing import TypeAlias

import msgspec

from opsmith.core.case import digest
from opsmith.generate.inductor.rows import BoundCall, Row


class Language(enum.StrEnum):
    """What the compiler writes."""

    CPP = "cpp"
    TRITON = "triton"
    METAL = "metal"


class Ask(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write a row for a call.

    Attributes:
        op: the overload.
        call: its arguments by parameter.
        keyword_only: parameters that are passed by name.
        language: of the kernels.
    """

    op: str
    call: BoundCall
    keyword_only: tuple[str, ...]
    language: Language


class Wrote(msgspec.Struct, frozen=True, tag=True):
    row: Row


class Refused(msgspec.Struct, frozen=True, tag=True):
    """There is no kernel for the call; ``reason`` is one line."""

    reason: str


class AskModule(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Write a ``ModelNew`` in Triton for a problem.

    Attributes:
        file: of the problem.
        content_hash: of the file; what was written for another content is not the answer.
        small: at the sizes that the problem names for machines without a GPU.
    """

    file: str
    content_hash: str
    small: bool

    @classmethod
    def of(cls, file: Path, *, small: bool) -> AskModule:
        """The question about a file as it is now."""
        return cls(file=str(file), content_hash=digest(file.read_bytes()), small=small)


class WroteModule(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A solution of a problem.

    Attributes:
        source: of a file that defines ``ModelNew``.
        kernels: how many it has.
        graph_hash: of the ops that the compiler was given, with their shapes.
        kernel_hash: of the kernels, whatever they are called.
    """

    source: str
    kernels: int
    graph_hash: str
    kernel_hash: str


Question: TypeAlias = Ask | AskModule
Answer: TypeAlias = Wrote | WroteModule | Refused


class Facts(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Sent once when the process is ready.

    Attributes:
        torch: its version.
        triton: its version.
        vector_flags: for the C++ compiler; see :func:`.emission.vector_flags`.
    """

    torch: str
    triton: str
    vector_flags: tuple[str, ...]
