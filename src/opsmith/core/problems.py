"""Module problems as files: where they lie and what their tasks are called. Nothing is imported.

::

    DIR/
      level1/23_Softmax.py     task L1/23_Softmax
      vision/3_UNet.py         task vision/3_UNet
      my_block.py              task my_block

Solutions of a run in the public layout are called ``level_1_problem_23_sample_0_kernel.py``; those of
a folder are called like the problems. Of a problem with several samples each is a task of its own: sample
0 has the problem's name, sample 2 is ``L1/23_Softmax@2``.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from opsmith.core.case import digest
from opsmith.errors import BadInput

#: Opsmith's own sets: modules, and what ranks do together.
SHIPPED_PROBLEMS = Path(__file__).parents[1] / "problems"
SHIPPED_PARALLEL = Path(__file__).parents[1] / "parallel_problems"
#: In a checkout of the public form: the problems, and the table of their inputs.
_REFERENCES, _TABLE = "reference", Path("utils", "input_output_tensors.py")

#: Source of a parallel problem's cases as its file has them: not late, not in flight, of no further size.
PLAIN_INPUTS = "inputs"
#: Sources of the cases that are timed where a problem names its cases: workloads of a definition, benchmarks of a task.
TIMED_SOURCES = ("workload", "benchmark")

_LEVEL_FOLDER = re.compile(r"level_?(\w+)")
_LEVEL = re.compile(r"L(\w+)")
_NUMBER = re.compile(r"(\d+)")


def problem_files(path: Path) -> dict[str, Path]:
    """Task name -> problem file, in the order in which people count: 2 before 10.

    Args:
        path: one problem file, or a folder of problem files and of folders of them.

    Raises:
        BadInput: there is no such file or folder, or it holds no problem.
    """
    if path.is_file():
        return {path.stem: path}
    if not path.is_dir():
        raise BadInput(f"there is no problem file or folder {path}")
    if (path / _REFERENCES).is_dir() and (path / _TABLE).is_file():
        path /= _REFERENCES
    found = {file.stem: file for file in _python_files(path)}
    for folder in path.iterdir():
        if folder.is_dir() and not folder.name.startswith((".", "_")):
            found |= {f"{_level(folder.name)}/{file.stem}": file for file in _python_files(folder)}
    if not found:
        raise BadInput(f"{path} holds no problem: neither NAME.py nor LEVEL/NAME.py")
    return {task: found[task] for task in sorted(found, key=counting_order)}


def input_table(file: Path) -> Path | None:
    """The table of inputs of the checkout that a problem of the public form lies in; None where there is none."""
    table = file.parent.parent / _TABLE
    return table if file.parent.name == _REFERENCES and table.is_file() else None


def task_of_entry(entry: str) -> str:
    """The task of a suite's entry, which may say on how many ranks: ``15_RingAttention@4``."""
    task, separator, ranks = entry.rpartition("@")
    return task if separator and ranks.isdecimal() else entry


def problems_hash(path: Path) -> str:
    """Names and contents of all problems under ``path``, as one hash.

    Raises:
        BadInput: as :func:`problem_files`, or a file cannot be read.
    """
    return digest(msgspec.json.encode([(task, digest(_read(file))) for task, file in problem_files(path).items()]))


def solution_files(folder: Path, task: str) -> dict[int, Path]:
    """The files in ``folder`` that should solve ``task``, by sample.

    The first of these that there are: the problem's own place (``level1/23_Softmax.py``), its file name
    alone (``23_Softmax.py``), a folder of versions called like either (:func:`latest_version`), and all
    samples of the public layout.
    """
    level, _, stem = task.rpartition("/")
    for parent in (*(folder / name for name in _level_folders(level)), folder):
        if (parent / f"{stem}.py").is_file():
            return {0: parent / f"{stem}.py"}
        if (version := latest_version(parent / stem)) is not None:
            return {0: version}
    return _samples(folder, level, stem)


def latest_version(folder: Path) -> Path | None:
    """Of ``23_Softmax/23_Softmax_implementation*.py`` the highest number, v10 after v2; None without any."""
    versions = folder.glob(f"{glob.escape(folder.name)}_implementation*.py")
    return max(versions, key=lambda file: counting_order(file.name), default=None)


def is_version(file: Path) -> bool:
    """Whether a solution lies in a folder of versions, whose other files belong to it."""
    return file.stem.startswith(f"{file.parent.name}_implementation")


def sample_task(task: str, sample: int) -> str:
    """The task that one sample of a problem is."""
    return f"{task}@{sample}" if sample else task


def split_sample(name: str) -> tuple[str, int]:
    """The problem that a task belongs to, and its sample."""
    task, separator, sample = name.rpartition("@")
    return (task, int(sample)) if separator and sample.isdecimal() else (name, 0)


def task_pattern(text: str) -> str:
    """A pattern of problems as opsmith writes it: ``L1/1_*`` of ``level1/1_*`` or ``level_1/1_*.py``."""
    level, separator, stem = text.removesuffix(".py").rpartition("/")
    return f"{_level(level)}{separator}{stem}"


def level_of(task: str) -> str:
    """The level of a problem by its name: ``L1`` of ``L1/23_Softmax``; empty outside of folders."""
    return task.rpartition("/")[0]


def public_place(task: str) -> tuple[str, str]:
    """The level and the file name under which public files know a problem: ``level1``, ``23_Softmax.py``."""
    level, _, stem = task.rpartition("/")
    found = _LEVEL.fullmatch(level)
    return f"level{found[1]}" if found else level, f"{stem}.py"


def _level_folders(level: str) -> Iterable[str]:
    if not level:
        return ()
    number = level.removeprefix("L")
    return (level, f"level{number}", f"level_{number}") if number != level else (level,)


def _samples(folder: Path, level: str, stem: str) -> dict[int, Path]:
    problem = _NUMBER.match(stem)
    if not level.startswith("L") or problem is None:
        return {}
    name = re.compile(rf"level_{re.escape(level[1:])}_problem_{problem[1]}_sample_(\d+)_kernel\.py")
    found = {int(match[1]): file for file in folder.iterdir() if (match := name.fullmatch(file.name))}
    return dict(sorted(found.items()))


def _level(folder: str) -> str:
    found = _LEVEL_FOLDER.fullmatch(folder)
    return f"L{found[1]}" if found else folder


def _python_files(folder: Path) -> Iterator[Path]:
    return (file for file in folder.glob("*.py") if file.is_file() and not file.name.startswith((".", "_")))


def counting_order(name: str) -> list[tuple[int, str]]:
    """Sort key in which 2 comes before 10."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in _NUMBER.split(name)]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as exc:
        raise BadInput(f"{file} cannot be read: {exc.strerror}") from exc
