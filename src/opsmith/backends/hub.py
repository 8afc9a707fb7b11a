"""Kernels of the Hugging Face kernel hub that are on this machine: ``hub:FOLDER`` or ``hub:OWNER/NAME``.

A folder is a repository in kernel-builder's layout, ``build/VARIANT/__init__.py``. ``OWNER/NAME`` is looked up in the
hub's cache, where ``kernels download`` or ``get_kernel`` put it; nothing is downloaded here. What the variant for this
machine exports answers the ops that it is named for: ``add__Tensor``, or ``relu`` for ``relu.default``.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import re
from collections.abc import Iterator
from pathlib import Path

from opsmith.backends.dsl import guess_dsl, parse_source
from opsmith.backends.entry_names import bound_names
from opsmith.backends.files import files_of
from opsmith.core.kernel import Kernel, Loader
from opsmith.core.op import TaskKind, folder_name
from opsmith.core.task import Task
from opsmith.errors import BadInput

PREFIX = "hub:"
_INIT = "__init__.py"


class HubKernels:
    """The functions of a repository's build variant for this machine; its files are read and never run.

    Args:
        text: ``hub:`` and a folder or ``OWNER/NAME``.

    Raises:
        BadInput: there is no such repository here, or none of its variants is for this machine.
    """

    trusted = False

    def __init__(self, text: str) -> None:
        self.name = text
        self._root = _variant(_repository(text.removeprefix(PREFIX))).resolve()
        tree = parse_source(self._root / _INIT)
        self._exported = set() if tree is None else bound_names(tree)
        self._files = files_of(self._root)

    def kernel_for(self, task: Task) -> Kernel | None:
        """Return the function that is named for the task, or for its functional overload."""
        if task.kind is not TaskKind.OP:
            return None
        direct = self._function(task.name)
        if direct is not None:
            return self._kernel(task.name, direct, derived_from=None)
        functional = None if "inplace_view" in task.op.tags else task.op.functional
        derived = self._function(functional) if functional else None
        return self._kernel(task.name, derived, derived_from=functional) if derived else None

    def _function(self, op: str) -> str | None:
        packet, _, overload = op.rpartition(".")
        names = (folder_name(op), *([packet] if overload == "default" else []))
        return next((name for name in names if name in self._exported), None)

    def _kernel(self, task: str, function: str, *, derived_from: str | None) -> Kernel:
        return Kernel(
            task=task,
            backend=self.name,
            loader=Loader.FILE,
            entry=f"{_INIT}:{function}",
            dsl=self._dsl(),
            root=str(self._root),
            files=self._files,
            derived_from=derived_from,
        )

    def _dsl(self) -> str:
        """The first language that a file shows, an extension's first; ``torch`` where none does."""
        if any(path.endswith(".so") for path in self._files):
            return "cuda" if "-cu" in self._root.name else "cpp"
        shown = {guess_dsl(self._root / path) for path in self._files if path.endswith(".py")}
        return min(shown - {"torch", "unknown"}, default="torch")


def _repository(name: str) -> Path:
    """The folder of a repository: itself, or its newest snapshot in the hub's cache."""
    folder = Path(name).expanduser()
    if (folder / "build").is_dir():
        return folder
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("KERNELS_CACHE") or os.environ.get("HF_HUB_CACHE") or home / "hub")
    snapshots = [
        snapshot
        for kind in ("kernels", "models")
        for snapshot in cache.glob(f"{kind}--{name.replace('/', '--')}/snapshots/*")
        if (snapshot / "build").is_dir()
    ]
    if not snapshots:
        raise BadInput(
            f"{name} is no folder with build/VARIANT, and is not in the cache {cache}; fetch it with "
            "`kernels download`, or name a folder"
        )
    return max(snapshots, key=lambda snapshot: snapshot.stat().st_mtime)


def _variant(repository: Path) -> Path:
    """The build variant for the installed torch on this machine, a compiled one first."""
    there = sorted(init.parent.name for init in (repository / "build").glob(f"*/{_INIT}"))
    wanted = list(_wanted())
    found = next((name for name in wanted if name in there), None)
    if found is None:
        raise BadInput(
            f"{repository} has no build variant for this machine: there is {', '.join(there) or 'none'}; "
            f"wanted is {', '.join(wanted)}"
        )
    return repository / "build" / found


def _wanted() -> Iterator[str]:
    """Names of variants, the best first; torch is not imported for that."""
    spec = importlib.util.find_spec("torch")
    assert spec is not None
    assert spec.origin is not None
    told = Path(spec.origin).with_name("version.py").read_text()
    version = re.search(r"__version__ = '(\d+)\.(\d+)", told)
    cuda = re.search(r"cuda[^=\n]*= '(\d+)\.(\d+)", told)
    machine = f"{platform.machine()}-{platform.system().lower()}"
    compute = f"cu{cuda[1]}{cuda[2]}" if cuda else "cpu"
    if version:
        yield from (f"torch{version[1]}{version[2]}{abi}-{compute}-{machine}" for abi in ("-cxx11", ""))
    yield from ("torch-cuda", "torch-cpu") if cuda else ("torch-cpu",)
    yield "torch-universal"
