"""Kernels that look where nothing of theirs is: at their callers, at all objects, at other processes, for opsmith.

Python reports such looks to audit hooks, which nobody can take away again. What it does not report
(``f_back`` of a frame that an exception carries) reading the source shows. A look counts for the file whose line takes
it: the library's logging, ``inspect.signature`` or torch's compiler look for themselves.
"""

from __future__ import annotations

import glob
import importlib
import inspect
import io
import os
import pathlib
import re
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

_LOOKS = frozenset(
    {
        *("sys._getframe", "sys._getframemodulename", "sys._current_frames", "sys._current_exceptions"),
        *("sys.settrace", "sys.setprofile", "gc.get_objects", "gc.get_referrers", "gc.get_referents"),
    }
)
#: Events with a path, or a name, as their first argument.
_FILES = frozenset({"open", "os.listdir", "os.scandir"})
_IMPORT = "import"
_COMMAND = "subprocess.Popen"
#: Programs that list processes.
_LISTING = frozenset({"ps", "pgrep", "pidof", "pstree", "top", "lsof"})
#: Files that look on behalf of their caller. The modules of ``pathlib`` are a package in some versions of Python.
_ON_BEHALF = frozenset(module.__file__ for module in (glob, importlib, inspect, io, os, subprocess, traceback))
_FOLDER_ON_BEHALF = str(Path(pathlib.__file__).with_suffix("")).removesuffix("__init__").rstrip(os.sep)
#: Of processes: how they were started, and what they hold. Of memory and processors a process may ask for its own.
_OF_PROCESSES = re.compile(
    r"/proc/?(?:$|(?:self|thread-self|\d+)(?:/task(?:/\d+)?)?/(?:cmdline|environ|comm|exe|stack|fd|fdinfo)(?:/|$))"
)
_OF_OTHERS = re.compile(r"/proc/(\d+)(?:/|$)")
_PACKAGE = "opsmith"
#: Where it is installed: ``importlib.import_module`` reports no import, but that it opens these files.
_INSTALLED = os.path.realpath(Path(__file__).parents[2]) + os.sep


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

    def hear(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _LOOKS:
            look = f"called {event}"
        elif event in _FILES or event in (_IMPORT, _COMMAND):
            found = _look_at(event, arguments)
            if found is None:
                return
            look = found
        else:
            return
        if getattr(own, "busy", False):
            return
        own.busy = True  # Asking for the frame is a look, too.
        try:
            frame = _on_whose_behalf(sys._getframe(1))
            if frame is None:
                return
            file = os.path.realpath(frame.f_code.co_filename)
            for folder, note in listeners:
                if file.startswith(folder):
                    note(f"{look} at {Path(file).name}:{frame.f_lineno}")
        finally:
            own.busy = False

    return listen


#: One hook serves all kernels of a process: each hook of several would hear the looks of all others.
listen = _listener()


def _look_at(event: str, arguments: tuple[Any, ...]) -> str | None:
    """What is held against a kernel that opens a file, lists a folder or imports a module, or None."""
    if not arguments or type(arguments[0]) not in (str, bytes):
        return None
    name = os.fsdecode(arguments[0])
    if event == _COMMAND:
        program = Path(name).name
        return f"ran {program}" if program in _LISTING else None
    if event == _IMPORT:
        return "imported opsmith" if name.partition(".")[0] == _PACKAGE else None
    if name.startswith(_INSTALLED):
        return f"looked at {_PACKAGE}/{name.removeprefix(_INSTALLED)}"
    if not name.startswith("/proc"):
        return None
    other = _OF_OTHERS.match(name)
    if other is not None and int(other[1]) != os.getpid():
        return f"looked at another process in {name[: other.start(1)]}"
    if _OF_PROCESSES.match(name):
        return f"looked at {name}"
    return None


def _on_whose_behalf(frame: FrameType | None) -> FrameType | None:
    while frame is not None and _looks_for_another(frame.f_code.co_filename):
        frame = frame.f_back
    return frame


def _looks_for_another(file: str) -> bool:
    return file in _ON_BEHALF or file.startswith(("<", _FOLDER_ON_BEHALF))
