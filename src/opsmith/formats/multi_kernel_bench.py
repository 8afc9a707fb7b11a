"""MultiKernelBench: references by category, and replies of models as solutions.

::

    MultiKernelBench/
      dataset.py
      reference/activation/relu.py                       a module problem
      output/cuda/add_shot/0.0-1.0/MODEL/run0/relu.txt   a reply with a block of code that defines ModelNew

The references are module problems as they are (those of its NPUKernelBench levels have ``get_input_groups``). A reply
is read as the project does: its first fenced block.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from opsmith.core.problems import counting_order
from opsmith.formats.schema import read_text
from opsmith.formats.translated import Translated

_BLOCK = re.compile(r"```[\w+-]*\n(.*?)```", re.DOTALL)


def reference_folder(path: Path) -> Path:
    """Where the problems of a checkout lie; any other path is its own."""
    is_checkout = (path / "dataset.py").is_file() and (path / "reference").is_dir()
    return path / "reference" if is_checkout else path


def solutions(path: Path, task: str) -> list[Translated]:
    """The replies for a problem: of a folder ``OP.txt``, or of its runs ``run0/OP.txt``, which are samples."""
    return [
        Translated(
            files={"solution.py": _code(read_text(file))},
            file="solution.py",
            written_in="solution.py",
            name=str(file.resolve()),
        )
        for file in _replies(path, task.rpartition("/")[2])
    ]


def _replies(path: Path, stem: str) -> Iterator[Path]:
    if path.is_file():
        if path.suffix == ".txt":
            yield path
    elif (path / f"{stem}.txt").is_file():
        yield path / f"{stem}.txt"
    else:
        yield from sorted(path.glob(f"run*/{stem}.txt"), key=lambda file: counting_order(file.parent.name))


def _code(reply: str) -> str:
    found = _BLOCK.search(reply)
    return found[1] if found else reply
