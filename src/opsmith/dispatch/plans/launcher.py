"""Launch plans carried out in C++: ``launcher.cpp`` compiled, loaded and put in front of the Python functions.

It is compiled once for each torch, by :func:`opsmith.enable` and never while something is imported, and kept in the
cache folder. Without a compiler, or where anything else goes wrong, plans are carried out in Python.
"""

from __future__ import annotations

import ctypes
import enum
import fcntl
import functools
import hashlib
import logging
import os
import platform
import shutil
import subprocess
import weakref
from pathlib import Path

import torch
from torch._ops import OpOverload

from opsmith.core.cache import cache_folder
from opsmith.dispatch.plans.cuda_driver import Driver
from opsmith.dispatch.plans.plan import Form, HostScalar, Launch, LaunchPlan, Number, Precision, Result
from opsmith.errors import BadInput

Words = ctypes.Array[ctypes.c_int64]

#: Says how plans are carried out: a value of :class:`LaunchMode`.
VARIABLE = "OPSMITH_LAUNCHER"
_SOURCE = Path(__file__).with_name("launcher.cpp")
_COMPILE_TIMEOUT_S = 300

_log = logging.getLogger("opsmith")


class LaunchMode(enum.StrEnum):
    """How plans are carried out."""

    NATIVE = "native"
    PYTHON = "python"
    OFF = "off"


def chosen() -> LaunchMode:
    """What the environment says; C++ where it says nothing.

    Raises:
        BadInput: it says something else.
    """
    value = os.environ.get(VARIABLE, LaunchMode.NATIVE)
    try:
        return LaunchMode(value)
    except ValueError as exc:
        raise BadInput(f"{VARIABLE}={value} is none of {', '.join(LaunchMode)}; unset it or give one of these") from exc


# ---------------------------------------------------------------- the library


def build() -> None:
    """Compile the library if there is none for this torch; a second process waits for the first.

    Without success there is one line in the log.
    """
    if chosen() is not LaunchMode.NATIVE or _path().exists():
        return
    try:
        _build(_path())
    except (OSError, subprocess.SubprocessError) as exc:
        _log.warning("calls are launched from Python, for the launcher in C++ cannot be built: %s", _line(exc))
    _library.cache_clear()


def library() -> ctypes.CDLL | None:
    """The library, if it is wanted and has been built."""
    return _library() if chosen() is LaunchMode.NATIVE else None


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
    "opsmith_dtype": (ctypes.c_int64, ctypes.c_char_p),
    "opsmith_precision": (ctypes.c_int64, *[ctypes.c_char_p] * 3),
    "opsmith_learn": (ctypes.c_bool, _ADDRESS, _ADDRESS),
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


# ---------------------------------------------------------------- tables and fronts


class Table:
    """The plans of one kernel, as C++ finds them."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self._library = library
        self.handle: int = library.opsmith_plans()
        weakref.finalize(self, library.opsmith_free_plans, self.handle)

    def words(self, plan: LaunchPlan) -> Words:
        """A plan as ``launcher.cpp`` reads it: lists follow their lengths."""
        words = [len(plan.allocations)]
        for shape, strides, dtype in plan.allocations:
            words += [self._dtype(dtype), len(shape), *shape, len(strides), *strides]
        words.append(len(plan.steps))
        for step in plan.steps:
            # A copy has no function.
            words += _launch_words(step) if isinstance(step, Launch) else [0, *step]
        words.append(plan.form is Form.LIST)
        words += [len(plan.results), *(number for result in plan.results for number in self._result(result))]
        words += [len(plan.reaches), *(number for reach in plan.reaches for number in reach)]
        words += [len(plan.precisions), *map(self._precision, plan.precisions)]
        return (ctypes.c_int64 * len(words))(*words)

    def learn(self, words: Words) -> None:
        """Keep a plan for the call that a front has handed to Python in this thread, if there is such a call."""
        self._library.opsmith_learn(self.handle, words)

    def clear(self) -> None:
        """Forget all plans."""
        self._library.opsmith_clear(self.handle)

    @property
    def replayed(self) -> int:
        """How many calls were answered by plans in C++."""
        count: int = self._library.opsmith_replayed(self.handle)
        return count

    def _result(self, result: Result) -> tuple[int, int]:
        """0 and a tensor's number, or -1 for none; 1 and a number; 2 and the dtype of a tensor on the host."""
        if isinstance(result, Number):
            return 1, result.value
        if isinstance(result, HostScalar):
            return 2, self._dtype(result.dtype)
        return 0, -1 if result is None else result

    def _precision(self, precision: Precision) -> int:
        word: int = self._library.opsmith_precision(*(text.encode() for text in precision))
        return word

    def _dtype(self, dtype: torch.dtype) -> int:
        number: int = self._library.opsmith_dtype(str(dtype).removeprefix("torch.").encode())
        return number


def _launch_words(launch: Launch) -> list[int]:
    return [
        *(launch.function, *launch.grid, 32 * launch.warps, launch.shared_bytes, launch.overlaps),
        *(len(launch.slots), *launch.slots),
        *(len(launch.pointers), *(number for pointer in launch.pointers for number in pointer)),
    ]


class Front:
    """What stands in torch's table of one overload under a device's key, before a Python function.

    Make it, put the Python function into the table, then call :meth:`register`. While it is off, calls go to what
    was in the table when it was made, without Python.
    """

    def __init__(self, library: ctypes.CDLL, op: OpOverload, key: str, driver: Driver) -> None:
        self.library = library
        name, _, overload = op.name().partition(".")
        texts = [text.encode() for text in (name, overload, key, driver.device_type)]
        self._handle = library.opsmith_front(*texts, driver.launch_address, driver.stream_address)
        assert self._handle, f"torch has no {op}"

    def register(self) -> None:
        """Put it into the table."""
        registered = self.library.opsmith_register(self._handle)
        assert registered

    def unregister(self) -> None:
        """Take it out of the table; whoever calls this keeps torch's handle of it alive for threads that are in it."""
        self.library.opsmith_unregister(self._handle)

    def use(self, table: Table | None) -> None:
        """Answer calls by the plans of a table, or leave all to the Python function."""
        self.library.opsmith_use(self._handle, True, None if table is None else table.handle)

    def switch_off(self) -> None:
        """Leave all calls to what was in the table when the front was made."""
        self.library.opsmith_use(self._handle, False, None)
