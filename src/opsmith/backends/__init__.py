"""Backends answer one question: which kernel implements this task?

A backend reads files and metadata; it never imports a candidate's code, because the judge calls
it. Code is imported by the loaders in :mod:`opsmith.loading`: inside a worker, or where
:func:`opsmith.enable` was called.
"""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from opsmith.core.kernel import Kernel
from opsmith.core.task import Task


@runtime_checkable
class Backend(Protocol):
    """What the judge asks of a backend.

    Attributes:
        name: the name in records.
        trusted: registered by opsmith itself as the reference; everything else is a stranger.
    """

    name: str
    trusted: bool

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the kernel that implements ``task``, or None."""
        ...


@runtime_checkable
class Sampler(Protocol):
    """A backend that may have several solutions of one module problem."""

    def samples_for(self, task: Task) -> tuple[Kernel, ...]:
        """All of them; each kernel's ``task`` says its sample (:func:`opsmith.core.problems.sample_task`)."""
        ...
