"""What a kernel finds of the judge in its worker: no module of opsmith's, no argument, no variable.

A worker is forked from a process that has imported opsmith. Its modules live on, by the functions that use them, and
cannot be found by their names any more. What remains to be found (frames, the garbage collector's list) tells a kernel
apart in a process that has nothing of opsmith's, see :mod:`opsmith.runner.bare.program`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from types import ModuleType

from opsmith.core.judging import ENABLING_EVENT, JUDGING_VARIABLE
from opsmith.errors import EnabledWhileJudging

#: Variables that concern how the zygote starts.
_STARTING = (
    *(JUDGING_VARIABLE, "PYTORCH_NVML_BASED_CUDA_CHECK", "PYTHONHASHSEED"),
    *("PYTHONDONTWRITEBYTECODE", "PYTHONWARNINGS", "CUDA_DEVICE_MAX_CONNECTIONS"),
)
_PACKAGE = "opsmith"


class Disguise:
    """Put on before a stranger's code is loaded, and taken off while the worker imports something of its own."""

    def __init__(self) -> None:
        self._hidden: dict[str, ModuleType] = {}

    @property
    def is_on(self) -> bool:
        return bool(self._hidden)

    def put_on(self) -> None:
        """Hide modules, arguments and variables; for the rest of the process's life."""
        if self.is_on:
            return
        sys.addaudithook(_refuse_enabling)
        for name in _STARTING:
            os.environ.pop(name, None)
        sys.argv[1:] = []
        sys.orig_argv[2:] = []
        program = sys.modules["__main__"]
        self._hidden = _own_modules()
        for name in self._hidden:
            del sys.modules[name]
        for name in [name for name, value in vars(program).items() if _is_own(value)]:
            delattr(program, name)

    @contextlib.contextmanager
    def off(self) -> Iterator[None]:
        """Within it opsmith can be imported from."""
        if not self.is_on:
            yield
            return
        strangers = _own_modules()  # Whoever imports opsmith by itself gets another one.
        sys.modules.update(self._hidden)
        try:
            yield
        finally:
            self._hidden = _own_modules()
            for name in self._hidden:
                del sys.modules[name]
            sys.modules.update(strangers)


def _own_modules() -> dict[str, ModuleType]:
    return {name: module for name, module in sys.modules.items() if name.partition(".")[0] == _PACKAGE}


def _is_own(value: object) -> bool:
    return str(getattr(value, "__module__", "")).partition(".")[0] == _PACKAGE


def _refuse_enabling(event: str, _arguments: tuple[object, ...]) -> None:
    if event == ENABLING_EVENT:
        raise EnabledWhileJudging
