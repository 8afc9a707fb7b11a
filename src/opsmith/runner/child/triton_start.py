"""What Triton does before a process's first compilation, done once by the process that all others are forked from.

For the keys of its cache it hashes itself, 460 MB that take 0.4 s, and it imports its code generator. And it has a C
compiler make the module by which it calls NVIDIA's driver, another 0.4 s, and keeps that in its cache. Each worker is a
process of its own and each kernel has a cache of its own, so that each kernel would pay for both.

Where its interpreter runs kernels instead, what it does again and again is done once.
"""

from __future__ import annotations

import dataclasses
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
    """Have the interpreter do once what it does again and again, and leave out what it throws away.

    Together these took more than half of the time that the tests of attention and softmax took: at each call of a
    function within a kernel, in each program, it looks through all of the language for what it has replaced already;
    for each sum, difference and product of integers it computes whether it overflows, and tells nobody unless it
    debugs; it makes a table of types for each type that it looks up. Does nothing where it was done before.
    """
    from triton.runtime import interpreter

    if hasattr(interpreter._patch_lang, "__wrapped__"):
        return
    interpreter._patch_lang = _replacing_what_is_left(interpreter._patch_lang)
    interpreter._get_np_dtype = _looked_up_once(interpreter._get_np_dtype)
    builder = interpreter.interpreter_builder
    builder.options = dataclasses.replace(builder.options, sanitize_overflow=builder.options.debug)


def _replacing_what_is_left(replace: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import triton.language as tl
    from triton.runtime import interpreter

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

    return replace_what_is_left


def _looked_up_once(look_up: Callable[[Any], Any]) -> Callable[[Any], Any]:
    import triton.language as tl

    found: dict[str, Any] = {}

    @functools.wraps(look_up)
    def looked_up(dtype: Any) -> Any:
        element = dtype.element_ty if isinstance(dtype, tl.block_type) else dtype
        if isinstance(element, tl.pointer_type):
            return look_up(element)
        if element.name not in found:
            found[element.name] = look_up(element)
        return found[element.name]

    return looked_up


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
