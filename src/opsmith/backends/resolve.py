"""What ``--backend`` means: a name, a file, a directory or a Python attribute."""

from __future__ import annotations

import os
from pathlib import Path

from opsmith import plugins
from opsmith.backends import Backend
from opsmith.backends.attribute import NeedsDiscovery
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.file import KernelFile
from opsmith.backends.hub import PREFIX, HubKernels
from opsmith.backends.package import package_kernels
from opsmith.errors import BadInput, UnknownName

#: The backends whose kernels are opsmith's own.
OWN = frozenset({"aten", "opsmith"})
#: Of files that are solutions in the formats of other tools.
_OF_OTHER_FORMATS = (".json", ".cu", ".cpp", ".txt")


def resolve(text: str) -> Backend | NeedsDiscovery:
    """Find a backend: a name, then a kernel file (also ``FILE.py:FUNCTION``) or directory, then ``pkg.mod:attr``.

    ``hub:NAME`` is a repository of the kernel hub that is on this machine.
    A name is a registered backend or an installed package's kernels; where a directory has
    the same name, ``./NAME`` means the directory.

    Raises:
        UnknownName: ``text`` is none of them.
        BadInput: it looks like a path and there is no such directory, or what it names is damaged.
        MissingDependency: the backend adapts a package that is not installed.
    """
    if text in plugins.names(plugins.BACKENDS):
        return _registered(text)
    if text in plugins.names(plugins.KERNELS):
        return package_kernels(text)
    if text.startswith(PREFIX):
        return HubKernels(text)
    path = Path(text).expanduser()
    if path.suffix == ".py" or (path.suffix in _OF_OTHER_FORMATS and path.is_file()):
        return KernelFile(path)
    if text and path.exists():
        return KernelDirectory(path)
    file, _, entry = text.rpartition(":")
    if file.endswith(".py") and entry.isidentifier() and Path(file).expanduser().is_file():
        return KernelFile(Path(file).expanduser(), entry=entry)
    module, separator, attribute = text.partition(":")
    if separator:
        if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
            raise BadInput(f"{text!r} is not of the form package.module:attribute")
        return NeedsDiscovery(name=text, target=text)
    if os.sep in text or text.startswith((".", "~")):
        return KernelDirectory(path)  # Tells that it does not exist, and how to make it.
    raise UnknownName("backend", text, {*plugins.names(plugins.BACKENDS), *plugins.names(plugins.KERNELS)})


def _registered(name: str) -> Backend | NeedsDiscovery:
    backend = plugins.load(plugins.BACKENDS, name)()
    if isinstance(backend, NeedsDiscovery):
        return backend
    if not isinstance(backend, Backend):
        raise BadInput(f"the registered backend {name!r} has no name, trusted and kernel_for; see opsmith.backends")
    if backend.trusted and not plugins.is_ours(plugins.BACKENDS, name):
        raise BadInput(f"the backend {name!r} calls itself trusted; only opsmith's own reference is")
    return backend
