"""The kernels that come with opsmith, through the same door as anyone's directory."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.directory import KernelDirectory
from opsmith.core.kernel import Kernel

SHIPPED_KERNELS = Path(__file__).parents[1] / "kernels"


def is_shipped(record: Kernel) -> bool:
    """Whether a kernel is one of opsmith's own, where it was installed."""
    return record.root is not None and Path(record.root).resolve() == SHIPPED_KERNELS.resolve()


class Shipped(KernelDirectory):
    """The kernel directory ``opsmith/kernels``, found by its place next to this package.

    It is found, not imported: importing it would bring Triton into the judge.
    """

    def __init__(self) -> None:
        super().__init__(SHIPPED_KERNELS, name="opsmith")
