"""The functions behind kernel records: imports a stranger's files and packages into this process.

Workers do that to judge them, and :func:`opsmith.enable` does it because its caller asks for it.
"""

from __future__ import annotations

import importlib
import importlib.util
import itertools
import os
import sys
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

from opsmith.core.kernel import Kernel, Loader
from opsmith.errors import BadInput

#: Where the command was started: a ``pkg.mod:attr`` of the user's may live there. Read when this
#: module is imported, because a worker moves to a private folder.
_STARTED_IN = os.getcwd()  # noqa: PTH109 - sys.path holds strings.

_package_numbers = itertools.count()

#: Functions that were loaded before, by what they were loaded from: enabling again runs no file again.
_loaded: dict[tuple[Any, ...], Any] = {}
#: The packages that stand for installed kernel folders, by folder and content.
_installed_packages: dict[tuple[Any, ...], str] = {}
#: Two threads may call an op for the first time; a kernel's file may call it again while it is imported.
_loading = threading.RLock()


def function_of(record: Kernel) -> Any:
    """The function behind a kernel record; its file is imported once in a process.

    Raises:
        BadInput: it does not load, with the reason in one line.
    """
    op = record.derived_from or record.task
    key = (record.root, record.entry, tuple(record.files.items()), op if record.loader is Loader.ATTRIBUTE else None)
    with _loading:
        if key not in _loaded:
            _loaded[key] = _load(record, op)
        return _loaded[key]


def _load(record: Kernel, op: str) -> Any:
    if record.loader not in (Loader.FILE, Loader.ATTRIBUTE):
        raise BadInput(f"the kernels of {record.backend!r} are made by torch itself; name some that come from files")
    try:
        if record.loader is Loader.ATTRIBUTE:
            function = from_attribute(record.entry, op)
        else:
            content = (record.root, tuple(record.files.items()))
            package = _installed_packages.setdefault(content, _new_package())
            function = from_file(record, None if record.root is None else Path(record.root), package=package)
    except Exception as exc:
        raise BadInput(
            f"the kernel of {op} at {record.entry} does not load: {type(exc).__name__}: {exc}; "
            f"mend it or leave it out with exclude={op!r}"
        ) from exc
    if not callable(function):
        raise BadInput(f"the kernel of {op} at {record.entry} is a {type(function).__name__}, which cannot be called")
    return function


# ---------------------------------------------------------------- files


def kernel_file(kernel: Kernel, root: Path | None) -> Path:
    """The source file of a FILE or MODULE kernel under ``root``.

    Raises:
        ValueError: ``root`` is None, or the entry leads out of it.
    """
    relative = kernel.entry.rpartition(":")[0]
    if root is None or not (root / relative).resolve().is_relative_to(root.resolve()):
        raise ValueError(f"the entry {kernel.entry!r} is no file of the kernel's folder {root}")
    return root / relative


def from_file(kernel: Kernel, root: Path | None, *, package: str | None = None) -> Any:
    """The function or class that a FILE or MODULE kernel's entry names.

    Args:
        kernel: the record.
        root: its folder.
        package: the name of a package that stands for the folder, whose modules several kernels share: what a
            file compiles or keeps is there once. None: a new one, as where kernels are judged.

    Raises:
        FileNotFoundError: the kernel's file is missing.
        ImportError: the file defines no such name, or an import in it fails.
        BaseException: whatever the file raises while it is imported.
    """
    path = kernel_file(kernel, root)
    assert root is not None
    function = kernel.entry.rpartition(":")[2]
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in path.parent.glob("*"))) or "nothing"
        raise FileNotFoundError(f"the kernel's file {path.name} is missing; its folder holds: {there}")
    module = _import_file(path, root, package or _new_package())
    if not hasattr(module, function):
        own = (name for name, value in vars(module).items() if isinstance(value, (FunctionType, type)))
        raise ImportError(f"{path.name} defines no {function}; it defines: {', '.join(sorted(own)) or 'no function'}")
    return getattr(module, function)


def _new_package() -> str:
    return f"_kernel_{next(_package_numbers)}"


def _import_file(path: Path, root: Path, package: str) -> ModuleType:
    """Import ``path`` as a module of a package that stands for ``root``.

    Relative imports of other files of the kernel work, absolute ones mean installed packages.
    """
    before = frozenset(sys.modules)
    parents = path.relative_to(root).parent.parts
    # A dot in the file's name (gelu.v2.py) would read as one more package.
    name = ".".join((package, *parents, path.stem.replace(".", "_")))
    if name in before:
        return sys.modules[name]
    try:
        _create_package(package, root)
        for depth in range(len(parents)):
            _create_package(".".join((package, *parents[: depth + 1])), root.joinpath(*parents[: depth + 1]))
        return _execute(name, path)
    except BaseException:
        for added in [added for added in sys.modules if added.partition(".")[0] == package and added not in before]:
            del sys.modules[added]
        raise


def _create_package(name: str, folder: Path) -> None:
    if name in sys.modules:
        return
    init = folder / "__init__.py"
    if init.is_file():
        _execute(name, init, search=[str(folder)])
    else:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def _execute(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- attributes


def from_attribute(target: str, op: str) -> Any:
    """The kernel of an op behind ``package.module:attribute``.

    Raises:
        ImportError: there is no such module or attribute, or it has no kernel for the op.
        TypeError: the attribute is nothing that holds kernels.
        BaseException: whatever the stranger's code raises.
    """
    _, found = import_target(target)
    kernel = lookup(found, target)(op)
    if kernel is None:
        raise ImportError(f"{target} has no kernel for {op}")
    return kernel


def import_target(target: str) -> tuple[ModuleType, Any]:
    """The module and the attribute that ``package.module:attribute`` names.

    Raises:
        ImportError: there is no such module or attribute.
    """
    if _STARTED_IN not in sys.path:
        sys.path.append(_STARTED_IN)  # Last: a file of the user's must not hide an installed package.
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImportError(f"{module_name} has no attribute {attribute}")
        found = getattr(found, part)
    return module, found


def kernel_directory(module: ModuleType, found: Any) -> Path | None:
    """The folder that an attribute of ``module`` names, relative to the module's file; None if it is no path."""
    return Path(module.__file__ or ".").parent / found if isinstance(found, (str, os.PathLike)) else None


def lookup(found: Any, target: str) -> Callable[[str], Any]:
    """The function from an op's name to its kernel or None behind what ``target`` names.

    Raises:
        TypeError: it is nothing that holds kernels.
    """
    if isinstance(found, Mapping):
        return found.get
    if isinstance(found, type):
        found = found()
    kernel_for = getattr(found, "kernel_for", found)
    if not callable(kernel_for):
        raise TypeError(
            f"{target} is a {type(found).__name__}; it should be a mapping, an object with kernel_for, "
            "a function or the path of a kernel directory"
        )
    return cast("Callable[[str], Any]", kernel_for)
