"""The files that belong to a kernel's folder."""

from __future__ import annotations

from pathlib import Path

from opsmith.core.case import digest
from opsmith.errors import BadInput
from opsmith.reviews.book import NAME as REVIEWS


def files_of(root: Path) -> dict[str, str]:
    """Relative path -> content hash of every file under ``root``.

    Left out are hidden files, ``__pycache__``, links that lead out of ``root``, and ``reviews.jsonl``: a kernel is
    judged on what its folder holds, and what people say of it changes nothing of that.

    Raises:
        BadInput: a file cannot be read.
    """
    digests = {}
    for path in sorted(root.rglob("*")):
        relative = path.relative_to(root)
        if any(part.startswith(".") or part == "__pycache__" for part in relative.parts) or path.name == REVIEWS:
            continue
        if path.is_file() and path.resolve().is_relative_to(root):
            try:
                digests[relative.as_posix()] = digest(path.read_bytes())
            except OSError as exc:
                raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
    return digests
