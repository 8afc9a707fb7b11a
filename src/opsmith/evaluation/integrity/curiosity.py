"""Kernels that look where nothing of theirs is: at their callers' variables, or at all objects of the process.

Python reports such looks to audit hooks, which nobody can take away again. What it does not report
(``f_back`` of a frame that an exception carries) reading the source shows.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_LOOKS = frozenset({"sys._getframe", "sys._current_frames", "gc.get_objects", "gc.get_referrers", "gc.get_referents"})
#: Files that look on behalf of their caller.
_ON_BEHALF = frozenset({inspect.__file__, traceback.__file__})


def _listener() -> Callable[[Path, Callable[[str], None]], None]:
    listeners: list[tuple[str, Callable[[str], None]]] = []
    own = threading.local()

    def listen(root: Path, note: Callable[[str], None]) -> None:
        """Note the looks that code in files below ``root`` takes; for the rest of the process's life.

        Args:
            root: the folder that the kernel is loaded from.
            note: takes a line with the look and the ``file:line``.
        """
        if not listeners:
            sys.addaudithook(hear)
        listeners.append((os.path.realpath(root) + os.sep, note))

    def hear(event: str, _arguments: tuple[Any, ...]) -> None:
        if event not in _LOOKS or getattr(own, "busy", False):
            return
        own.busy = True  # Asking for the frame is a look, too.
        try:
            frame = _on_whose_behalf(sys._getframe(1))
            if frame is None:
                return
            file = os.path.realpath(frame.f_code.co_filename)
            for folder, note in listeners:
                if file.startswith(folder):
                    note(f"called {event} at {Path(file).name}:{frame.f_lineno}")
        finally:
            own.busy = False

    return listen


#: One hook serves all kernels of a process: each hook of several would hear the looks of all others.
listen = _listener()


def _on_whose_behalf(frame: FrameType | None) -> FrameType | None:
    while frame is not None and (frame.f_code.co_filename in _ON_BEHALF or frame.f_code.co_filename.startswith("<")):
        frame = frame.f_back
    return frame
