"""Snapshots: workers run the exact files that the run directory keeps, never the originals."""

from __future__ import annotations

import shutil
from pathlib import Path

from opsmith.core.case import digest
from opsmith.core.kernel import Kernel
from opsmith.errors import BadInput


def snapshot_root(kernel: Kernel, kernels: Path) -> Path | None:
    """The folder in the run's ``kernels/`` that holds a kernel's files, or None if it has none.

    Kernels that share all their files (a family of one directory) share a folder.
    """
    name = kernel.snapshot_name
    return kernels / name if name else None


def take_snapshot(kernel: Kernel, kernels: Path) -> None:
    """Copy a kernel's files into the run, unless they are there already.

    Raises:
        BadInput: a file changed since the backend read it.
    """
    target = snapshot_root(kernel, kernels)
    if target is None or target.exists():
        return
    assert kernel.root is not None
    staging = target.with_name(f".{target.name}")
    shutil.rmtree(staging, ignore_errors=True)
    for name, content_hash in kernel.files.items():
        source, copy = Path(kernel.root) / name, staging / name
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, copy)
        if digest(copy.read_bytes()) != content_hash:
            raise BadInput(f"{source} changed while the run was starting; run again")
    staging.rename(target)
