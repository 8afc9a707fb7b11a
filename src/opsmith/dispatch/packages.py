"""Enables the kernels of an installed package while torch is being imported.

torch calls the entry points of the group ``torch.backends`` when its own modules are nearly complete, in
every program on the machine. So nothing is done here that a program may not want: no kernel's file is imported
and no device is asked for. The first call of an op on a device loads its kernel.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import msgspec
import torch

from opsmith.aten.schemas import overload
from opsmith.core import package
from opsmith.core.op import OpSchema
from opsmith.core.package import Package, PackagedOp
from opsmith.dispatch.choice.choosing import choose_from
from opsmith.dispatch.install import add_package
from opsmith.dispatch.kernel_set import KernelSet, answers, runs_on
from opsmith.dispatch.serving import Serving


def activate(folder: Path) -> None:
    """Enable what the package in ``folder`` serves.

    Raises:
        OSError, msgspec.DecodeError: the package is damaged.
        EnabledWhileJudging: this process judges kernels.
    """
    found = msgspec.json.decode((folder / package.NAME).read_bytes(), type=Package)
    _finish_overrides_of_torch()
    changed = {one.schema.name for one in found.ops if not _is_unchanged(one.schema)}
    kept = [one for one in found.ops if one.schema.name not in changed]
    add_package(
        KernelSet(
            kernels=found.name,
            servings=tuple(serving for one in kept for serving in _servings(one, folder)),
            excluded=dict.fromkeys(sorted(changed), f"its schema is another one than in torch {found.torch}"),
            choose=choose_from(None),
        )
    )


def _finish_overrides_of_torch() -> None:
    """Let torch make the overrides of its own that it makes after its backends, which would go over ours."""
    with contextlib.suppress(ModuleNotFoundError):  # Not every torch makes some.
        import torch._native  # noqa: F401


def _is_unchanged(schema: OpSchema) -> bool:
    try:
        return str(overload(schema.name)._schema) == schema.schema
    except AttributeError:
        return False


def _servings(op: PackagedOp, folder: Path) -> Iterator[Serving]:
    kernel = msgspec.structs.replace(op.kernel, root=str(folder / (op.kernel.root or "")))
    for device_type in _device_types():
        if runs_on(kernel, device_type) and answers(op.schema, device_type):
            yield Serving(op.schema, device_type, kernel, None)


def _device_types() -> tuple[str, ...]:
    """The CPU and what this torch was built for; whether such a device is there would initialise it."""
    accelerator = torch.accelerator.current_accelerator()
    return ("cpu",) if accelerator is None else ("cpu", accelerator.type)
