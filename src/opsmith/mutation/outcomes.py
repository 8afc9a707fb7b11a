"""What judges said of mutants: an append-only file, one outcome a line."""

from __future__ import annotations

import contextlib
import enum
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec


class Result(enum.StrEnum):
    """What became of a mutant.

    KILLED and SURVIVED are a judge's, for NOT_ASKED it has no test of the op, for VOID it refused how the answer came
    about and said nothing of its value. The others are of the comparison with the original. ALLOWED differs, but on no
    input that was tried by more than the judge's comparison allows. UNDECIDED differs on none that means anything, and
    was compared on too few.
    """

    KILLED = "killed"
    SURVIVED = "survived"
    NOT_ASKED = "not asked"
    VOID = "void"
    EQUAL = "equal"
    DIFFERS = "differs"
    ALLOWED = "allowed"
    UNDECIDED = "undecided"


#: This project's judge in outcomes.
OPSMITH = "opsmith"
#: The judge of outcomes that compare a mutant with its original.
EQUIVALENCE = "equivalence"
#: The operator of outcomes about kernels without a fault.
ORIGINAL = "original"


class Outcome(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What one judge found about one mutant in one dtype.

    Attributes:
        mutant: its name; of an unchanged kernel that of its subject.
        op: the overload.
        origin: of the subject.
        operator: what made the fault, or ORIGINAL.
        family: the operator's.
        dtype: short name.
        judge: who says so.
        result: the outcome.
        why: what decided, in one line.
        before: the changed lines as they were.
        after: the changed lines.
        seconds: that it took.
    """

    mutant: str
    op: str
    origin: str
    operator: str
    family: str = ""
    dtype: str
    judge: str
    result: Result
    why: str = ""
    before: str = ""
    after: str = ""
    seconds: float = 0.0

    @property
    def key(self) -> tuple[str, str, str]:
        return self.mutant, self.dtype, self.judge


class Book:
    """The file of outcomes. A line that a kill cut off is dropped when the file is opened again."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.outcomes: dict[tuple[str, str, str], Outcome] = {}
        for outcome in _read(path):
            self.outcomes[outcome.key] = outcome

    def add(self, outcome: Outcome) -> None:
        """Keep an outcome; may be called from several threads."""
        with self._path.open("ab", buffering=0) as file:
            file.write(msgspec.json.encode(outcome) + b"\n")
        self.outcomes[outcome.key] = outcome


def _read(path: Path) -> Iterator[Outcome]:
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
    for line in content[:whole].splitlines():
        with contextlib.suppress(msgspec.DecodeError):
            yield msgspec.json.decode(line, type=Outcome)
