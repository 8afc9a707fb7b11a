"""What counts as a kernel's code."""

from __future__ import annotations

from pathlib import Path

import pytest

from opsmith.core.kernel import Kernel, Loader
from opsmith.runner.fleet.code_sizes import code_bytes

FILES = {
    "sort.py": "from .tiles import (\n    tile,\n)\nfrom . import words, keys\nimport torch\n",
    "tiles.py": "from .keys import key\nfrom .sort import sort\n",  # In a circle.
    "keys.py": "import inner.words\n",
    "inner/words.py": "from ..other import nothing\n",
    "other.py": "#" * 100,
    "unused.py": "#" * 1_000,
    "broken.py": "def (",
}


@pytest.mark.parametrize(
    ("entry", "counted"),
    [
        ("sort.py:sort", ["sort.py", "tiles.py", "keys.py", "inner/words.py", "other.py"]),
        ("unused.py:op", ["unused.py"]),
        ("broken.py:op", ["broken.py"]),
        ("missing.py:op", []),
    ],
)
def test_a_kernels_code_is_its_file_and_what_it_imports_of_its_folder(
    entry: str, counted: list[str], tmp_path: Path
) -> None:
    """Each file once, and no other one."""
    (tmp_path / "inner").mkdir()
    for path, source in FILES.items():
        (tmp_path / path).write_text(source)
    files = dict.fromkeys(FILES, "")
    kernel = Kernel(task="sort.default", backend="test", loader=Loader.FILE, entry=entry, files=files)
    assert sum(len(FILES[path]) for path in counted) == code_bytes(kernel, tmp_path)
    assert 0 == code_bytes(kernel, None)


def test_of_a_kernel_without_files_nothing_is_known(tmp_path: Path) -> None:
    """ATen's own are compiled."""
    assert 0 == code_bytes(Kernel(task="add.Tensor", backend="aten", loader=Loader.ATEN, entry="add.Tensor"), tmp_path)
