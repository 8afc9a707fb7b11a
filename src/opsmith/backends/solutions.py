"""Solutions of module problems: files that define ``ModelNew``."""

from __future__ import annotations

import glob
from pathlib import Path

from opsmith.backends.dsl import guess_dsl, parse_source
from opsmith.backends.entry_names import SOLUTION_CLASS, SOLUTION_FUNCTION, bound_names
from opsmith.backends.files import files_of
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader, Provenance
from opsmith.core.op import TaskKind
from opsmith.core.problems import is_version, sample_task, solution_files
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.formats.readers import folder_of, solutions_from
from opsmith.formats.translated import Translated


def solutions_in(folder: Path, task: Task, *, backend: str) -> tuple[Kernel, ...]:
    """The samples of a module task in a folder of solutions; nothing is imported.

    Raises:
        BadInput: a file cannot be read, or is not what its format says.
    """
    if foreign := foreign_solutions(folder, task, backend=backend):
        return foreign
    return tuple(
        [
            class_kernel(
                sample_task(task.name, sample),
                file,
                entry_of(file, SOLUTION_CLASS, task),
                backend=backend,
                loader=Loader.MODULE,
                neighbours=is_version(file),
            )
            for sample, file in _files(folder, task).items()
        ]
    )


def entry_of(file: Path, name: str, task: Task) -> str:
    """What a file defines for a task: its class, or of a parallel task its function where it has one."""
    if task.kind is not TaskKind.PARALLEL:
        return name
    tree = parse_source(file)
    return SOLUTION_FUNCTION if tree is not None and SOLUTION_FUNCTION in bound_names(tree) else name


def _files(folder: Path, task: Task) -> dict[int, Path]:
    """The samples of a task; of a parallel one also ``1_allreduce_cuda.py``, as the public form calls them."""
    found = solution_files(folder, task.name)
    if found or task.kind is not TaskKind.PARALLEL:
        return found
    stem = task.name.rpartition("/")[2]
    return dict(enumerate(sorted(folder.glob(f"{glob.escape(stem)}_*.py"))))


def foreign_solutions(path: Path, task: Task, *, backend: str) -> tuple[Kernel, ...]:
    """The samples of a task of another tool's format in a file or folder, in that format; nothing is imported.

    Raises:
        BadInput: a file cannot be read, or is not what its format says.
    """
    return tuple(
        [
            _translated_kernel(sample_task(task.name, sample), solution, backend=backend)
            for sample, solution in enumerate(solutions_from(path, Path(task.op.schema), task.name))
        ]
    )


def _translated_kernel(task: str, solution: Translated, *, backend: str) -> Kernel:
    root = folder_of(solution)
    return Kernel(
        task=task,
        backend=backend,
        loader=Loader.MODULE,
        entry=f"{solution.file}:{SOLUTION_CLASS}",
        dsl=solution.dsl or guess_dsl(root / solution.written_in),
        root=str(root),
        files=files_of(root),
        provenance=Provenance(author=solution.author, note=solution.name),
    )


def class_kernel(task: str, file: Path, name: str, *, backend: str, loader: Loader, neighbours: bool = False) -> Kernel:
    """The kernel that a class, or a function, of a file is.

    Args:
        neighbours: everything in the file's folder goes to the worker too, not the file alone.

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
        files=files_of(file.parent) if neighbours else {file.name: digest(content)},
    )
