"""Plug-ins: whatever installed packages offer through entry points, found without importing it.

opsmith's own backends and suites stand in the same tables of pyproject.toml as everybody else's::

    [project.entry-points."opsmith.backends"]
    aten = "opsmith.backends.aten:Aten"

Two distributions may not offer the same name, except that a name of opsmith's own always means
opsmith's own: installing a package never changes what ``aten`` is.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Any

from opsmith.errors import BadInput, UnknownName

#: Backends that the judge may import: each value makes one when called without arguments.
BACKENDS = "opsmith.backends"
#: Suites: each value makes one when called without arguments.
SUITES = "opsmith.suites"
#: What suites say of themselves to the judge, which imports it: each value is an ``opsmith.suites.traits.SuiteTraits``.
SUITE_TRAITS = "opsmith.suite_traits"
#: Kinds of devices, by torch's device type: each value makes one when called without arguments. See
#: docs/how-to/add-a-device.md.
DEVICES = "opsmith.devices"
#: Executors: each value makes one when called with what follows the colon in ``NAME:ARGUMENT``, and with ``--devices``.
EXECUTORS = "opsmith.executors"
#: Kernels of installed packages: ``module:attribute``, imported in workers only.
KERNELS = "opsmith.kernels"

#: Language models: ``module:attribute``, called with what follows the colon in ``PROVIDER:MODEL``.
PROVIDERS = "opsmith.providers"

_OURS = "opsmith"


def names(group: str) -> list[str]:
    """The sorted names that installed packages offer in ``group``."""
    return sorted({entry.name for entry in entry_points(group=group)})


def target(group: str, name: str) -> str:
    """The ``module:attribute`` text behind a name; nothing is imported.

    Raises:
        UnknownName: no installed package offers ``name`` in ``group``.
        BadInput: several packages do, and none of them is opsmith.
    """
    return _find(group, name).value


def is_ours(group: str, name: str) -> bool:
    """Whether a name is opsmith's own; raises like :func:`target`."""
    return _distribution(_find(group, name)) == _OURS


def load(group: str, name: str) -> Any:
    """Import the object behind a name.

    Raises:
        UnknownName: no installed package offers ``name`` in ``group``.
        BadInput: several packages do, or the module or attribute behind it is missing.
    """
    entry = _find(group, name)
    try:
        return entry.load()
    except (ImportError, AttributeError) as exc:
        raise BadInput(
            f"{group} {name!r} of package {_distribution(entry)} does not load: {exc}; reinstall or remove that package"
        ) from exc


def _find(group: str, name: str) -> EntryPoint:
    found = {_distribution(entry): entry for entry in entry_points(group=group, name=name)}
    if not found:
        raise UnknownName(group.rpartition(".")[2].removesuffix("s"), name, names(group))
    if _OURS in found:
        return found[_OURS]
    if len(found) > 1:
        raise BadInput(
            f"several packages offer the {group} {name!r}: {', '.join(sorted(found))}; uninstall all but one"
        )
    return next(iter(found.values()))


def _distribution(entry: EntryPoint) -> str:
    return entry.dist.name if entry.dist is not None else "unknown"
