"""What a column does to a whole model: torch's compiler under one of its backends or modes, or enabled kernels."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

import opsmith
from opsmith.core.columns import Column, How

Compiler = Callable[[torch.nn.Module], Callable[..., Any]]


def compiler_of(column: Column, device: torch.device, caches: Path) -> Compiler | None:
    """What makes the column's call of a module; None where the module is called as it is.

    Changes this process: kernels are enabled in it, and what compilers keep goes to the folder.

    Args:
        column: the way to run the model.
        device: where it runs.
        caches: a folder for what compilers keep.

    Raises:
        UsageError: kernels cannot be enabled as named.
    """
    if column.how is How.EAGER:
        return None
    if column.how is How.ENABLED:
        opsmith.enable(column.what, device=device.type, choose="all")
        return None
    import torch._inductor.config

    # A pool of compiling processes would run on beside the clock.
    torch._inductor.config.compile_threads = 1
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(caches / "inductor")
    os.environ["TRITON_CACHE_DIR"] = str(caches / "triton")
    if column.how is How.MODE:
        return lambda module: torch.compile(module, mode=column.what)
    return lambda module: torch.compile(module, backend=column.what)


def known_backends() -> tuple[str, ...]:
    """Backends of ``torch.compile``: torch's own, and those of installed packages."""
    import torch._dynamo

    # None leaves nothing out, neither those for debugging nor the experimental ones.
    return tuple(torch._dynamo.list_backends(exclude_tags=None))


def known_modes() -> tuple[str, ...]:
    """Modes of Inductor, but the default one."""
    import torch._inductor

    return tuple(mode for mode in torch._inductor.list_mode_options() if mode != "default")


def graphs_made() -> int:
    """Graphs that torch's compiler has handed to a backend in this process."""
    from torch._dynamo.utils import counters

    return int(counters["stats"]["unique_graphs"])
