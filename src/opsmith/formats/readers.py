"""The formats that are read, and what they are read as."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

import msgspec

from opsmith.core.cache import cache_folder, written_folder
from opsmith.core.case import digest
from opsmith.formats import flashinfer_files, kernel_agent, kernelbot, multi_kernel_bench, robust_kbench
from opsmith.formats.origin import Origin, origin_of
from opsmith.formats.translated import Translated


class Reader(Protocol):
    """A module that reads a format."""

    FORMAT: str

    def is_root(self, path: Path) -> bool:
        """Whether a file or folder that exists holds tasks of the format."""
        ...

    def problem_texts(self, path: Path) -> dict[str, str]:
        """Relative path -> text of problem files and their origins.

        Raises:
            BadInput: a task is not what its format says, with file and line.
        """
        ...

    def solutions(self, origin: Origin, path: Path, task: str) -> Sequence[Translated]:
        """The solutions of a task in a file or folder, sample by sample; none where there are none in this format.

        Raises:
            BadInput: a solution is not what its format says, with file and line.
        """
        ...


#: In the order in which they are tried.
READERS: Sequence[Reader] = (kernelbot, robust_kbench, flashinfer_files)


def problems_from(path: Path) -> Path:
    """Where the module problems of a file or folder lie: in the cache if its tasks have another format.

    Raises:
        BadInput: a task is not what its format says, with file and line.
    """
    reader = next((reader for reader in READERS if path.exists() and reader.is_root(path)), None)
    if reader is None:
        return multi_kernel_bench.reference_folder(path)
    texts = reader.problem_texts(path)
    return written_folder(_folder(texts), texts)


def solutions_from(path: Path, problem: Path, task: str) -> Sequence[Translated]:
    """The solutions of a problem in a file or folder that have another format; none that are ``ModelNew`` as they are.

    Raises:
        BadInput: a solution is not what its format says, with file and line.
    """
    if (origin := origin_of(problem)) is None:
        return kernel_agent.solutions(path, problem, task) or multi_kernel_bench.solutions(path, task)
    reader = next(reader for reader in READERS if origin.format == reader.FORMAT)
    return reader.solutions(origin, path, task)


def folder_of(solution: Translated) -> Path:
    """The folder in the cache with a solution's files.

    Raises:
        BadInput: it cannot be written.
    """
    return written_folder(_folder(solution.files), solution.files)


def _folder(files: dict[str, str]) -> Path:
    return cache_folder() / "formats" / digest(msgspec.json.encode(sorted(files.items())))
