"""What Triton does before a process's first compilation, done once by the process that all others are forked from.

For the keys of its cache it hashes itself, 460 MB that take 0.4 s, and it imports its code generator. And it has a C
compiler make the module by which it calls NVIDIA's driver, another 0.4 s, and keeps that in its cache. Each worker is a
process of its own and each kernel has a cache of its own, so that each kernel would pay for both.

Where its interpreter runs kernels instead, what it does again and again is done once.
"""

from __future__ import annotations

import functools
import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from opsmith.core.run import write_atomically

#: Of the module for the driver: path in a cache -> content. The processes that are forked inherit it.
_driver_module: dict[Path, bytes] = {}

_MAKE_DRIVER_MODULE = "from triton.backends.nvidia.driver import CudaUtils; CudaUtils()"
BUILD_TIMEOUT_S = 60.0


class DriverModule:
    """The module for the driver, compiled beside whatever else a starting process does.

    Args:
        cache: a folder for Triton's cache, which nobody else uses.
    """

    def __init__(self, cache: Path) -> None:
        self._cache = cache
        self._compiling = subprocess.Popen(  # noqa: S603 - another process: in this one nothing may load the driver
            [sys.executable, "-P", "-c", _MAKE_DRIVER_MODULE],
            env=os.environ | {"TRITON_CACHE_DIR": str(cache)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def keep(self) -> None:
        """Wait for it, and keep it for :func:`place_driver_module`; where it cannot be made, no kernel is launched."""
        try:
            status = self._compiling.wait(BUILD_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._compiling.kill()
            status = self._compiling.wait()
        if status == 0:
            files = [path for path in self._cache.rglob("*") if path.is_file()]
            _driver_module.update({path.relative_to(self._cache): path.read_bytes() for path in files})


def make_keys_quick() -> None:
    """Compute what is part of all keys of the cache, and import what compiles."""
    import triton.compiler.code_generator  # noqa: F401
    from triton.runtime.build import platform_key
    from triton.runtime.cache import triton_key

    triton_key()
    platform_key()


def make_interpreter_quick() -> None:
    """Have the interpreter replace the language once a launch, not at each call of a function within a kernel, too.

    At each such call, in each program, it looks through all of the language for what it has replaced already, a fifth
    of the time that the tests of attention, softmax and antialiasing took. Does nothing where it was done before.
    """
    import triton.language as tl
    from triton.runtime import interpreter

    replace: Callable[[Any], Any] = interpreter._patch_lang
    if hasattr(replace, "__wrapped__"):
        return

    @functools.cache
    def seen_by(function: Any) -> list[ModuleType]:
        return [it for it in function.__globals__.values() if inspect.ismodule(it) and it in (tl, tl.core)]

    @functools.wraps(replace)
    def replace_what_is_left(function: Any) -> Any:
        languages = seen_by(function)
        # What is replaced of each is replaced together, and so is put back what all of them share, the tensor.
        samples = [tl.tensor.__add__, *[language.load for language in languages]]
        if languages and not any(tl.core.is_builtin(sample) for sample in samples):
            return interpreter._LangPatchScope()  # There is nothing to put back.
        return replace(function)

    interpreter._patch_lang = replace_what_is_left


def place_driver_module(cache: Path) -> None:
    """Put the module for the driver into a cache of Triton's that lacks it.

    Args:
        cache: what ``TRITON_CACHE_DIR`` names.
    """
    for relative, content in _driver_module.items():
        path = cache / relative
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_atomically(path, content)  # Others may do the same.
