"""Kernels: candidate implementations, as data. The code itself runs only in workers."""

from __future__ import annotations

import enum
from pathlib import Path, PurePath

import msgspec

from opsmith.core.case import digest

#: The kernel directory that comes with opsmith.
SHIPPED_KERNELS = Path(__file__).parents[1] / "kernels"


class Loader(enum.StrEnum):
    """How a worker turns a kernel record into something callable."""

    ATEN = "aten"
    INDUCTOR = "inductor"
    FILE = "file"
    ATTRIBUTE = "attribute"
    MODULE = "module"
    COLUMN = "column"


class Provenance(msgspec.Struct, frozen=True, kw_only=True):
    """Who made a kernel and how; every field may be unknown."""

    author: str | None = None
    model: str | None = None
    prompt_hash: str | None = None
    attempt: int | None = None
    parent: str | None = None
    license: str | None = None
    note: str | None = None


class Kernel(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate implementation of one task.

    Attributes:
        task: the task it answers.
        backend: the backend that offered it.
        loader: how a worker loads it.
        entry: for FILE ``path/in/root.py:function``; for MODULE, and for ATEN where the task is a
            module, ``path/in/root.py:class``; for ATTRIBUTE ``package.module:attribute``; for COLUMN
            the way to run a whole model, which no worker loads; for the others the overload's name.
        dsl: ``triton``, ``cpp``, ``cuda``, ``metal``, ``torch``, ``aten``, ``inductor`` or ``unknown``.
        root: the folder that ``files`` are relative to, or None where there are no files.
        files: relative path -> content hash of every file that belongs to the kernel.
        derived_from: the functional overload whose kernel answers this in-place or ``out=``
            overload with a copy at the end, or None.
        dtypes: short names of those that it says to serve, of a call's floating tensors, or of all of them where none
            is floating; other calls it declines. Empty: it says nothing.
        plans: its calls may be repeated from launch plans: its host code depends on what
            :mod:`opsmith.dispatch.plans.plan` calls a signature and on nothing else.
        elementwise: a program of it reads the elements of its arguments before it writes the element of the
            result at the same place, and no other program reads those. It writes at the strides of the memory that it
            allocates, which need not be those that it asked for. So a plan may let it write over an argument.
        provenance: who made it.
    """

    task: str
    backend: str
    loader: Loader
    entry: str
    dsl: str = "unknown"
    root: str | None = None
    files: dict[str, str] = {}
    derived_from: str | None = None
    dtypes: tuple[str, ...] = ()
    plans: bool = False
    elementwise: bool = False
    provenance: Provenance = Provenance()

    @property
    def content_hash(self) -> str:
        """Names what is judged: loader, entry, derivation and file contents, not where they lie."""
        identity = (self.task, self.loader, self.entry, self.derived_from, sorted(self.files.items()))
        declared = (self.dtypes,) if self.dtypes else ()
        return digest(msgspec.json.encode((*identity, *declared)))

    @property
    def build_name(self) -> str:
        """Names its build cache: the same for all overloads that one function answers."""
        answers = None if self.loader is Loader.FILE else self.derived_from or self.task
        return digest(msgspec.json.encode((self.loader, self.entry, answers, sorted(self.files.items()))))

    @property
    def snapshot_name(self) -> str | None:
        """The folder in a run's ``kernels/`` that holds its files, or None if it has none.

        Kernels that share all their files (a family of one directory) share a folder.
        """
        if self.root is None or not self.files:
            return None
        return f"{PurePath(self.root).name}-{digest(msgspec.json.encode(sorted(self.files.items())))[:8]}"


def is_shipped(record: Kernel) -> bool:
    """Whether a kernel is one of opsmith's own, where it was installed."""
    return record.root is not None and Path(record.root).resolve() == SHIPPED_KERNELS.resolve()
