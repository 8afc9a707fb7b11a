"""One kernel file as a backend: what ``opsmith check KERNEL.py`` judges."""

from __future__ import annotations

import ast
from pathlib import Path

from opsmith.backends.dsl import guess_dsl, parse_source
from opsmith.backends.solutions import SOLUTION_CLASS, class_kernel
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind, folder_name
from opsmith.core.task import Task
from opsmith.errors import BadInput

_SUFFIX = "_kernel_impl"


class KernelFile:
    """A Python file that defines ``<F>_kernel_impl`` for an overload, or ``<packet>_kernel_impl``.

    For a module task it defines ``ModelNew``.

    The file is parsed, never imported. A file with a syntax error still answers the task: its
    kernel fails to load.

    Raises:
        BadInput: there is no such file, or it is not text.
    """

    trusted = False

    def __init__(self, path: Path) -> None:
        try:
            self._source = path.read_bytes()
        except OSError as exc:
            raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc
        self.name = str(path)
        self._path = path.resolve()

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the file's kernel for ``task``; in-place and ``out=`` overloads may be derived."""
        if task.kind is TaskKind.MODULE:
            return class_kernel(task.name, self._path, SOLUTION_CLASS, backend=self.name, loader=Loader.MODULE)
        direct = self._function_for(task.name)
        if direct is not None:
            return self._kernel(task.name, direct, derived_from=None)
        functional = None if "inplace_view" in task.op.tags else task.op.functional
        derived = self._function_for(functional) if functional else None
        return self._kernel(task.name, derived, derived_from=functional) if derived else None

    def _function_for(self, op: str) -> str | None:
        packet = op.rpartition(".")[0]
        wanted = [folder_name(op) + _SUFFIX, packet + _SUFFIX]
        defined = self._defined_names()
        if defined is None:
            return wanted[0]  # It does not parse: loading it will say where.
        return next((name for name in wanted if name in defined), None)

    def _defined_names(self) -> set[str] | None:
        tree = parse_source(self._path)
        if tree is None:
            return None
        names: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
                names.add(node.name)
            elif isinstance(node, ast.Assign):
                names.update(target.id for target in node.targets if isinstance(target, ast.Name))
            elif isinstance(node, (ast.Import, ast.ImportFrom)):
                names.update(alias.asname or alias.name for alias in node.names)
        return names

    def _kernel(self, task: str, function: str, *, derived_from: str | None) -> Kernel:
        return Kernel(
            task=task,
            backend=self.name,
            loader=Loader.FILE,
            entry=f"{self._path.name}:{function}",
            dsl=guess_dsl(self._path),
            root=str(self._path.parent),
            files={self._path.name: digest(self._source)},
            derived_from=derived_from,
        )
