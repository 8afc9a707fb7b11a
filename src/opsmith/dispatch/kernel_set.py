"""What is to be installed: kernels for overloads on device types."""

from __future__ import annotations

import logging
import os
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

import torch

from opsmith.aten.schemas import overload
from opsmith.core.kernel import Kernel, is_shipped
from opsmith.core.op import OpSchema
from opsmith.devices import kind_of
from opsmith.dispatch.choice.choosing import Choose
from opsmith.dispatch.serving import Serving

_log = logging.getLogger("opsmith")


class KernelSet(NamedTuple):
    """What one call of ``enable`` asks for, or what one package serves.

    Attributes:
        kernels: as the user gave it, or the package's name.
        servings: what to install.
        excluded: ops with a kernel that are not overridden, with the reason.
        choose: which calls the kernels answer.
        wait: whether calls wait for kernels to be compiled.
    """

    kernels: str
    servings: tuple[Serving, ...]
    excluded: dict[str, str]
    choose: Choose
    wait: bool = False


def runs_on(record: Kernel, device_type: str) -> bool:
    """Whether a kernel's language runs there; of opsmith's own kernels, which are for ``cuda``, whether they do."""
    if device_type == "cpu" and record.dsl == "triton":
        return os.environ.get("TRITON_INTERPRET") == "1"
    if device_type not in ("cpu", "cuda") and is_shipped(record):
        return False
    return record.dsl not in kind_of(device_type).foreign_dsls


def answers(schema: OpSchema, device_type: str) -> bool:
    """Whether torch has a kernel of its own to fall back to."""
    key = torch._C._dispatch_key_for_device(device_type)
    return torch._C._dispatch_has_computed_kernel_for_dispatch_key(overload(schema.name).name(), key)


def merged(choices: Iterable[KernelSet]) -> KernelSet:
    """All choices as one; of several that serve an op on a device the first by name does.

    Names decide, because the order in which Python lists packages is that of a folder on disk. Each pair of
    packages that meets is logged in one warning.
    """
    ordered = sorted(choices, key=lambda choice: choice.kernels)
    chosen: dict[tuple[str, str], tuple[str, Serving]] = {}
    contested: Counter[tuple[str, str]] = Counter()
    for choice in ordered:
        for serving in choice.servings:
            first, _ = chosen.setdefault((serving.schema.name, serving.device_type), (choice.kernels, serving))
            if first != choice.kernels:
                contested[first, choice.kernels] += 1
    for (first, second), count in contested.items():
        _log.warning(
            "the packages %s and %s both have kernels for %d ops; those of %s are used: uninstall one of them",
            *(first, second, count, first),
        )
    return KernelSet(
        kernels=", ".join(choice.kernels for choice in ordered),
        servings=tuple(serving for _, serving in chosen.values()),
        excluded={op: reason for choice in ordered for op, reason in choice.excluded.items()},
        choose=ordered[0].choose,
    )
