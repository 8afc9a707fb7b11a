"""Packages of kernels for a GPU wait until a program uses one: ``import torch`` is paid for by every program.

Imports nothing of opsmith's, since it is imported while torch is. The entries in torch's tables and the modules behind
them take half a second for all kernels that opsmith ships.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from pathlib import Path

import torch

_log = logging.getLogger("opsmith")
#: What is to be called once a device is used, or somebody asks what is enabled.
_waiting: list[Callable[[], None]] = []
_lock = threading.Lock()


def activate(folder: Path, *, name: str, on_gpu_only: bool) -> None:
    """Enable the kernels of an installed package: now, or when CUDA is first used in this process.

    What goes wrong is logged in one line; an exception would end ``import torch``, or a program's first use of a GPU.

    Args:
        folder: of the package.
        name: of the package.
        on_gpu_only: whether none of its kernels can run on a CPU.
    """

    def enable() -> None:
        try:
            from opsmith.dispatch.packages import activate as activate_now

            activate_now(folder)
        except Exception as exc:  # noqa: BLE001 - whatever a damaged package leads to
            reason = " ".join(f"{type(exc).__name__}: {exc}".split())
            _log.warning("the kernels of the package %s are off: %s", name, reason)

    accelerator = torch.accelerator.current_accelerator()
    waits = on_gpu_only and (accelerator is None or accelerator.type == "cuda")
    if not waits or os.environ.get("TRITON_INTERPRET") == "1":  # The interpreter runs them on a CPU.
        enable()
        return
    with _lock:
        _waiting.append(enable)
    torch.cuda._lazy_call(finish)


def finish() -> None:
    """Enable what still waits."""
    while True:
        with _lock:
            if not _waiting:
                return
            enable = _waiting.pop(0)
        enable()  # Another thread may be in the middle of using CUDA for the first time, which ends here.
