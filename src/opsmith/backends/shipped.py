"""The kernels that come with opsmith, through the same door as anyone's directory."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.directory import KernelDirectory


class Shipped(KernelDirectory):
    """The kernel directory ``opsmith/kernels``, found by its place next to this package.

    It is found, not imported: importing it would bring Triton into the judge.
    """

    def __init__(self) -> None:
        super().__init__(Path(__file__).parents[1] / "kernels", name="opsmith")
