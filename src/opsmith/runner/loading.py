"""From a kernel record to something callable. Runs in workers: it imports and executes strangers' code."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, cast

import torch

from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind
from opsmith.evaluation.inputs import CALL_DECODER, rebuild
from opsmith.runner.derivation import DerivedKernel
from opsmith.runner.protocol import Discovered
from opsmith.suites.aten_schemas import overload
from opsmith.suites.modules.call import ModuleCall

#: Where the command was started: a ``pkg.mod:attr`` of the user's may live there. Read when the
#: zygote imports this module, because a worker moves to a private folder.
_STARTED_IN = os.getcwd()  # noqa: PTH109 - sys.path holds strings.

_package_numbers = itertools.count()

CPU = torch.device("cpu")

Call = Callable[..., Any]


def load_kernel(kernel: Kernel, root: Path | None, schema: OpSchema, device: torch.device = CPU) -> Call:
    """Load a kernel so that it can be called with the arguments of the overload ``schema``.

    Args:
        kernel: the record.
        root: the folder of its files, which may be a snapshot of ``kernel.root``.
        schema: the overload that it answers, or the module: then the kernel is a class, of which
            one instance is made with the problem's own arguments and put on the device.
        device: where it runs.

    Raises:
        FileNotFoundError: the kernel's file is missing.
        ImportError: the file defines no such function, or an import in it fails.
        TypeError: what the entry names cannot be called.
        BaseException: whatever the stranger's code raises while it is loaded.
    """
    function = _load(kernel, root, schema)
    if not callable(function):
        raise TypeError(f"{kernel.entry} is a {type(function).__name__}, which cannot be called")
    if schema.kind is TaskKind.MODULE:
        return _module_call(kernel.entry, function, schema, device)
    if kernel.derived_from is None:
        return cast("Call", function)
    return DerivedKernel(function, overload(schema.name), overload(kernel.derived_from))


def _load(kernel: Kernel, root: Path | None, schema: OpSchema) -> Any:
    match kernel.loader:
        case Loader.ATEN:
            return _from_file(kernel, root) if schema.kind is TaskKind.MODULE else overload(kernel.entry)
        case Loader.INDUCTOR:
            return _compiled(kernel.entry)
        case Loader.FILE | Loader.MODULE:
            return _from_file(kernel, root)
        case Loader.ATTRIBUTE:
            return _from_attribute(kernel.entry, kernel.derived_from or schema.name)


def _module_call(entry: str, make: Callable[..., Any], schema: OpSchema, device: torch.device) -> ModuleCall:
    assert schema.init is not None, "the problem was loaded when its cases were made"
    arguments = rebuild(CALL_DECODER.decode(schema.init), CPU).args
    module = make(*arguments)
    if not isinstance(module, torch.nn.Module):
        raise TypeError(f"{entry} makes a {type(module).__name__}; it should make a torch.nn.Module")
    return ModuleCall(module.to(device))


def kernel_file(kernel: Kernel, root: Path | None) -> Path:
    """The source file of a FILE or MODULE kernel under ``root``.

    Raises:
        ValueError: ``root`` is None, or the entry leads out of it.
    """
    relative = kernel.entry.rpartition(":")[0]
    if root is None or not (root / relative).resolve().is_relative_to(root.resolve()):
        raise ValueError(f"the entry {kernel.entry!r} is no file of the kernel's folder {root}")
    return root / relative


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
    module, found = _import_target(target)
    if isinstance(found, (str, os.PathLike)):
        directory = Path(module.__file__ or ".").parent / found
        return Discovered(answered={}, kernel_directory=str(directory.resolve()))
    kernel_for = _lookup(found, target)
    answers = {op: kernel_for(op) for op in ops}
    dsl = getattr(found, "dsl", "unknown")
    return Discovered(
        answered={op: _source_file(kernel) for op, kernel in answers.items() if kernel is not None},
        dsl=dsl if isinstance(dsl, str) else "unknown",
    )


# ---------------------------------------------------------------- files


def _from_file(kernel: Kernel, root: Path | None) -> Any:
    path = kernel_file(kernel, root)
    assert root is not None
    function = kernel.entry.rpartition(":")[2]
    if not path.is_file():
        there = ", ".join(sorted(p.name for p in path.parent.glob("*"))) or "nothing"
        raise FileNotFoundError(f"the kernel's file {path.name} is missing; its folder holds: {there}")
    module = _import_file(path, root)
    if not hasattr(module, function):
        own = (name for name, value in vars(module).items() if isinstance(value, (FunctionType, type)))
        raise ImportError(f"{path.name} defines no {function}; it defines: {', '.join(sorted(own)) or 'no function'}")
    return getattr(module, function)


def _import_file(path: Path, root: Path) -> ModuleType:
    """Import ``path`` as a module of a package of its own that stands for ``root``.

    Relative imports of other files of the kernel work, absolute ones mean installed packages,
    and two kernels never share a module.
    """
    package = f"_opsmith_kernel_{next(_package_numbers)}"
    try:
        _create_package(package, root)
        parents = path.relative_to(root).parent.parts
        for depth in range(len(parents)):
            _create_package(".".join((package, *parents[: depth + 1])), root.joinpath(*parents[: depth + 1]))
        # A dot in the file's name (gelu.v2.py) would read as one more package.
        return _execute(".".join((package, *parents, path.stem.replace(".", "_"))), path)
    except BaseException:
        for name in [name for name in sys.modules if name.partition(".")[0] == package]:
            del sys.modules[name]
        raise


def _create_package(name: str, folder: Path) -> None:
    init = folder / "__init__.py"
    if init.is_file():
        _execute(name, init, search=[str(folder)])
    else:
        package = ModuleType(name)
        package.__path__ = [str(folder)]
        sys.modules[name] = package


def _execute(name: str, path: Path, search: list[str] | None = None) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=search)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


# ---------------------------------------------------------------- attributes


def _from_attribute(target: str, op: str) -> Any:
    _, found = _import_target(target)
    kernel = _lookup(found, target)(op)
    if kernel is None:
        raise ImportError(f"{target} has no kernel for {op}")
    return kernel


def _import_target(target: str) -> tuple[ModuleType, Any]:
    if _STARTED_IN not in sys.path:
        sys.path.append(_STARTED_IN)  # Last: a file of the user's must not hide an installed package.
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    for part in attribute.split("."):
        if not hasattr(found, part):
            raise ImportError(f"{module_name} has no attribute {attribute}")
        found = getattr(found, part)
    return module, found


def _lookup(found: Any, target: str) -> Callable[[str], Any]:
    if isinstance(found, Mapping):
        return found.get
    if isinstance(found, type):
        found = found()
    kernel_for = getattr(found, "kernel_for", found)
    if not callable(kernel_for):
        raise TypeError(
            f"{target} is a {type(found).__name__}; it should be a mapping, an object with kernel_for, "
            "a function or the path of a kernel directory"
        )
    return cast("Callable[[str], Any]", kernel_for)


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
    import torch._dynamo
    import torch._inductor.config

    # One kernel meets hundreds of signatures, each a compilation of its own; dynamo's limits assume a bug then.
    torch._dynamo.config.recompile_limit = 1 << 20
    torch._dynamo.config.accumulated_recompile_limit = 1 << 20
    torch._dynamo.config.capture_dynamic_output_shape_ops = True
    torch._dynamo.config.capture_scalar_outputs = True
    # A pool of compiling processes would outlive the call that is being judged.
    torch._inductor.config.compile_threads = 1
    called = overload(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        return called(*args, **kwargs)

    return torch.compile(call, dynamic=False, fullgraph=True)
