"""Which lines of its own files did a kernel execute in one call?

Static evidence says what a line would do; whether it ran at all is seen here. It is what proves that
numpy did the work: the dispatcher of torch never hears of it.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, Self

_INSTALLING = threading.Lock()
#: What ``threading`` starts threads with; Python 3.13 has another function for it.
_STARTING = "_start_joinable_thread" if hasattr(threading, "_start_joinable_thread") else "_start_new_thread"


class TracedLines:
    """While entered, notes the lines that run in a kernel's files, in this thread and in those started meanwhile.

    A thread that ran before goes unseen, and so does one that ``_thread`` starts directly. Frames of other files are
    not traced line by line, so that a call into torch costs what it always does.

    Args:
        root: the folder that the kernel was loaded from.
        paths: its files, relative to ``root``.

    Attributes:
        disturbed: whether the kernel took the trace function away, and so may have run more than was seen.
    """

    def __init__(self, root: Path, paths: Iterable[str]) -> None:
        self._lines: dict[str, set[int]] = {path: set() for path in paths}
        self._own = {os.path.realpath(root / path): lines for path, lines in self._lines.items()}
        #: The file name of a code object -> the lines seen in it, or None where it is not the kernel's.
        self._files: dict[str, set[int] | None] = {}
        self.disturbed = False

    @property
    def executed(self) -> Mapping[str, frozenset[int]]:
        """Relative path -> line numbers, counted from 1."""
        return {path: frozenset(lines) for path, lines in self._lines.items()}

    def __enter__(self) -> Self:
        # One bound method throughout: each access of the attribute would make another.
        self._installed, self._start = self._call, self._start_traced
        self._outer, self._starting = sys.gettrace(), getattr(threading, _STARTING)
        setattr(threading, _STARTING, self._start)
        self._trace(self._installed)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disturbed = sys.gettrace() is not self._installed or getattr(threading, _STARTING) is not self._start
        self._trace(self._outer)
        setattr(threading, _STARTING, self._starting)

    def _start_traced(self, function: Callable[..., object], *how: Any, **named: Any) -> Any:
        """Start a thread, as ``threading`` does, that is traced from its first frame on."""

        def traced(*args: Any, **kwargs: Any) -> None:
            self._trace(self._installed)
            function(*args, **kwargs)

        return self._starting(traced, *how, **named)

    @staticmethod
    def _trace(function: Any) -> None:
        """Trace this thread.

        ``threading.settrace`` would have each thread do so when it begins. But Python 3.11 raises if two threads do so
        at once, and the one that meets the error ends before it has done anything.
        """
        with _INSTALLING:
            sys.settrace(function)

    def _call(self, frame: FrameType, _event: str, _argument: Any) -> Any:
        """Python's trace function, called for each new frame; what it returns is called for the frame's lines."""
        name = frame.f_code.co_filename
        if name not in self._files:
            self._files[name] = self._own.get(os.path.realpath(name))
        lines = self._files[name]
        if lines is None:
            return None

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            if event == "line":
                lines.add(frame.f_lineno)
            return line

        return line
