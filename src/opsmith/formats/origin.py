"""Where a module problem comes from that was made from a task of another tool's format."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_SUFFIX = ".origin.json"


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """What stands beside a problem's file as ``NAME.origin.json``.

    Attributes:
        format: name of the format.
        name: what the format calls the task.
        file: the file that it was read from.
        record: what the format needs to know of the task when solutions and results are written for it.
    """

    format: str
    name: str
    file: str
    record: dict[str, Any]

    def read(self, record: type[T]) -> T:
        """The record, of the format's own type."""
        return msgspec.convert(self.record, record)


def origin_file(problem: str) -> str:
    """Where the origin of a problem file lies."""
    return problem.removesuffix(".py") + _SUFFIX


def origin_of(problem: Path) -> Origin | None:
    """The origin of a problem; None where its file was written as a module problem."""
    try:
        return msgspec.json.decode(Path(origin_file(str(problem))).read_bytes(), type=Origin)
    except OSError:
        return None
