"""Compiling in several processes at once, an op at a time."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TYPE_CHECKING

from opsmith.backends import manifest
from opsmith.core.kernel import SHIPPED_KERNELS
from opsmith.prewarm.tasks import Task, Warmed

if TYPE_CHECKING:
    from opsmith.prewarm.compiling import Compiler


def shipped_entries() -> dict[str, str]:
    """Overload -> the entry of its kernel, ``file.py:function``, of those that launch something."""
    kernels = manifest.read(SHIPPED_KERNELS).kernels
    return {op: kernel.entry for op, kernel in kernels.items() if kernel.entry is not None and kernel.dsl == "triton"}


def warm(tasks: Sequence[Task], *, inputs: int, jobs: int, architecture: int | None) -> Iterator[Warmed]:
    """What became of each task, as they end.

    Args:
        tasks: what is to be compiled.
        inputs: how many different calls of a task at most.
        jobs: processes.
        architecture: of a GPU that is not there, the compute capability times ten; None for the one that is.
    """
    with compilers(jobs, architecture) as pool:
        running = [pool.submit(_warm, task, inputs) for task in tasks]
        try:
            for one in as_completed(running):
                yield one.result()
        finally:
            pool.shutdown(cancel_futures=True)


def compilers(jobs: int, architecture: int | None) -> ProcessPoolExecutor:
    """So many processes that compile instead of launching, each with a :func:`compiler`.

    Args:
        jobs: processes.
        architecture: as for :func:`warm`.
    """
    os.environ["TRITON_INTERPRET"] = "0"
    # A fork of this process would inherit whatever threads and devices it has.
    context = multiprocessing.get_context("spawn")
    return ProcessPoolExecutor(jobs, context, initializer=_begin, initargs=(architecture,))


def compiler() -> Compiler:
    """The one of this process, which is one of :func:`compilers`."""
    return _compiler


_compiler: Compiler


def _begin(architecture: int | None) -> None:
    global _compiler  # noqa: PLW0603 - A process has one way to launch.
    from opsmith.prewarm.compiling import Compiler  # It imports torch and Triton, which only these processes need.

    _compiler = Compiler(architecture)


def _warm(task: Task, inputs: int) -> Warmed:
    return _compiler.warm(*task, inputs)
