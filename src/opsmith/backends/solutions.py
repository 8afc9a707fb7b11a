"""Solutions of module problems: files that define ``ModelNew``."""

from __future__ import annotations

from pathlib import Path

from opsmith.backends.dsl import guess_dsl
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.problems import solution_file
from opsmith.core.task import Task
from opsmith.errors import BadInput

#: What a solution calls its class.
SOLUTION_CLASS = "ModelNew"


def solution_in(folder: Path, task: Task, *, backend: str) -> Kernel | None:
    """The kernel of a module task out of a folder of solutions, or None; nothing is imported.

    Raises:
        BadInput: the file cannot be read.
    """
    file = solution_file(folder, task.name)
    if file is None:
        return None
    return class_kernel(task.name, file, SOLUTION_CLASS, backend=backend, loader=Loader.MODULE)


def class_kernel(task: str, file: Path, name: str, *, backend: str, loader: Loader) -> Kernel:
    """The kernel that a class of a file is. The file goes to the worker alone, without its neighbours.

    Raises:
        BadInput: the file cannot be read.
    """
    file = file.resolve()
    try:
        content = file.read_bytes()
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
    return Kernel(
        task=task,
        backend=backend,
        loader=loader,
        entry=f"{file.name}:{name}",
        dsl="aten" if loader is Loader.ATEN else guess_dsl(file),
        root=str(file.parent),
        files={file.name: digest(content)},
    )
