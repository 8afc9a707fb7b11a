"""Which tile is fastest: what was measured on a device, or else what a kernel's own rule says.

A kernel whose speed hangs on its tile has a :class:`Family` and asks it with a name for its work: types, precision, and
sizes in classes that are at most a quarter wide (:func:`size_class`). ``opsmith tune`` times the candidates of works
that models ask and writes a table with the times that each choice was made for: to the user's cache, or, for a
device of which opsmith ships a table, to ``tuned/`` beside the families' folders. The user's goes first.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, TypeAlias, TypeVar

import torch

from .launch import INTERPRETED

Work: TypeAlias = tuple[str | int, ...]
#: Family -> work, its parts joined by spaces -> the entry of a table.
Table: TypeAlias = dict[str, dict[str, dict[str, Any]]]
Choice = TypeVar("Choice", bound=tuple[int, ...])

SHIPPED_TABLES = Path(__file__).parents[1] / "tuned"
FAMILIES: dict[str, Family[Any]] = {}


class Family(Generic[Choice]):
    """The kernels that share a rule for their tiles.

    Attributes:
        candidates: the choices that are worth timing for a work.
        forced: what is chosen whatever was asked, for whoever times candidates.
        asked: told of each work and the rule's choice for it, if set.

    Args:
        name: of the family, in tables.
        make: makes a choice, a named tuple of ints, of its parts.
        candidates: see above.
    """

    def __init__(self, name: str, make: Callable[..., Choice], candidates: Callable[[Work], Sequence[Choice]]) -> None:
        self.name = name
        self._make = make
        self.candidates = candidates
        self.forced: Choice | None = None
        self.asked: Callable[[Work, Choice], None] | None = None
        FAMILIES[name] = self

    def choice(self, work: Work, rule: Choice, device: torch.device) -> Choice:
        """What was measured to be fastest for ``work`` on ``device``, else what the ``rule`` says."""
        if self.asked is not None:
            self.asked(work, rule)
        if self.forced is not None:
            return self.forced
        if INTERPRETED or device.type != "cuda":
            return rule
        entry = table_of(device_name(device)).get(self.name, {}).get(work_name(work))
        return rule if entry is None else self._make(*entry["choice"])

    @contextmanager
    def force(self, choice: Sequence[int]) -> Iterator[None]:
        """Choose this, whatever is asked."""
        self.forced = self._make(*choice)
        try:
            yield
        finally:
            self.forced = None


def work_name(work: Work) -> str:
    """A work as tables name it."""
    return " ".join(map(str, work))


def size_class(size: int) -> int:
    """The class of a size: up to 16 itself, above the next of 4, 5, 6 and 7 times a power of two."""
    if size <= 16:
        return size
    step = 1 << (size.bit_length() - 3)
    return -(-size // step) * step


@functools.cache
def device_name(device: torch.device) -> str:
    """``NVIDIA H200``."""
    return torch.cuda.get_device_name(device)


def own_tables() -> Path:
    """The folder of the tables that ``opsmith tune`` wrote on this machine, by the rule of opsmith's other caches."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opsmith" / "tuned"


@functools.cache
def table_of(device: str) -> Table:
    """The shipped table of a device with this machine's own entries over it; empty where nothing was measured."""
    merged: Table = {}
    name = re.sub("[^a-z0-9]+", "-", device.lower()).strip("-") + ".json"
    for file in (SHIPPED_TABLES / name, own_tables() / name):
        if file.is_file():
            for family, entries in json.loads(file.read_text())["families"].items():
                merged.setdefault(family, {}).update(entries)
    return merged
