"""What Triton's compiler says of the kernels of a module: registers, spills, shared memory."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from opsmith.core.evidence import CompiledKernel

MOST_KERNELS = 16


def compiled_kernels(root: Path) -> tuple[CompiledKernel, ...]:
    """Those that modules below a folder have compiled and launched.

    Args:
        root: the folder that the kernel was loaded from.
    """
    if "triton" not in sys.modules:
        return ()
    from triton.runtime.jit import JITFunction

    found: dict[tuple[object, ...], CompiledKernel] = {}
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if not isinstance(file, str) or not Path(file).is_relative_to(root):
            continue
        for value in list(vars(module).values()):
            # Autotuners and heuristics wrap a kernel, which wraps a function of Python's itself.
            function = value
            while not isinstance(function, JITFunction) and hasattr(function, "fn"):
                function = function.fn
            if isinstance(function, JITFunction):
                for kernel in _of(function):
                    found.setdefault((kernel.name, kernel.registers, kernel.shared_bytes, kernel.warps), kernel)
    return tuple(found.values())[:MOST_KERNELS]


def _of(function: Any) -> Iterator[CompiledKernel]:
    for caches in getattr(function, "device_caches", {}).values():
        kernels: Iterable[Any] = caches[0].values() if isinstance(caches, tuple) else caches.values()
        for kernel in kernels:
            registers = getattr(kernel, "n_regs", None)
            if registers is None:  # Not loaded onto the device.
                continue
            yield CompiledKernel(
                name=str(getattr(kernel.metadata, "name", function.__name__)),
                registers=int(registers),
                spills=int(kernel.n_spills),
                shared_bytes=int(kernel.metadata.shared),
                warps=int(kernel.metadata.num_warps),
            )
