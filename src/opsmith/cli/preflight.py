"""What can be said against a request before a process is started: names of ops, and what a directory holds."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from opsmith import plugins
from opsmith.aten.native_functions import native_names
from opsmith.aten.spellings import check_ops, near_packets, op_pattern
from opsmith.backends.directory import KernelDirectory
from opsmith.backends.file import KernelFile
from opsmith.backends.resolve import resolve
from opsmith.core.op import TaskKind, folder_name
from opsmith.core.problems import task_pattern
from opsmith.core.run import Options
from opsmith.errors import BadInput
from opsmith.suites.traits import traits_of

#: So many faults of a directory are told.
MOST_FAULTS = 3


def op_patterns(patterns: Sequence[str], *, suite: str) -> tuple[str, ...]:
    """The ops that are asked, as opsmith writes them, each looked up in torch's list of names.

    ``aten::relu``, ``torch.relu`` and ``F.relu`` are relu; of problems ``level1/1_*`` is ``L1/1_*``. A suite of another
    package may ask other names.

    Raises:
        UnknownName: no op has such a name; the closest ones are told.
        BadInput: it is a function that PyTorch composes of ops.
    """
    if traits_of(suite).tasks is TaskKind.MODULE:
        return tuple(map(task_pattern, patterns))
    asks_ops = plugins.is_ours(plugins.SUITES, suite) and traits_of(suite).tasks is TaskKind.OP
    if not asks_ops:
        return tuple(patterns)
    plain = tuple(map(op_pattern, patterns))
    check_ops(plain)
    return plain


def check_backend(options: Options) -> None:
    """Look at a directory of kernels without loading one.

    What is wrong with some of its kernels is told on stderr.

    Raises:
        UsageError: there is no such backend.
        BadInput: a directory holds no kernel, or none that can be loaded, or a file is no Python.
    """
    backend = resolve(options.backend)
    if options.backend in {*plugins.names(plugins.BACKENDS), *plugins.names(plugins.KERNELS)}:
        return  # It comes with opsmith or with a package, and nobody is editing it.
    asks_ops = traits_of(options.suite).tasks is TaskKind.OP
    if asks_ops and isinstance(backend, KernelFile) and backend.path.suffix != ".py":
        file = options.backend
        raise BadInput(f"{file} is no directory; to judge one file use `opsmith check {file} --task OP`")
    if not asks_ops or not isinstance(backend, KernelDirectory):
        return
    folder = Path(options.backend).expanduser()
    if not len(backend):
        raise BadInput(f"{options.backend} holds no kernels{_files_in(folder)}")
    faults = backend.faults()
    told = [f"{options.backend}/{name}: {fault}" for name, fault in faults.items()]
    if len(faults) == len(backend):
        raise BadInput(told[0] + _more(len(told) - 1))
    _check_folders(options.backend, backend)
    for line in told[:MOST_FAULTS]:
        sys.stderr.write(f"opsmith: {line}\n")
    if len(told) > MOST_FAULTS:
        sys.stderr.write(f"opsmith: and {len(told) - MOST_FAULTS} kernels more of the kind\n")


def _files_in(folder: Path) -> str:
    """What an empty directory of kernels holds instead, and what to do."""
    files = sorted(path.name for path in folder.glob("*.py"))
    if files:
        first = Path(files[0]).stem
        return (
            f": it holds {', '.join(files[:3])}, and a kernel's file stands in a folder named for its op, as "
            f"relu__default/relu__default_implementation_v1.py; check one file with "
            f"`opsmith check {folder / first}.py --task OP`"
        )
    return f"; make one with `opsmith scaffold {folder} --ops OP`"


def _check_folders(name: str, backend: KernelDirectory) -> None:
    known = native_names()
    unknown = backend.unrecognised(known) if known else []
    if unknown and len(unknown) == len(backend):
        word = unknown[0].partition("__")[0]
        near = [folder_name(f"{packet}.default") for packet in near_packets(word)]
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise BadInput(f"{name}/{unknown[0]} is named for no op of torch{hint}{_more(len(unknown) - 1)}")


def _more(count: int) -> str:
    return f" (and {count} more of the kind)" if count else ""
