"""What tells compiled graphs on disk apart: the content of opsmith, and of the packages that bring passes."""

from __future__ import annotations

import functools
import hashlib
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FunctionType
from typing import Any


@functools.cache
def opsmith_content() -> str:
    """A hash of opsmith's files, read once: compilation leans on dispatch, backends and kernels as well."""
    import opsmith

    return _content([Path(one) for one in opsmith.__path__])


def package_content(run: Callable[..., Any]) -> str | None:
    """A hash of the files of the package that a function stands in, the topmost one, with all that it may call there.

    Returns:
        None where nobody knows what the function does: it stands in no package but in a file by itself, which may
        import others beside it; or it was made by another function, which may have given it anything.
    """
    if not isinstance(run, FunctionType) or run.__closure__ or "<" in run.__qualname__:
        return None
    top = sys.modules.get((run.__module__ or "").partition(".")[0])
    folders = getattr(top, "__path__", None)
    return None if folders is None else _content(Path(one) for one in folders)


def _content(folders: Iterable[Path]) -> str:
    found = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            if "__pycache__" not in path.parts and path.is_file():
                content = hashlib.sha256(path.read_bytes()).hexdigest()
                found.update(f"{path.relative_to(folder)} {content}\n".encode())
    return found.hexdigest()
