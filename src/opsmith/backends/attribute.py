"""Kernels behind a Python object of somebody else's: ``pkg.mod:attr`` or an installed package.

The judge cannot import the object, so a worker looks at it and reports what it answers; that
report becomes the backend::

    asked = resolve("my.kernels:table")          # NeedsDiscovery
    reply = ...                                  # a worker runs opsmith.runner.worker.loading.discover
    backend = asked.backend(reply.answered, dsl=reply.dsl, kernel_directory=reply.kernel_directory)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsmith.backends.directory import KernelDirectory
from opsmith.backends.dsl import guess_dsl
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.task import Task


class AttributeBackend:
    """Answers what a worker found behind an object.

    Args:
        target: the object, ``package.module:attribute``.
        answered: op -> source file of its kernel, or an empty string where there is none.
        name: the backend's name in records.
        dsl: the language of the kernels; ``unknown`` means that each source file tells.
        derives: whether a functional kernel also answers its in-place and ``out=`` overloads.
    """

    trusted = False

    def __init__(
        self, target: str, answered: Mapping[str, str], *, name: str, dsl: str = "unknown", derives: bool = True
    ) -> None:
        self.target, self.name = target, name
        self._answered, self._dsl, self._derives = answered, dsl, derives

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the kernel of ``task``; its source file is read for its hash and its DSL."""
        if task.name in self._answered:
            return self._kernel(task.name, self._answered[task.name], derived_from=None)
        functional = task.op.functional
        if functional is None or functional not in self._answered:
            return None
        if not self._derives or "inplace_view" in task.op.tags:
            return None
        return self._kernel(task.name, self._answered[functional], derived_from=functional)

    def _kernel(self, op: str, source: str, *, derived_from: str | None) -> Kernel:
        path = Path(source)
        # The path is a stranger's word: only a Python file is opened.
        readable = path.suffix == ".py" and path.is_file()
        return Kernel(
            task=op,
            backend=self.name,
            loader=Loader.ATTRIBUTE,
            entry=self.target,
            dsl=self._dsl if self._dsl != "unknown" else guess_dsl(path),
            root=str(path.parent) if readable else None,
            files={path.name: digest(path.read_bytes())} if readable else {},
            derived_from=derived_from,
        )


@dataclass(frozen=True, kw_only=True)
class NeedsDiscovery:
    """A backend that a worker has to look at first.

    Attributes:
        name: the backend's name in records.
        target: the object, ``package.module:attribute``.
        derives: whether a functional kernel also answers its in-place and ``out=`` overloads.
    """

    name: str
    target: str
    derives: bool = True

    def ops_to_ask(self, tasks: Iterable[Task]) -> tuple[str, ...]:
        """The overloads that the worker asks the object for: those of the tasks and their functional ones."""
        wanted = {op for task in tasks for op in (task.op.name, task.op.functional) if op is not None}
        return tuple(sorted(wanted))

    def backend(
        self, answered: Mapping[str, str], *, dsl: str = "unknown", kernel_directory: str | None = None
    ) -> AttributeBackend | KernelDirectory:
        """Turn a worker's report into the backend.

        Raises:
            BadInput: the object names a kernel directory that cannot be read.
        """
        if kernel_directory is not None:
            return KernelDirectory(Path(kernel_directory), name=self.name)
        return AttributeBackend(self.target, answered, name=self.name, dsl=dsl, derives=self.derives)
