"""Columns: the ways to run a whole model that a run of the suite ``models`` puts side by side.

A column is written as one word::

    eager             the model as it is
    inductor          torch.compile with that backend; any backend that torch knows or a package offers
    max-autotune      torch.compile in that mode of Inductor
    enabled:KERNELS   eager with kernels enabled: what ``opsmith.enable(KERNELS)`` takes
    my_kernels/       the same, of a path
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path

import msgspec

from opsmith.errors import UnknownName

EAGER = "eager"
_ENABLED = "enabled:"


class How(enum.StrEnum):
    """What is done to a model."""

    EAGER = "eager"
    BACKEND = "backend"
    MODE = "mode"
    ENABLED = "enabled"


class Column(msgspec.Struct, frozen=True):
    """A way to run a model.

    Attributes:
        name: as it was asked for.
        how: what is done.
        what: the backend, the mode or the kernels; empty for eager.
    """

    name: str
    how: How
    what: str


def parse_column(name: str, *, backends: Iterable[str], modes: Iterable[str]) -> Column:
    """Read a column's name.

    Args:
        name: as it was asked for.
        backends: of ``torch.compile``.
        modes: of Inductor.

    Raises:
        UnknownName: it names nothing.
    """
    if name == EAGER:
        return Column(name, How.EAGER, "")
    if name.startswith(_ENABLED):
        return Column(name, How.ENABLED, name.removeprefix(_ENABLED))
    if "/" in name or Path(name).is_dir():
        return Column(name, How.ENABLED, name)
    if name in modes:
        return Column(name, How.MODE, name)
    if name in backends:
        return Column(name, How.BACKEND, name)
    raise UnknownName("column", name, (EAGER, f"{_ENABLED}KERNELS", *modes, *backends))
