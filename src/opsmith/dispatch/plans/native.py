"""The launcher in C++: ``launcher.cpp`` compiled and loaded.

It is compiled once for each torch, by :func:`opsmith.enable` and never while something is imported, and kept in the
cache folder. Without a compiler, or where anything else goes wrong, plans are carried out in Python.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import torch

from opsmith.core.cache import cache_folder
from opsmith.dispatch.plans.mode import LaunchMode, launch_mode

_SOURCE = Path(__file__).with_name("launcher.cpp")
_COMPILE_TIMEOUT_S = 300

_log = logging.getLogger("opsmith")


def build() -> None:
    """Compile the library if there is none for this torch; a second process waits for the first.

    Without success there is one line in the log.
    """
    if launch_mode() is not LaunchMode.NATIVE or _path().exists():
        return
    try:
        _build(_path())
    except (OSError, subprocess.SubprocessError) as exc:
        _log.warning("calls are launched from Python, for the launcher in C++ cannot be built: %s", _line(exc))
    _library.cache_clear()


def library() -> ctypes.CDLL | None:
    """The library, if it is wanted and has been built."""
    return _library() if launch_mode() is LaunchMode.NATIVE else None


@contextlib.contextmanager
def as_if_called_by_torch() -> Iterator[None]:
    """What this thread calls goes through the launcher, though it is in a function that the launcher has called."""
    found = library()
    if found is None:
        yield
        return
    before = found.opsmith_in_python(False)
    try:
        yield
    finally:
        found.opsmith_in_python(before)


@functools.cache
def _library() -> ctypes.CDLL | None:
    path = _path()
    if not path.exists():
        return None
    try:
        found = ctypes.CDLL(str(path))
    except OSError as exc:
        _log.warning("calls are launched from Python, for the launcher in C++ cannot be loaded: %s", _line(exc))
        return None
    for name, (result, *arguments) in _FUNCTIONS.items():
        function = getattr(found, name)
        function.restype, function.argtypes = result, arguments
    return found


_ADDRESS = ctypes.c_void_p
#: Name -> type of the result, types of the arguments.
_FUNCTIONS = {
    "opsmith_front": (_ADDRESS, *[ctypes.c_char_p] * 4, _ADDRESS, _ADDRESS),
    "opsmith_register": (ctypes.c_bool, _ADDRESS),
    "opsmith_unregister": (None, _ADDRESS),
    "opsmith_use": (None, _ADDRESS, ctypes.c_bool, _ADDRESS),
    "opsmith_plans": (_ADDRESS,),
    "opsmith_free_plans": (None, _ADDRESS),
    "opsmith_clear": (None, _ADDRESS),
    "opsmith_replayed": (ctypes.c_int64, _ADDRESS),
    "opsmith_left": (ctypes.c_int64, _ADDRESS),
    "opsmith_in_python": (ctypes.c_bool, ctypes.c_bool),
    "opsmith_dtype": (ctypes.c_int64, ctypes.c_char_p),
    "opsmith_precision": (ctypes.c_int64, *[ctypes.c_char_p] * 3),
    "opsmith_learn": (ctypes.c_bool, _ADDRESS, _ADDRESS, ctypes.c_int64),
}


@functools.cache
def _path() -> Path:
    built_for = (torch.__version__, torch.compiled_with_cxx11_abi(), platform.machine(), _SOURCE.read_text("utf-8"))
    digest = hashlib.sha256(repr(built_for).encode()).hexdigest()
    return cache_folder() / "launcher" / f"launcher-{digest[:16]}.so"


def _build(path: Path) -> None:
    """Compile into ``path``.

    Raises:
        OSError: there is no compiler, or the folder cannot be written to.
        subprocess.SubprocessError: the compiler fails.
    """
    compiler = shutil.which(os.environ.get("CXX", "g++"))
    if compiler is None:
        raise FileNotFoundError("there is no C++ compiler; install g++ or set CXX")
    folder = Path(torch.__file__).parent
    path.parent.mkdir(parents=True, exist_ok=True)
    # The name is another one until the file is complete.
    unfinished = path.with_suffix(f".{os.getpid()}")
    command = [
        *(compiler, "-std=c++20", "-O2", "-shared", "-fPIC", str(_SOURCE), "-o", str(unfinished)),
        *(f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.compiled_with_cxx11_abi())}", f"-I{folder / 'include'}"),
        *(f"-L{folder / 'lib'}", "-ltorch_cpu", "-lc10"),
    ]
    with path.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if path.exists():
            return
        _log.info("compiling the launcher, once for torch %s", torch.__version__)
        subprocess.run(command, check=True, capture_output=True, timeout=_COMPILE_TIMEOUT_S)  # noqa: S603 - the user's own compiler on our file
        unfinished.rename(path)


def _line(exc: Exception) -> str:
    """What went wrong, in one line; of a compiler the first error that it names."""
    output = getattr(exc, "stderr", None) or b""
    errors = [line for line in output.decode(errors="replace").splitlines() if "error" in line]
    return errors[0] if errors else " ".join(str(exc).split())
