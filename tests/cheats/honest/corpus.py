"""The honest kernels of this folder and the kernel directories that runs judge.

A kernel is a folder with ``about.toml`` (:class:`About`) and ``kernel.py``, which defines
``<packet>__<overload>_kernel_impl``; further files of the folder belong to the kernel. A new one is
one folder more.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from opsmith.core.op import folder_name

ROOT = Path(__file__).parent


class About(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What ``about.toml`` says.

    Attributes:
        description: one line: how the kernel works.
        task: the overload that it answers.
        policy: ``native`` where the result comes from its own code, else ``any``.
        dtypes: short names of the dtypes in which it has to be accepted.
        device: where it runs.
        style: what it stands for; no two kernels of a policy share it with their task.
    """

    description: str
    task: str
    policy: Literal["native", "any"]
    dtypes: tuple[str, ...]
    device: Literal["cpu", "cuda"]
    style: str


class HonestKernel(NamedTuple):
    """One folder of the corpus."""

    folder: Path
    about: About

    @property
    def name(self) -> str:
        return self.folder.name


class Round(NamedTuple):
    """Kernels that one run judges: of one policy, dtype and device, at most one for each task."""

    policy: str
    dtype: str
    device: str
    kernels: dict[str, HonestKernel]

    @property
    def name(self) -> str:
        return f"{self.policy}-{self.dtype}-{self.device}"

    def write(self, folder: Path) -> Path:
        """Make ``folder`` a kernel directory in the public layout and return it."""
        for task, kernel in self.kernels.items():
            name = folder_name(task)
            copied = shutil.copytree(
                kernel.folder, folder / name, ignore=shutil.ignore_patterns("about.toml", "__pycache__")
            )
            (copied / "kernel.py").rename(copied / f"{name}_implementation_v1.py")
        return folder


def read_corpus(root: Path = ROOT) -> list[HonestKernel]:
    """Every kernel under ``root``, sorted by name.

    Raises:
        msgspec.ValidationError: an ``about.toml`` is not as :class:`About` wants it.
    """
    return [
        HonestKernel(about.parent, msgspec.toml.decode(about.read_bytes(), type=About))
        for about in sorted(root.glob("*/about.toml"))
    ]


def rounds(corpus: Iterable[HonestKernel]) -> list[Round]:
    """Group kernels by what one run can judge together.

    Raises:
        ValueError: two kernels of one policy, dtype and device answer the same task.
    """
    groups: dict[tuple[str, str, str], dict[str, HonestKernel]] = {}
    for kernel in corpus:
        for dtype in kernel.about.dtypes:
            group = groups.setdefault((kernel.about.policy, dtype, kernel.about.device), {})
            other = group.setdefault(kernel.about.task, kernel)
            if other is not kernel:
                raise ValueError(f"{other.name} and {kernel.name} both answer {kernel.about.task}")
    return [Round(policy, dtype, device, kernels) for (policy, dtype, device), kernels in groups.items()]
