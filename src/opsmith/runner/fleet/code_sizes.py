"""How much code a kernel brings with it, which says something about how long it compiles."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath

from opsmith.core.kernel import Kernel, Loader

#: The dots, the module and the names of ``from ... import ...``, or the modules of ``import ...``.
_IMPORT = re.compile(
    rb"^[ \t]*(?:from[ \t]+(\.*)([\w.]*)[ \t]+import[ \t]+(\([^)]*\)|[^\n]*)|import[ \t]+([^\n]*))", re.MULTILINE
)
_NAME = re.compile(r"[\w.]+")


def code_bytes(kernel: Kernel, root: Path | None) -> int:
    """Bytes of the file that defines a kernel, and of those of its folder's that it imports, directly or not.

    Args:
        kernel: one that is loaded from a file; of any other one nothing is known, which is 0.
        root: the folder of its files.
    """
    if kernel.loader is not Loader.FILE or root is None:
        return 0
    todo, seen, total = [kernel.entry.rpartition(":")[0]], set[str](), 0
    while todo:
        path = todo.pop()
        if path in seen or path not in kernel.files:
            continue
        seen.add(path)
        size_bytes, imported = _read(root / path, path)
        total += size_bytes
        todo += imported
    return total


@lru_cache(maxsize=4096)
def _read(file: Path, path: str) -> tuple[int, tuple[str, ...]]:
    """Bytes of a file, and the paths in its folder that its imports may mean."""
    try:
        source = file.read_bytes()
    except OSError:
        return 0, ()  # Loading it will say what is wrong.
    return len(source), tuple(_imported(source, PurePosixPath(path)))


def _imported(source: bytes, path: PurePosixPath) -> Iterator[str]:
    for found in _IMPORT.findall(source):
        dots, module, names, modules = (part.decode("utf-8", "replace") for part in found)
        folder = path.parents[min(len(dots), len(path.parents)) - 1] if dots else PurePosixPath()
        within = folder.joinpath(*module.split(".")) if module else folder
        if module:
            yield f"{within}.py"
        yield from (f"{within / name}.py" for name in _NAME.findall(names))
        yield from (f"{PurePosixPath(*name.split('.'))}.py" for name in _NAME.findall(modules))
