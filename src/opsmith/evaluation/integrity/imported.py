"""Functions that modules of installed packages put into others while they are imported, told from forged ones.

A module's name proves nothing: a kernel can register a module of any name. So the function has to be what the file
of an installed package says, which no worker can write to, and must read the globals that the file gave it.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import TypeGuard

import torch

from opsmith.evaluation.integrity.namespaces import installed_folders

#: Where torch is, which may be a checkout.
_TORCH = str(Path(torch.__file__).resolve().parent) + "/"


def is_as_installed(value: object, module: str, name: str, *, was: object = None) -> bool:
    """Whether a value is the function that a loaded module of an installed package has under a name.

    The globals that it reads are looked at, and no deeper: not what those read or hold.

    Args:
        value: what stands somewhere.
        module: full name of the module.
        name: of the function in it.
        was: what the value stands in for, which the function may call.
    """
    loaded = sys.modules.get(module)
    if not _is_module(loaded) or vars(loaded).get(name) is not value:
        return False
    held = vars(loaded)
    if not _is_as_written(value, module, held):
        return False
    read = [held[each] for each in _names(value.__code__) if each in held]
    return all(each is was or _is_left_alone(each, module, held) for each in read)


def _is_as_written(value: object, module: str, held: dict[str, object]) -> TypeGuard[FunctionType]:
    """Whether it is a function whose code is that of the module's file, and whose globals are the module's."""
    if type(value) is not FunctionType or value.__globals__ is not held or held["__builtins__"] is not vars(builtins):
        return False
    if value.__closure__ or value.__defaults__ or value.__kwdefaults__:
        return False
    return is_written(value.__code__, module)


def _is_left_alone(value: object, module: str, held: dict[str, object]) -> bool:
    """Whether a global that a function reads is what an import puts there: modules, functions."""
    if _is_module(value):
        return sys.modules.get(value.__name__) is value
    return type(value) is BuiltinFunctionType or _is_as_written(value, module, held)


def _is_module(value: object) -> TypeGuard[ModuleType]:
    return type(value) is ModuleType


def _names(code: CodeType) -> Iterator[str]:
    """The globals that code reads, and that the code of functions in it reads."""
    yield from (each.argval for each in dis.get_instructions(code) if each.opname == "LOAD_GLOBAL")
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def is_written(code: CodeType, module: str) -> bool:
    """Whether code is that of a function in the file of a module that is installed, or of torch's."""
    path = os.path.realpath(code.co_filename)
    below = module.replace(".", "/")
    is_installed = path.startswith((*installed_folders(), _TORCH))
    if not is_installed or not path.endswith((f"/{below}.py", f"/{below}/__init__.py")):
        return False
    return any(code == each for each in _compiled(code.co_filename))


@functools.cache
def _compiled(path: str) -> tuple[CodeType, ...]:
    """The functions of a file; none where it cannot be read."""
    try:
        whole = compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except (OSError, SyntaxError):
        return ()
    return tuple(constant for constant in whole.co_consts if isinstance(constant, CodeType))
