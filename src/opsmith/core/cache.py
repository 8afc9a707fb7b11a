"""Where opsmith keeps what can be made again, or fetched again."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from opsmith.errors import BadInput


def cache_folder() -> Path:
    """``$XDG_CACHE_HOME/opsmith`` or ``~/.cache/opsmith``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "opsmith"


def build_folder() -> Path:
    """Parent of the build caches, of which each kernel has its own."""
    return cache_folder() / "builds"


def written_folder(folder: Path, files: Mapping[str, str]) -> Path:
    """A folder of the cache with these files, relative path -> text; it is there only when it is complete.

    Raises:
        BadInput: it cannot be written.
    """
    if folder.is_dir():
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as made:
            complete = Path(made) / "complete"
            for name, text in files.items():
                path = complete / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            complete.replace(folder)
    except OSError as exc:
        if folder.is_dir():
            return folder  # Another process has written it meanwhile.
        raise BadInput(f"{folder} cannot be written: {exc.strerror}; set XDG_CACHE_HOME to another folder") from exc
    return folder
