"""The corpus of dishonest kernels under ``tests/cheats``, and the kernel directories that runs judge.

A hack is a folder ``tests/cheats/<family>/<name>`` with ``about.toml`` (:class:`About`), the
dishonest kernel ``hack.py`` and its honest twin ``honest.py``: the same task in the same style
without the cheat. A new hack is one folder more, and ``python -m tests.cheats_corpus`` adds it to
the table in ``docs/reference/cheats.md``.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from opsmith.core.op import folder_name
from opsmith.core.run import Summary
from opsmith.core.verdict import Status

ROOT = Path(__file__).parent / "cheats"
PAGE = Path(__file__).parents[1] / "docs" / "reference" / "cheats.md"
#: The table of the page stands behind this line and goes to its end.
TABLE_HEADING = "## The hacks\n"

#: Which of a hack's two files is judged.
Side = Literal["hack", "honest"]


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``about.toml`` says.

    Attributes:
        description: one line: what the hack does and what it gains.
        task: the overload that both files answer.
        family: the folder above.
        policy: under which the hack cheats; the twin is honest under it.
        stopped_by: statuses of which at least one has to be found; the first is the expected one.
        dtype: short name of the dtype it is judged with.
        device: where it runs.
        fools_naive: the evaluator in ``tests/naive_evaluator.py`` accepts it.
        naive: what happens there instead, where it is not fooled.
        naive_order: which side that evaluator runs first; harnesses do it either way.
        slow: its verdict needs a time limit or much memory: left out of the quick run.
        timed_in_full: it steals time alone and its results are right, so it may be accepted, but no faster than its
            twin.
    """

    description: str
    task: str
    family: str
    policy: Literal["native", "any"]
    stopped_by: tuple[Status, ...]
    dtype: str
    device: Literal["cpu", "cuda"]
    fools_naive: bool
    naive: str = ""
    naive_order: Literal["reference", "candidate"] = "reference"
    slow: bool = False
    timed_in_full: bool = False


class Hack(NamedTuple):
    """One folder of the corpus."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        """``family/name``."""
        return f"{self.about.family}/{self.folder.name}"

    def source(self, side: Side) -> Path:
        return self.folder / f"{side}.py"


class Round(NamedTuple):
    """Hacks that one run judges: of one policy and dtype, and at most one for each task."""

    policy: str
    dtype: str
    hacks: dict[str, Hack]

    def write(self, folder: Path, side: Side) -> Path:
        """Make ``folder`` a kernel directory in the public layout and return it."""
        for task, hack in self.hacks.items():
            name = folder_name(task)
            (folder / name).mkdir(parents=True)
            file = folder / name / f"{name}_implementation_v1.py"
            file.write_bytes(hack.source(side).read_bytes())
        return folder

    def statuses(self, summary: Summary) -> dict[str, set[Status]]:
        """For each hack every status that was found, by the hack's name: of its cases, their variants and itself."""
        found: dict[str, set[Status]] = {}
        for task, hack in self.hacks.items():
            score = summary.per_op[task]
            found[hack.name] = {Status(status) for status in (*score.statuses, *score.variants)}
            found[hack.name] |= {Status.DISHONEST} if score.dishonest else set()
            found[hack.name] |= {Status.POLICY} if score.policy else set()
        return found


def read_corpus(root: Path = ROOT) -> list[Hack]:
    """Every hack under ``root``, sorted by name.

    Raises:
        msgspec.ValidationError: an ``about.toml`` is not as :class:`About` wants it.
    """
    # The honest kernels and the modules beside the corpus have their own formats.
    return [
        Hack(about.parent, msgspec.toml.decode(about.read_bytes(), type=About))
        for about in sorted(root.glob("*/*/about.toml"))
        if (about.parent / "hack.py").is_file()
    ]


def rounds(hacks: Iterable[Hack]) -> list[Round]:
    """Spread hacks over as few rounds as their tasks allow."""
    spread: list[Round] = []
    for hack in hacks:
        task, policy, dtype = hack.about.task, hack.about.policy, hack.about.dtype
        free = next((r for r in spread if (r.policy, r.dtype) == (policy, dtype) and task not in r.hacks), None)
        if free is None:
            free = Round(policy, dtype, {})
            spread.append(free)
        free.hacks[task] = hack
    return spread


def quick(hacks: Iterable[Hack]) -> list[Hack]:
    """One hack of each family and policy, of those that the clock stops too, none that needs a time limit."""
    chosen: dict[tuple[str, str, str, bool], Hack] = {}
    for hack in hacks:
        about = hack.about
        if not about.slow:
            chosen.setdefault((about.family, about.policy, about.device, about.timed_in_full), hack)
    return list(chosen.values())


def table(hacks: Iterable[Hack]) -> str:
    """The hacks as tables in Markdown, one for each family."""
    lines: list[str] = []
    family = None
    for hack in hacks:
        about = hack.about
        if about.family != family:
            family = about.family
            lines += ["", f"### {family.replace('_', ' ')}", "", "| hack | task | what it does | verdict |"]
            lines += ["|---|---|---|---|"]
        task = f"`{about.task}`{', any' if about.policy == 'any' else ''}{', CUDA' if about.device == 'cuda' else ''}"
        verdict = "timed in full" if about.timed_in_full else about.stopped_by[0]
        lines.append(f"| {hack.folder.name} | {task} | {about.description} | {verdict} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the table of ``docs/reference/cheats.md`` anew."""
    head = PAGE.read_text(encoding="utf-8").partition(TABLE_HEADING)[0]
    PAGE.write_text(head + TABLE_HEADING + table(read_corpus()), encoding="utf-8")


if __name__ == "__main__":
    main()
