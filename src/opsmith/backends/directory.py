"""A directory of kernels in the layout that the field's tools share.

::

    DIR/
      manifest.json                              optional, see :mod:`opsmith.backends.manifest`
      add__Tensor/
        add__Tensor_implementation_v1.py         defines add__Tensor_kernel_impl
        add__Tensor_implementation_v10.py        the highest number is judged
      relu/relu_implementation_v1.py             a bare packet: every overload without its own folder
      softmax/__init__.py, softmax/rows.py       a package of entries and what they import: answers nothing by itself

Whose kernel answers an op, first match: its manifest entry, its own folder, its packet's folder.
An in-place or ``out=`` overload with no kernel of its own gets the functional overload's, *derived*
with a copy; for ``out=`` that comes before the packet's folder, whose function takes no ``out``.

Module tasks are answered by files that define ``ModelNew``: see :func:`opsmith.core.problems.solution_files`. A
problem may have an entry in the manifest, too: a class, or for a parallel one a function of the problem's inputs.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from pathlib import Path

import msgspec

from opsmith.backends import manifest
from opsmith.backends.dsl import guess_dsl, parse_source
from opsmith.backends.entry_names import SUFFIX, bound_names, functions_of, may_define_more, missing_function
from opsmith.backends.files import files_of
from opsmith.backends.solutions import solutions_in
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import OpSchema, TaskKind, Variant, folder_name, op_name
from opsmith.core.task import Task
from opsmith.errors import BadInput

_VERSION = re.compile(r"_v(\d+)$")


class KernelDirectory:
    """Answers with the kernels of a directory; reads its files and never runs them.

    Args:
        path: the directory.
        name: the backend's name in records; the directory's own name by default.

    Raises:
        BadInput: ``path`` is no readable directory, or its manifest is damaged.
    """

    trusted = False

    def __init__(self, path: Path, *, name: str | None = None) -> None:
        self.path = path.resolve()
        self.name = name or self.path.name
        self._folders = _folders(path)
        self._manifest = manifest.read(self.path)
        self._files: dict[Path, dict[str, str]] = {}
        self._dsls: dict[Path, str] = {}

    def __len__(self) -> int:
        """At most how many implementations it holds."""
        return len(self._folders | {entry.entry or folder_name(op) for op, entry in self._manifest.kernels.items()})

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the kernel of ``task``.

        A folder without a usable file is an answer too: the kernel returned fails to load and says why.

        Raises:
            BadInput: a file of the kernel cannot be read.
        """
        if task.kind.of_problems:
            return next(iter(self.samples_for(task)), None)
        found = self._find(task.name, task.op)
        if found is None:
            return None
        return msgspec.structs.replace(found, task=task.name)

    def named_ops(self) -> set[str]:
        """The overloads that its manifest and its folders name."""
        return set(self._manifest.kernels) | {op for op in map(op_name, self._folders) if op is not None}

    def samples_for(self, task: Task) -> tuple[Kernel, ...]:
        """See :class:`opsmith.backends.Sampler`."""
        section = self._manifest.ranks if task.kind is TaskKind.PARALLEL else self._manifest.modules
        entry = section.get(task.name)
        if entry is not None and entry.entry is not None:
            return (self._kernel(task.name, self.path, entry.entry, entry),)
        return solutions_in(self.path, task, backend=self.name)

    def unrecognised(self, known: Collection[str]) -> list[str]:
        """Folders and manifest entries that name none of the ``known`` ops, sorted.

        Where those are collectives that the manifest's ``ranks`` names, entries for ops of ATen are none of them.
        """
        expected = {folder_name(op) for op in known} | {op.rpartition(".")[0] for op in known}
        of_entries = {entry.file.split("/")[0] for entry in self._manifest.kernels.values() if entry.file}
        stated = {} if self._manifest.ranks.keys() & set(known) else self._manifest.kernels
        listed = {op for op in stated if op not in known and op not in expected}
        return sorted(listed | (self._folders - expected - of_entries))

    def faults(self) -> dict[str, str]:
        """Folder, or op of the manifest -> why what it holds cannot be loaded as the kernel that its name promises.

        A file that does not parse is none of them: loading it says where.
        """
        stated = self._manifest.described
        entries = {op: entry.entry for op, entry in stated.items() if entry.entry is not None}
        found = {op: _fault(self.path, op, entry) for op, entry in entries.items()}
        for folder in sorted(self._folders):
            described = self._manifest.kernels.get(folder) or manifest.KernelEntry()
            root = self.path / folder
            if op_name(folder) in entries or not (python := sorted(file.name for file in root.glob("*.py"))):
                continue
            file = _chosen_version(root, folder, described.best)
            if file in python:
                found[folder] = _fault(root, folder, f"{file}:{folder}{SUFFIX}")
            elif described.best is None and op_name(folder) not in self._manifest.kernels:
                found[folder] = f"it holds {', '.join(python[:3])}; a kernel's file is called {file}"
        return {name: fault for name, fault in found.items() if fault is not None}

    def _find(self, op: str, schema: OpSchema) -> Kernel | None:
        if schema.variant is Variant.OUT:
            return self._own(op) or self._derived(schema) or self._of_packet(op)
        return self._own(op) or self._of_packet(op) or self._derived(schema)

    def _own(self, op: str) -> Kernel | None:
        entry = self._manifest.kernels.get(op) or self._manifest.ranks.get(op)
        if entry is not None and entry.entry is not None:
            return self._kernel(op, self.path, entry.entry, entry)
        return self._from_folder(folder_name(op), op)

    def _of_packet(self, op: str) -> Kernel | None:
        return self._from_folder(op.rpartition(".")[0], op)

    def _derived(self, schema: OpSchema) -> Kernel | None:
        functional = schema.functional
        # An in-place view op (squeeze_, t_) changes its argument's metadata: a copy into it cannot.
        if functional is None or "inplace_view" in schema.tags:
            return None
        kernel = self._own(functional) or self._of_packet(functional)
        return kernel and msgspec.structs.replace(kernel, derived_from=functional)

    def _from_folder(self, folder: str, op: str) -> Kernel | None:
        if folder not in self._folders:
            return None
        entry = self._manifest.kernels.get(op) or self._manifest.kernels.get(folder) or manifest.KernelEntry()
        root = (self.path / folder).resolve()
        file = _chosen_version(root, folder, entry.best)
        return self._kernel(op, root, f"{file}:{folder}_kernel_impl", entry)

    def _kernel(self, op: str, root: Path, entry: str, described: manifest.KernelEntry) -> Kernel:
        if root not in self._files:
            self._files[root] = files_of(root)
        return Kernel(
            task=op,
            backend=self.name,
            loader=Loader.FILE,
            entry=entry,
            dsl=described.dsl or self._guessed_dsl(root / entry.rpartition(":")[0]),
            root=str(root),
            files=self._files[root],
            dtypes=described.dtypes,
            plans=described.plans,
            elementwise=described.elementwise,
            provenance=described.provenance,
        )

    def _guessed_dsl(self, source: Path) -> str:
        """Of a file that the manifest says nothing about; each is parsed once."""
        if source not in self._dsls:
            self._dsls[source] = guess_dsl(source)
        return self._dsls[source]


def _fault(root: Path, name: str, entry: str) -> str | None:
    """Why a file has no function for an entry; None where it has one, or nobody can tell."""
    file, _, function = entry.rpartition(":")
    tree = parse_source(root / file)
    if tree is None or function in bound_names(tree) or may_define_more(tree):
        return None
    return missing_function(file, function, name, functions_of(tree))


def _folders(path: Path) -> set[str]:
    """The folders that may answer an op by their name."""
    try:
        return {child.name for child in path.iterdir() if child.is_dir() and not _is_apart(child)}
    except FileNotFoundError as exc:
        raise BadInput(
            f"there is no kernel directory {path}; make one with `opsmith scaffold {path} --ops OP`"
        ) from exc
    except NotADirectoryError as exc:
        raise BadInput(f"{path} is no directory; to judge one file use `opsmith check {path} --task OP`") from exc
    except OSError as exc:
        raise BadInput(f"{path} cannot be read: {exc.strerror}") from exc


def _is_apart(folder: Path) -> bool:
    """Whether a folder's name stands for no op: it is hidden, a cache, or a package without an implementation."""
    if folder.name.startswith(".") or folder.name == "__pycache__":
        return True
    return (folder / "__init__.py").is_file() and not any(folder.glob("*_implementation*.py"))


def _chosen_version(root: Path, folder: str, best: int | str | None) -> str:
    """The file to judge; one that is missing gets a name too, which the loader then reports."""
    versions = {path.name: _version(path) for path in root.glob(f"{folder}_implementation*.py")}
    if isinstance(best, str):
        return best if best.endswith(".py") else f"{folder}_implementation_{best}.py"
    if best is not None:
        return next(
            (name for name in sorted(versions) if versions[name] == best), f"{folder}_implementation_v{best}.py"
        )
    # v10 comes after v2; a file without a number is the oldest.
    return max(versions, key=lambda name: (versions[name], name), default=f"{folder}_implementation_v1.py")


def _version(path: Path) -> int:
    found = _VERSION.search(path.stem)
    return int(found[1]) if found else 0
