"""Kernels that an installed package offers under a name.

A package registers them in its own pyproject.toml, and ``--backend my-kernels`` finds them::

    [project.entry-points."opsmith.kernels"]
    my-kernels = "my_package.kernels:table"

The attribute is anything that :func:`opsmith.runner.worker.loading.discover` understands, a folder of
kernels included.
"""

from __future__ import annotations

from opsmith import plugins
from opsmith.backends.attribute import NeedsDiscovery


def package_kernels(name: str) -> NeedsDiscovery:
    """Find a package's kernels by their name; the package is not imported.

    Raises:
        UnknownName: no installed package offers kernels under ``name``.
        BadInput: several packages do.
    """
    return NeedsDiscovery(name=name, target=plugins.target(plugins.KERNELS, name))
