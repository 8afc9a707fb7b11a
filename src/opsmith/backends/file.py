"""One kernel file as a backend: what ``opsmith check KERNEL.py`` judges."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.dsl import guess_dsl, parse_source
from opsmith.backends.entry_names import SOLUTION_CLASS, bound_names, wanted_names
from opsmith.backends.solutions import class_kernel, entry_of, foreign_solutions
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.formats.problem_text import ADAPTER


class KernelFile:
    """A Python file that defines ``<F>_kernel_impl`` for an overload, or ``<packet>_kernel_impl``.

    For a module task it defines ``ModelNew``, or is a solution in the format that the task came in; for a parallel one
    it defines ``ModelNew`` or ``solution``.

    The file is parsed, never imported. A file with a syntax error still answers the task: its
    kernel fails to load.

    Args:
        path: the file.
        entry: a function of the file that answers whatever is asked, whatever it is called.

    Raises:
        BadInput: there is no such file, or it is not text.
    """

    trusted = False

    def __init__(self, path: Path, *, entry: str | None = None) -> None:
        try:
            self._source = path.read_bytes()
        except OSError as exc:
            raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
        self.name = str(path) if entry is None else f"{path}:{entry}"
        self.path = path.resolve()
        self._entry = entry

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the file's kernel for ``task``; in-place and ``out=`` overloads may be derived."""
        if task.kind.of_problems:
            if foreign := foreign_solutions(self.path, task, backend=self.name):
                return foreign[0]
            return class_kernel(
                task.name,
                self.path,
                entry_of(self.path, SOLUTION_CLASS, task),
                backend=self.name,
                loader=Loader.MODULE,
                neighbours=self.path.name == ADAPTER,  # As a run keeps a solution of another format.
            )
        if self._entry is not None:
            return self._kernel(task.name, self._entry, derived_from=None)
        direct = self._function_for(task.name)
        if direct is not None:
            return self._kernel(task.name, direct, derived_from=None)
        functional = None if "inplace_view" in task.op.tags else task.op.functional
        derived = self._function_for(functional) if functional else None
        return self._kernel(task.name, derived, derived_from=functional) if derived else None

    def _function_for(self, op: str) -> str | None:
        wanted = wanted_names(op)
        tree = parse_source(self.path)
        if tree is None:
            return wanted[0]  # It does not parse: loading it will say where.
        defined = bound_names(tree)
        return next((name for name in wanted if name in defined), None)

    def _kernel(self, task: str, function: str, *, derived_from: str | None) -> Kernel:
        return Kernel(
            task=task,
            backend=self.name,
            loader=Loader.FILE,
            entry=f"{self.path.name}:{function}",
            dsl=guess_dsl(self.path),
            root=str(self.path.parent),
            files={self.path.name: digest(self._source)},
            derived_from=derived_from,
        )
