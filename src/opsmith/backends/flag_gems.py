"""FlagGems, a library of Triton kernels, judged on the table by which it registers its ops.

FlagGems keeps pairs of (aten overload name, function), some with a third item: a condition on
the torch version. In 5.0.2 the table is the private name ``flag_gems._FULL_CONFIG``; no public name holds
it without registering the ops in the dispatcher.
"""

from __future__ import annotations

import functools
import importlib.util
from collections.abc import Callable
from typing import Any

from opsmith.backends.attribute import NeedsDiscovery
from opsmith.errors import MissingDependency


class FlagGems(NeedsDiscovery):
    """Asks a worker for FlagGems' table; in-place and ``out=`` overloads are answered where it lists them.

    Raises:
        MissingDependency: the package is not installed.
    """

    def __init__(self) -> None:
        if importlib.util.find_spec("flag_gems") is None:
            raise MissingDependency("flag_gems", extra="flag-gems")
        super().__init__(name="flag_gems", target=f"{__name__}:kernel_for", derives=False)


def kernel_for(op: str) -> Callable[..., Any] | None:
    """FlagGems' function for an overload, or None. Runs in workers only: it imports Triton and torch."""
    return _table().get(op)


@functools.cache
def _table() -> dict[str, Callable[..., Any]]:
    import flag_gems

    table = {}
    for key, function, *condition in flag_gems._FULL_CONFIG:
        if all(holds() for holds in condition):
            table[key if "." in key else f"{key}.default"] = function
    return table
