"""``manifest.json``: what the author of a kernel directory says about its kernels.

::

    {"format": 1,
     "kernels": {
       "relu.default": {"entry": "pointwise.py:relu", "dsl": "triton", "provenance": {"author": "me"}},
       "add.Tensor":   {"best": 3}}}

``ranks`` says the same of what ranks answer together: collectives, and parallel problems by their names. ``modules``
says it of module problems by their names: an entry there is a class, as a solution's ``ModelNew``.

``entry`` is a file of the directory and a function in it. ``best`` chooses among the versions in
the op's own folder, by number or by file name. An op with neither keeps the folder's highest
version and gains a DSL or a provenance. ``dtypes`` are those that the kernel serves; it declines others.
``plans`` says that the kernel's host code depends on nothing but the signature of a call, so that its launches may be
repeated without it; ``elementwise``, that they may then write over an argument: see
:class:`opsmith.core.kernel.Kernel`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

from opsmith.core.dtypes import TORCH_NAMES
from opsmith.core.kernel import Provenance
from opsmith.errors import BadInput

FORMAT = 1
NAME = "manifest.json"


class KernelEntry(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a manifest says about the kernel of one op; see the module's docstring."""

    entry: str | None = None
    best: int | str | None = None
    dsl: str | None = None
    dtypes: tuple[str, ...] = ()
    plans: bool = False
    elementwise: bool = False
    provenance: Provenance = Provenance()

    @property
    def file(self) -> str | None:
        """The file part of ``entry``."""
        return None if self.entry is None else self.entry.rpartition(":")[0]


class Manifest(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    format: int = FORMAT
    kernels: dict[str, KernelEntry] = {}
    ranks: dict[str, KernelEntry] = {}
    modules: dict[str, KernelEntry] = {}

    @property
    def described(self) -> dict[str, KernelEntry]:
        """All sections together: they share no names."""
        return self.kernels | self.ranks | self.modules


def read(directory: Path) -> Manifest:
    """Read the manifest of a kernel directory; without the file it is empty.

    Raises:
        BadInput: it cannot be read, is no JSON (with line and column), says something that a
            manifest cannot say (with the place in the document), or leads out of ``directory``.
    """
    path = directory / NAME
    if not path.exists():
        return Manifest()
    try:
        document = json.loads(path.read_bytes(), object_pairs_hook=_without_duplicates)
        manifest = msgspec.convert(document, Manifest)
    except json.JSONDecodeError as exc:
        raise BadInput(f"{path} is no JSON at line {exc.lineno} column {exc.colno}: {exc.msg}") from exc
    except (msgspec.ValidationError, ValueError, RecursionError) as exc:
        raise BadInput(f"{path} is no kernel manifest: {exc}") from exc
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    if manifest.format != FORMAT:
        raise BadInput(f"{path} has format {manifest.format}; this opsmith reads format {FORMAT}")
    described = manifest.described
    outside = _outside(directory, {entry.file for entry in described.values() if entry.file is not None})
    for op, entry in described.items():
        _check_entry(path, op, entry, outside)
    return manifest


def _outside(directory: Path, files: Iterable[str]) -> set[str]:
    """The files that are not in the directory; resolved as well, for a link that leads out."""
    root = directory.resolve()
    return {
        file
        for file in files
        if ".." in PurePosixPath(file).parts or not (directory / file).resolve().is_relative_to(root)
    }


def _without_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key given twice; JSON parsers keep the last one and judge a kernel that its author has forgotten."""
    seen: dict[str, Any] = {}
    for name, value in pairs:
        if name in seen:
            raise ValueError(f"{name!r} is given twice")
        seen[name] = value
    return seen


def _check_entry(path: Path, op: str, entry: KernelEntry, outside: set[str]) -> None:
    if isinstance(entry.best, str) and PurePosixPath(entry.best).name != entry.best:
        raise BadInput(f"{path}: the best version {entry.best!r} of {op!r} is no file name")
    for dtype in entry.dtypes:
        if dtype not in TORCH_NAMES:
            raise BadInput(f"{path}: {dtype!r} among the dtypes of {op!r} is none of {', '.join(TORCH_NAMES)}")
    if entry.entry is None:
        return
    if entry.best is not None:
        raise BadInput(f"{path}: {op!r} has an entry and a best version; keep one of them")
    file, _, function = entry.entry.rpartition(":")
    if not file.endswith(".py") or not function.isidentifier():
        raise BadInput(f"{path}: the entry {entry.entry!r} of {op!r} is not of the form file.py:function")
    if file in outside:
        raise BadInput(f"{path}: the entry {entry.entry!r} of {op!r} leads out of the kernel directory")
