"""From a kernel record to something callable. Runs in workers: it imports and executes strangers' code."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, cast

import torch

from opsmith.aten.derivation import DerivedKernel
from opsmith.aten.schemas import overload
from opsmith.calls.live import CALL_DECODER, rebuild
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind
from opsmith.evaluation.timing.compiler import traceable, use_compiler_settings
from opsmith.loading import from_attribute, from_file, import_target, kernel_directory, lookup
from opsmith.runner.protocol.worker_messages import Discovered
from opsmith.tasks.module_call import CONSTRUCTION_SEED, ModuleCall
from opsmith.tasks.rank_program import answer_of_torch, collective_program, function_program, module_program

CPU = torch.device("cpu")

Call = Callable[..., Any]


def load_kernel(kernel: Kernel, root: Path | None, schema: OpSchema, device: torch.device = CPU) -> Call:
    """Load a kernel so that it can be called with the arguments of the overload ``schema``.

    Args:
        kernel: the record.
        root: the folder of its files, which may be a snapshot of ``kernel.root``.
        schema: the overload that it answers, or the module: then the kernel is a class, of which
            one instance is made with the problem's own arguments and put on the device. Of what ranks answer together
            the result is called with the program of a rank.
        device: where it runs.

    Raises:
        FileNotFoundError: the kernel's file is missing.
        ImportError: the file defines no such function, or an import in it fails.
        TypeError: what the entry names cannot be called.
        BaseException: whatever the stranger's code raises while it is loaded.
    """
    function = _load(kernel, root, schema, device)
    if not callable(function):
        raise TypeError(f"{kernel.entry} is a {type(function).__name__}, which cannot be called")
    if schema.kind is TaskKind.MODULE:
        return ModuleCall(_module(kernel.entry, function, schema, device))
    if schema.kind is TaskKind.COLLECTIVE:
        return collective_program(function, schema.name)
    if schema.kind is TaskKind.PARALLEL:
        return _parallel_program(kernel.entry, function, schema, device)
    if kernel.derived_from is None:
        return cast("Call", function)
    return DerivedKernel(function, overload(schema.name), overload(kernel.derived_from))


def _load(kernel: Kernel, root: Path | None, schema: OpSchema, device: torch.device) -> Any:
    match kernel.loader:
        case Loader.ATEN:
            return _of_torch(kernel, root, schema, device)
        case Loader.INDUCTOR:
            return _compiled(kernel.entry)
        case Loader.FILE | Loader.MODULE:
            return from_file(kernel, root)
        case Loader.ATTRIBUTE:
            return from_attribute(kernel.entry, kernel.derived_from or schema.name)


def _of_torch(kernel: Kernel, root: Path | None, schema: OpSchema, device: torch.device) -> Any:
    if schema.kind is TaskKind.OP:
        return overload(kernel.entry)
    return from_file(kernel, root) if schema.kind.of_problems else answer_of_torch(kernel.entry, device)


def _parallel_program(entry: str, found: Call, schema: OpSchema, device: torch.device) -> Call:
    """Of a class its instance, and of the public form the function itself."""
    if inspect.isclass(found):
        return module_program(_module(entry, found, schema, device))
    return function_program(found)


def _module(entry: str, make: Callable[..., Any], schema: OpSchema, device: torch.device) -> torch.nn.Module:
    assert schema.init is not None, "the problem was loaded when its cases were made"
    arguments = rebuild(CALL_DECODER.decode(schema.init), CPU).args
    torch.manual_seed(CONSTRUCTION_SEED)
    module = make(*arguments)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{entry} makes a {type(module).__name__}; it should make a torch.nn.Module")
    return module.to(device)


def discover(target: str, ops: Iterable[str]) -> Discovered:
    """Ask a stranger's object which of ``ops`` it answers.

    Args:
        target: ``package.module:attribute``. The attribute is a mapping op -> callable, an
            object (or a class to call without arguments) with ``kernel_for(op)``, a function
            op -> callable or None, or the path of a kernel directory, relative to its module's
            file. It may tell the language of its kernels in an attribute ``dsl``.
        ops: overload names.

    Raises:
        ImportError: there is no such module or attribute.
        TypeError: the attribute is none of these.
        BaseException: whatever the stranger's code raises.
    """
    module, found = import_target(target)
    if (directory := kernel_directory(module, found)) is not None:
        return Discovered(answered={}, kernel_directory=str(directory.resolve()))
    kernel_for = lookup(found, target)
    answers = {op: kernel_for(op) for op in ops}
    dsl = getattr(found, "dsl", "unknown")
    return Discovered(
        answered={op: _source_file(kernel) for op, kernel in answers.items() if kernel is not None},
        dsl=dsl if isinstance(dsl, str) else "unknown",
    )


def _source_file(kernel: Any) -> str:
    kernel = inspect.unwrap(kernel) if callable(kernel) else kernel
    for candidate in (kernel, type(kernel)):
        try:
            return os.path.realpath(inspect.getsourcefile(candidate) or "")
        except TypeError:
            continue  # A built-in or an instance: its class may have a source.
    return ""


# ---------------------------------------------------------------- the compiler


def _compiled(op: str) -> Call:
    """Compile a call of an overload; whatever does not compile in one graph raises when it is called."""
    use_compiler_settings()
    return torch.compile(traceable(overload(op)), dynamic=False, fullgraph=True)
