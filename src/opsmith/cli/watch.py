"""Watching a file: what is done again whenever somebody saves it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path

from opsmith.errors import UsageError

#: Between two looks at the file.
POLL_S = 0.3


def watched(file: Path, do: Callable[[], int | None], *, sleep: Callable[[float], None] = time.sleep) -> int:
    """Do something now and after every change of a file, until it is interrupted.

    What is wrong with the file is told, and the next change waited for.

    Args:
        file: is looked at by its time and size.
        do: what is done.
        sleep: waits between two looks.
    """
    while True:
        before = _stamp(file)
        try:
            do()
        except UsageError as exc:
            sys.stderr.write(f"opsmith: {exc}\n")
        sys.stderr.write(f"opsmith: waiting for {file} to change; Ctrl-C ends\n")
        while _stamp(file) in {before, None}:  # An editor may take a file away before it puts the next one there.
            sleep(POLL_S)


def _stamp(file: Path) -> tuple[int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size
