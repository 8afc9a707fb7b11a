"""Solutions of other formats as files that define ``ModelNew``."""

from __future__ import annotations

import msgspec


class Translated(msgspec.Struct, frozen=True, kw_only=True):
    """A solution of another format as the files of a ``ModelNew``.

    Attributes:
        files: relative path -> text.
        file: of them, the one that defines ``ModelNew``.
        written_in: the file whose language is the solution's.
        dsl: its language, or None: as the file shows it.
        author: who wrote it, if that is known.
        name: what its format calls it.
    """

    files: dict[str, str]
    file: str
    written_in: str
    dsl: str | None = None
    author: str | None = None
    name: str | None = None
