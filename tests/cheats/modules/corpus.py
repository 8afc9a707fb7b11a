"""Dishonest and honest solutions of module problems, and the folders that runs judge.

A hack is a folder ``hacks/<name>`` with ``about.toml`` (:class:`About`), the dishonest solution
``hack.py`` and its honest twin ``honest.py``, which solve a problem of ``problems/``. A new hack is
one folder more.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from opsmith.core.verdict import Status

ROOT = Path(__file__).parent

#: Which of a hack's two files is judged.
Side = Literal["hack", "honest"]


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``about.toml`` says.

    Attributes:
        description: one line: what the hack does.
        problem: the file of ``problems/`` that it pretends to solve, without its ending.
        family: the kind of cheat.
        policy: under which it is judged; its twin is honest under it.
        stopped_by: statuses of which at least one has to be found.
    """

    description: str
    problem: str
    family: str
    policy: Literal["native", "any"]
    stopped_by: tuple[Status, ...]


class ModuleHack(NamedTuple):
    """One folder of the corpus."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        """The folder's name, and in runs the name of its task."""
        return self.folder.name

    @property
    def problem(self) -> Path:
        return ROOT / "problems" / f"{self.about.problem}.py"

    def source(self, side: Side) -> Path:
        return self.folder / f"{side}.py"


class Folders(NamedTuple):
    """What a run over module problems reads."""

    problems: Path
    solutions: Path


def read_corpus(root: Path = ROOT / "hacks") -> list[ModuleHack]:
    """Every hack under ``root``, sorted by name.

    Raises:
        msgspec.ValidationError: an ``about.toml`` is not as :class:`About` wants it.
    """
    return [
        ModuleHack(about.parent, msgspec.toml.decode(about.read_bytes(), type=About))
        for about in sorted(root.glob("*/about.toml"))
    ]


def write(hacks: list[ModuleHack], side: Side, folder: Path) -> Folders:
    """Lay out problems and solutions so that one run judges all ``hacks``.

    Each hack gets a copy of its problem under its own name, because a run asks a problem once;
    the name stands in the copy too, because a run asks equal files once.
    """
    folders = Folders(folder / "problems", folder / "solutions")
    for path in folders:
        path.mkdir(parents=True)
    for hack in hacks:
        (folders.problems / f"{hack.name}.py").write_text(f"{hack.problem.read_text()}\n# {hack.name}\n")
        shutil.copy(hack.source(side), folders.solutions / f"{hack.name}.py")
    return folders
