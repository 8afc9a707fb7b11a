"""What a review is about: the entry of a kernel and the files that it imports.

A kernel directory holds many kernels, so a review must not be lost when a neighbour changes. The files are those that
the entry's file imports relatively, and what these import in turn. Code that can reach other files by any other way
(``open``, ``__file__``, ``importlib``, ``exec``) is reviewed with all files of its folder, because nobody can tell
which ones it uses.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import NamedTuple

import msgspec

from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.syntax_tree import syntax_tree

#: With these a file can read, or run, another one that it does not import.
_REACHES_FILES = frozenset(
    {
        *("open", "exec", "eval", "compile_file", "getattr", "globals", "vars", "co_filename", "f_code", "_getframe"),
        *("__file__", "__path__", "__spec__", "__loader__", "__import__", "__builtins__", "__cached__", "__dict__"),
        *("__globals__", "__getattribute__", "attrgetter", "methodcaller"),
        *("importlib", "import_module", "imp", "runpy", "pkgutil", "inspect", "zipimport", "linecache", "traceback"),
        *(
            "os",
            "sys",
            "io",
            "pathlib",
            "glob",
            "shutil",
            "subprocess",
            "tempfile",
            "ctypes",
            "cffi",
            "mmap",
            "builtins",
        ),
        *("cpp_extension", "load_library", "fromfile", "memmap"),
    }
)


def reviewed_hash(kernel: Kernel) -> str | None:
    """Names what a reviewer of a kernel looked at; None where its files are not known, as of a Python attribute.

    It holds the op, the function, what the manifest promises of it, and the content of :func:`reviewed_files`. The
    name of the entry's file is not in it, so a kernel that is copied from a campaign keeps its reviews.
    """
    files = reviewed_files(kernel)
    if files is None:
        return None
    entry, _, function = kernel.entry.rpartition(":")
    others = sorted((path, content) for path, content in files.items() if path != entry)
    promises = (kernel.dtypes, kernel.plans, kernel.elementwise)
    identity = (kernel.derived_from or kernel.task, kernel.loader, function, files[entry], others, promises)
    return digest(msgspec.json.encode(identity))


def reviewed_files(kernel: Kernel) -> dict[str, str] | None:
    """The files that a review of a kernel covers -> their content hashes; None where they are not known.

    A file that code names in a string counts as one that it reads.
    """
    entry = kernel.entry.rpartition(":")[0]
    if kernel.loader not in (Loader.FILE, Loader.MODULE) or kernel.root is None or entry not in kernel.files:
        return None
    return dict(_covered(kernel.root, entry, tuple(kernel.files.items())))


@lru_cache(maxsize=1024)
def _covered(root: str, entry: str, files: tuple[tuple[str, str], ...]) -> tuple[tuple[str, str], ...]:
    contents = dict(files)
    by_stem: dict[str, list[str]] = {}
    for file in contents:
        by_stem.setdefault(_stem(file), []).append(file)
    names = {PurePosixPath(file).name for file in contents}
    data = [name for name in names if not name.endswith(".py")]
    waiting, covered = [entry], dict[str, str]()
    while waiting:
        path = waiting.pop()
        if path in covered:
            continue
        covered[path] = contents[path]
        uses = _uses(Path(root) / path, path, contents[path])
        if uses is None or uses.names & names or any(name in uses.text for name in data):
            return files
        if any(module in by_stem or module.startswith("_kernel_") for module in uses.absolute):
            return files
        waiting += [file for stem in uses.imported for file in by_stem.get(stem, ())]
    return tuple(covered.items())


def entry_source(kernel: Kernel) -> str:
    """The text of the file with a kernel's entry; empty where it cannot be read."""
    try:
        return (Path(kernel.root or "") / kernel.entry.rpartition(":")[0]).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


class _Uses(NamedTuple):
    """What a file names.

    Attributes:
        imported: the stems that its relative imports may mean.
        absolute: first names of its other imports. One that is called like a file of the folder may be that file, and
            the folder itself is imported under a name with a number.
        names: the last parts of its strings, read as paths.
        text: all its strings, in which C++ may include a header.
    """

    imported: frozenset[str]
    absolute: frozenset[str]
    names: frozenset[str]
    text: str = ""


@lru_cache(maxsize=1024)
def _uses(file: Path, path: str, content: str) -> _Uses | None:
    """What a file uses; None where it can reach files by other ways, is no Python, or has another content by now."""
    if not path.endswith(".py"):
        return _Uses(
            frozenset(), frozenset(), frozenset()
        )  # A compiled module: nobody can read what it does; its content counts.
    try:
        data = file.read_bytes()
        if digest(data) != content:
            return None
        nodes = list(ast.walk(syntax_tree(data)))
    except (OSError, SyntaxError):
        return None
    words = {word for node in nodes for word in _words(node)}
    if any(word.partition(".")[0] in _REACHES_FILES for word in words):
        return None
    found = set(_packages(path))
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level:
            found.update(_targets(path, node))
    strings = {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    names = frozenset(PurePosixPath(word).name for word in strings)
    return _Uses(frozenset(found), frozenset(_absolute(nodes)), names, "\n".join(strings))


def _absolute(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def _stem(file: str) -> str:
    """A file without its suffixes: ``rows.py`` and ``rows.cpython-311.so`` are one module."""
    path = PurePosixPath(file)
    return str(path.parent / path.name.partition(".")[0])


def _words(node: ast.AST) -> Iterator[str]:
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            yield name
        case ast.Import(names=names):
            yield from (alias.name for alias in names)
        case ast.ImportFrom(module=module, names=names, level=level):
            if not level:
                yield module or ""
                yield from (alias.name for alias in names)
        case ast.Constant(value=str(text)):
            yield text


def _packages(path: str) -> Iterator[str]:
    """The ``__init__`` of each folder between the root and a file, which an import of the file runs."""
    for parent in PurePosixPath(path).parents:
        yield str(parent / "__init__")


def _targets(path: str, node: ast.ImportFrom) -> Iterator[str]:
    """What a relative import may mean, as paths without suffix: a module, a package, or names in a package."""
    folder = PurePosixPath(path).parent
    for _ in range(node.level - 1):
        folder = folder.parent
    target = folder.joinpath(*(node.module or "").split("."))
    for stem in (target, *(target / alias.name for alias in node.names)):
        yield str(stem)
        yield str(stem / "__init__")
        yield from _packages(str(stem))
