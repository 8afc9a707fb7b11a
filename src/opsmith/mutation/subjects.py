"""Kernels whose mutants are judged: one file of a kernel is mutated, the others stay."""

from __future__ import annotations

import ast
import functools
import shutil
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from opsmith.aten.schemas import aten_schemas
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.dsl import guess_dsl
from opsmith.backends.file import KernelFile
from opsmith.backends.resolve import resolve
from opsmith.core.case import digest
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import op_name
from opsmith.core.syntax_tree import syntax_tree
from opsmith.core.task import Task
from opsmith.errors import BadInput
from opsmith.mutation.mutants import Mutant, sliced

_SUFFIX = "_kernel_impl"


class Subject(msgspec.Struct, frozen=True, kw_only=True):
    """A kernel to be mutated.

    Attributes:
        op: the overload.
        origin: where it comes from, as it was asked for.
        kernel: its record.
        file: the mutated file, relative to the kernel's root.
        function: the kernel's entry in it.
        source: the text of that file, cut to what the entry needs where the file stands alone.
        beside: the other files that it imports, relative to the root.
    """

    op: str
    origin: str
    kernel: Kernel
    file: str
    function: str
    source: str
    beside: tuple[str, ...]

    @property
    def name(self) -> str:
        return f"{self.origin}:{self.op}"


def subjects_of(origin: str, ops: Collection[str] | None = None) -> list[Subject]:
    """The kernels in Python of a backend, a kernel directory, a folder of files of kernels, or a file.

    Args:
        origin: as ``--backend`` names it.
        ops: those wanted; all that it names if None.

    Raises:
        UsageError: it is none of these, or damaged.
    """
    backend = resolve(origin)
    if isinstance(backend, KernelFile):
        kernels = _kernels_in(Path(origin))
    elif isinstance(backend, KernelDirectory) and not len(backend):
        kernels = [each for path in sorted(Path(origin).glob("*.py")) for each in _kernels_in(path)]
    elif isinstance(backend, KernelDirectory):
        tasks = [Task(name=op, op=schema, suite="opinfo") for op, schema in aten_schemas().items()]
        named = backend.named_ops()
        answers = [
            backend.kernel_for(task) for task in tasks if task.name in named and (ops is None or task.name in ops)
        ]
        kernels = [
            each for each in answers if each is not None and each.loader is Loader.FILE and each.root is not None
        ]
    else:
        raise BadInput(f"{origin} is no kernel directory and no file of kernels; only those can be mutated")
    wanted = [each for each in kernels if ops is None or each.task in ops]
    found = [_subject(each, origin, Path(each.root or ".")) for each in sorted(wanted, key=lambda each: each.task)]
    return [each for each in found if each is not None]


def _kernels_in(path: Path) -> list[Kernel]:
    """The kernels that a file defines; it is parsed once."""
    content = path.read_bytes()
    names = [node.name for node in syntax_tree(content).body if isinstance(node, ast.FunctionDef)]
    dsl = guess_dsl(path)
    return [
        Kernel(
            task=op,
            backend=str(path),
            loader=Loader.FILE,
            entry=f"{path.name}:{name}",
            dsl=dsl,
            root=str(path.resolve().parent),
            files={path.name: digest(content)},
        )
        for name in names
        if name.endswith(_SUFFIX) and (op := op_name(name.removesuffix(_SUFFIX))) is not None
    ]


def _subject(kernel: Kernel, origin: str, root: Path) -> Subject | None:
    file, _, function = kernel.entry.rpartition(":")
    path = root / file
    if not path.is_file():
        return None
    source = path.read_text(encoding="utf-8")
    try:
        beside = tuple(sorted(_imports(root, file) - {file}))
    except SyntaxError:
        return None
    if not beside:
        source = sliced(source, function)
    return Subject(
        op=kernel.task, origin=origin, kernel=kernel, file=file, function=function, source=source, beside=beside
    )


def _imports(root: Path, file: str) -> set[str]:
    """The files of a kernel's folder that a file imports relatively, and those that they import."""
    found: set[str] = set()
    waiting = [file]
    while waiting:
        name = waiting.pop()
        if name in found or not (root / name).is_file():
            continue
        found.add(name)
        for node in _relative_imports((root / name).read_text(encoding="utf-8")):
            waiting += _candidates(Path(name), node)
    return found


@functools.lru_cache(maxsize=512)
def _relative_imports(source: str) -> tuple[ast.ImportFrom, ...]:
    return tuple(node for node in ast.walk(syntax_tree(source)) if isinstance(node, ast.ImportFrom) and node.level)


def _candidates(file: Path, node: ast.ImportFrom) -> Iterator[str]:
    folder = file.parent
    for _ in range(node.level - 1):
        folder = folder.parent
    target = folder.joinpath(*(node.module or "").split(".")) if node.module else folder
    yield target.with_suffix(".py").as_posix()
    yield (target / "__init__.py").as_posix()
    for alias in node.names:
        yield (target / f"{alias.name}.py").as_posix()


def write(subject: Subject, folder: Path, mutant: Mutant | None = None) -> Kernel:
    """Write a subject, or a mutant of it, into a folder of its own, and describe the kernel there."""
    root = folder / (mutant.name if mutant is not None else f"original-{digest(subject.name.encode())}")
    if not root.is_dir():
        assert subject.kernel.root is not None
        for name in subject.beside:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(Path(subject.kernel.root) / name, root / name)
        (root / subject.file).parent.mkdir(parents=True, exist_ok=True)
        (root / subject.file).write_text(subject.source if mutant is None else mutant.source, encoding="utf-8")
    files = {name: digest((root / name).read_bytes()) for name in (subject.file, *subject.beside)}
    return msgspec.structs.replace(subject.kernel, backend="mutants", root=str(root), files=files)
